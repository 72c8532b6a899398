"""Rust core of the tree: it stands beside the Python core of the release, and both must give the same answers.

Real: from 0.5.22: each call goes to both cores; the Python core serves the engine.
Stand-in: none.
Shows: another answer is `CoresDifferError`.

The Rust core shows no nodes, so the Python core serves the engine and is captured.  The Rust core gets the same calls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from swarden.harness.core.target import Draw
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart, Terms
from swarden.harness.kit.launch import Line, table
from swarden.harness.kit.settings import IfReleaseHas

PAIR_OF_CORES = "swarden"  # the name of the pair of cores in the registry of a release
FIRST_ID = 5 * 10**10  # the first id of a Python node; no size is as large, so an id is known by its value
SIZES = ("full_evictable_size", "swa_evictable_size", "full_protected_size", "swa_protected_size")
FREES = ("device_frees", "host_frees")  # compared as sets: the order of the Rust core varies
UNDRAINED = (*FREES, "cache_actions")  # fields to clear before a result of the Rust core is dropped


class CoresDifferError(Exception):
    """The two tree cores of a release gave different answers to one call."""


def core_of_line(line: Line) -> bool:
    """Servers have the one in Rust; it shows no nodes, and so no KV events."""
    usual = "rust" if line.is_since("0.5.22") else "python"
    name = line.word("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND") or usual
    return name == "rust" and not line.word("kv-events-config") and not line.has("disable-radix-cache")


class RustCore(SglangCapability, frozen=True):
    """`rust_core` lets the tree core in Rust answer beside the one in Python; a different answer is an error."""

    rust_core: Annotated[bool, IfReleaseHas("rust_core")] = False

    server_need = "Rust core"
    launch_table = table(rust_core=core_of_line)

    @classmethod
    def drawn(cls, draw: Draw, config: Any, has: Callable[[str], bool]) -> Mapping[str, Any]:
        return {"rust_core": has("rust_core") and not config.router.is_on and draw.one_of((False, False, True))}

    def terms(self, config: Any) -> Terms:
        return Terms(cache_params={"tree_core_backend": PAIR_OF_CORES})

    def prepare(self, release: SglangRelease, server_args: Any) -> None:
        _register(release)

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        return [SglangCores(engine)]


def _register(release: SglangRelease) -> None:
    """Make the pair of cores known to the release, under `PAIR_OF_CORES`."""
    registry = release.code("TreeCores")
    if registry.get_tree_core_factory(PAIR_OF_CORES) is None:
        release.code("UnifiedTreeNode").counter = FIRST_ID
        python, rust = release.code("UnifiedTreeCore"), release.code("RustUnifiedTreeCore")
        registry.register_tree_core_backend(
            PAIR_OF_CORES, lambda params, components: Cores(release, python(params, components), rust(params))
        )


class Cores:
    """A Python core; each call to it is also made to a Rust core, and the answers are compared.

    The cores give different ids to the same node or lock; ids that answer the same call are a pair from then on.
    """

    def __init__(self, release: SglangRelease, python: Any, rust: Any) -> None:
        vars(self).update(_release=release, _python=python, _rust=rust, _rust_id={}, _is_called=False)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._python, name, value)
        setattr(self._rust, name, value)

    def __getattr__(self, name: str) -> Any:
        of_python = getattr(self._python, name)
        if not callable(of_python) or name.startswith("_") or name == "node_by_id":  # the Rust core shows no nodes
            return of_python
        of_rust = getattr(self._rust, name, None)
        return of_python if of_rust is None else self._both(name, of_python, of_rust)

    def _both(self, name: str, python: Callable[..., Any], rust: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._is_called:  # by a part of the Python core, where the Rust core calls its own; or for a snapshot
                return python(*args, **kwargs)
            rust_args, rust_kwargs = self._translated(args), self._translated(kwargs)
            with uncompared(self):
                result = python(*args, **kwargs)
            answer = rust(*rust_args, **rust_kwargs)
            of_python, of_rust = self._comparable(result), self._comparable(answer)
            for field in UNDRAINED:
                if hasattr(answer, field):
                    getattr(answer, field).clear()
            if self._paired(of_python, of_rust) != of_rust:
                raise CoresDifferError(f"{name}: the Python core answers {of_python}, the Rust core {of_rust}")
            return result

        return call

    def _translated(self, value: Any) -> Any:
        """A copy with the ids of the Rust core; tensors are copied, because both cores keep what they get."""
        if _is_id(value):
            return self._rust_id[value]
        if type(value) in (list, tuple):
            return type(value)(map(self._translated, value))
        if isinstance(value, Mapping):
            return {key: self._translated(item) for key, item in value.items()}
        if isinstance(value, self._release.torch.Tensor):
            return value.clone()
        changed = {}
        for name in _fields(value):
            if (item := self._translated(getattr(value, name))) is not getattr(value, name):
                changed[name] = item
        if not changed:
            return value
        translated = copy(value)
        for name, item in changed.items():
            object.__setattr__(translated, name, item)
        return translated

    def _comparable(self, value: Any) -> Any:
        if isinstance(value, self._release.torch.Tensor):
            return tuple(value.tolist())
        if isinstance(value, (list, tuple)):
            return tuple(map(self._comparable, value))
        if isinstance(value, Mapping):
            return tuple((str(key), self._comparable(value[key])) for key in sorted(value, key=str))
        if names := tuple(_fields(value)):
            parts = {name: self._comparable(getattr(value, name)) for name in names}
            for name in parts.keys() & FREES:
                parts[name] = tuple((component, tuple(sorted(indices))) for component, indices in parts[name])
            return type(value).__name__, tuple(parts.items())
        return value if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__

    def _paired(self, of_python: Any, of_rust: Any) -> Any:
        """The answer of the Python core, with the ids of the Rust core."""
        if _is_id(of_python) and isinstance(of_rust, int):
            return self._rust_id.setdefault(of_python, of_rust)
        if isinstance(of_python, tuple) and isinstance(of_rust, tuple) and len(of_python) == len(of_rust):
            return tuple(map(self._paired, of_python, of_rust))
        return of_python


def core_of(tree: Any) -> Any:
    """The core of a tree; None for a tree without one."""
    return getattr(tree, "tree_core", None)


@contextmanager
def uncompared(core: Any) -> Iterator[None]:
    """Within this context, calls to a tree core are made to the Python core only, and nothing is compared."""
    is_pair = isinstance(core, Cores)
    if is_pair:
        vars(core)["_is_called"] = True
    try:
        yield
    finally:
        if is_pair:
            vars(core)["_is_called"] = False


class SglangCores(SglangPart):
    """The two cores of the tree of one engine."""

    def __init__(self, engine: SglangEngine) -> None:
        self._cores: Cores = engine.memory.tree.tree_core

    def stepped(self) -> None:
        """Raise CoresDifferError where the cores count different tokens as evictable or protected."""
        for name in SIZES:
            getattr(self._cores, name)()


def _is_id(value: Any) -> bool:
    return type(value) is int and value >= FIRST_ID


def _fields(value: Any) -> Iterator[str]:
    """The names of the fields of a dataclass or a msgspec struct; none of anything else."""
    if is_dataclass(value) and not isinstance(value, type):
        yield from (field.name for field in fields(value))
    else:
        yield from getattr(type(value), "__struct_fields__", ())
