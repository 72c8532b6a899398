"""The classes and functions of a release that is imported in this process, by name, and how releases differ."""

import importlib
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import parsed
from swarden.harness.kit.stand_ins import provide_absent


class Feature(NamedTuple):
    """A difference between releases: its reason, and the test by which a release is found to have it."""

    reason: str
    is_in: Callable[[Any], bool]


class ReleasedCode:
    """The code of one release: `places` has where each class or function is in the releases, newest first.

    A place is "module:attribute", relative to the package `root`.
    """

    torch = cached_property(lambda _: importlib.import_module("torch"))  # at the first use

    def __init__(
        self, version: str, root: str, places: Mapping[str, tuple[str, ...]], features: Mapping[str, Feature]
    ) -> None:
        self.text, self.version = version, parsed(version)
        self._code: dict[str, Any] = {name: _first(root, named) for name, named in places.items()}
        self._asked_in_vain: set[str] = set()
        self._features = {name: self._is_in(feature) for name, feature in features.items()}

    def code(self, name: str) -> Any:
        """A class or function of the release; None if the release does not have it."""
        member = self._code[name]
        if member is None:
            self._asked_in_vain.add(name)
        return member

    @property
    def parts(self) -> list[Any]:
        """All classes and functions."""
        return list(self._code.values())

    def _is_in(self, feature: Feature) -> bool:
        """Whether the release has a feature; False for a feature of a class that it does not have."""
        self._asked_in_vain.clear()
        try:
            return feature.is_in(self)
        except (AttributeError, TypeError):
            if not self._asked_in_vain:
                raise
            return False

    def has(self, feature: str) -> bool:
        return self._features[feature]


CodeT = TypeVar("CodeT", bound=ReleasedCode)


class BootedRelease(Generic[CodeT]):
    """Imports a release of a package by `load`, once; a process can import one release of a package.

    `places` has those of each class and function that its adapter asks for, relative to the package `root`.
    """

    def __init__(
        self,
        package: str,
        load: Callable[[str, Sequence[Path]], CodeT],
        root: str = "",
        places: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.root, self.places = root or package, places
        self._package, self._load = package, load
        self._release: CodeT | None = None

    def __call__(self, version: str, folders: Sequence[Path] = ()) -> CodeT:
        """The release, from `folders` or the environment.  Raises UsageError if another version is imported."""
        if self._release is None:
            self._release = self._load(version, folders)
        if self._release.text != version:
            what = f"{self._package} {self._release.text} is loaded in this process, {version} is wanted"
            raise UsageError(f"{what}; run each release in a process of its own")
        return self._release


@contextmanager
def quiet_import(
    folders: Iterable[Path], absent: Iterable[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """The context in which a release is imported: without warnings and logs, with torch on one thread.

    `folders` come first on the path.  Packages that are `absent` have stand-ins.  Variables of `environment` that are
    not set get these values.
    """
    for name, value in (environment or {}).items():
        os.environ.setdefault(name, value)
    sys.path[:0] = [str(folder) for folder in folders]
    provide_absent(absent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch").set_num_threads(1)  # with more, a step on busy cores takes 70 times as long
        logging.disable(logging.CRITICAL)
        yield


def optional(name: str) -> Any:
    """A module, or None if it does not exist."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


@cache
def parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def known(arguments: Mapping[str, Any], kind: Any, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments that the constructor of this release accepts; names in `also` are accepted through its **kwargs."""
    names = {*parameters(kind.__init__), *also}
    return {name: value for name, value in arguments.items() if name in names}


def _first(root: str, places: tuple[str, ...]) -> Any:
    """The first of the places that exists; None if none does."""
    for place in places:
        module, _, attribute = place.partition(":")
        member = getattr(optional(f"{root}.{module}"), attribute, None)
        if member is not None:
            return member
    return None
