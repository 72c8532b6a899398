"""Stand-ins for packages that an engine imports and that need a GPU or a server; nothing of them touches KV memory."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

VERSION = "99.0.0"  # newer than every minimum that a release checks


class Missing:
    """An object whose unset attributes are None."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Silent(Missing):
    """An object whose unset attributes are functions without effect."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class _Permissive(type):
    """A class that can be subclassed, called, subscripted, combined with | and used as a decorator."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _permissive(f"{cls.__qualname__}.{name}")
        setattr(cls, name, value)
        return value

    def __or__(cls, other: object) -> Any:
        return cls

    __ror__ = __or__
    __getitem__ = __or__

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __contains__(cls, item: object) -> bool:
        return False


def _permissive(name: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def attribute(self: Any, attribute_name: str) -> Any:
        if attribute_name.startswith("__"):
            raise AttributeError(attribute_name)
        return _permissive(f"{name}.{attribute_name}")

    members = {
        "__qualname__": name,
        "__module__": __name__,
        "__init__": lambda self, *args, **kwargs: None,
        "__call__": call,
        "__getattr__": attribute,
        "__get_pydantic_core_schema__": classmethod(_any_value),
    }
    return _Permissive(name.rpartition(".")[2], (), members)


def _any_value(kind: Any, source: Any, handler: Callable[[Any], Any]) -> Any:
    """The schema of a pydantic field with this type: any value is valid."""
    return handler(Any)


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return VERSION
        if name.startswith("__"):
            raise AttributeError(name)
        value = _permissive(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _Finder(MetaPathFinder, Loader):
    """Finds these packages and all their submodules as stand-ins."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = frozenset(packages)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in self._packages else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def provide_absent(packages: Iterable[str]) -> None:
    """Let imports of these packages succeed; a package that is installed is used instead."""
    sys.meta_path.append(_Finder(packages))


def replace_present(modules: Iterable[ModuleType], values: Mapping[str, Any]) -> None:
    """Set these values in the modules that have their names already."""
    for members in map(vars, modules):
        members.update({name: values[name] for name in values.keys() & members.keys()})


def replace_triton() -> None:
    """Replace triton, which compiles GPU kernels and is as large as torch; `jit` leaves a function as it is.

    torch looks for triton while it is imported and must not find the stand-in.
    """
    sys.modules["triton"] = None  # type: ignore[assignment]  # None makes an import fail
    for name in ("torch._dynamo", "torch._inductor.runtime.triton_compat", "torch._inductor.runtime.triton_heuristics"):
        importlib.import_module(name)
    importlib.import_module("torch.utils._triton").has_triton_package()
    del sys.modules["triton"]
    sys.meta_path.insert(0, _Finder(["triton"]))
    triton = importlib.import_module("triton")
    language = importlib.import_module("triton.language")

    def jit(function: Any = None, **options: Any) -> Any:
        return function if callable(function) else lambda decorated: decorated

    def decorator(*args: Any, **options: Any) -> Any:
        return lambda decorated: decorated

    vars(triton).update(
        jit=jit,
        autotune=decorator,
        heuristics=decorator,
        cdiv=lambda a, b: -(-a // b),
        next_power_of_2=lambda n: 1 << (n - 1).bit_length(),
        __version__="3.5.0",
    )
    vars(importlib.import_module("triton.runtime")).update(driver=SimpleNamespace(active=_NoDriver()))
    vars(language).update(constexpr=_Constant)


class _NoDriver:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no triton driver")


class _Constant:
    def __init__(self, value: Any = None) -> None:
        self.value = value
