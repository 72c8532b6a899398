"""A mutant: a bug that really happened, as data, planted from outside."""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import NamedTuple


class StaleMutant(Exception):
    """A hunk does not fit the code any more; the message names the mutant, the target and the text."""


class Hunk(NamedTuple):
    """In `target` ("module:qualified.name") the one place that reads `healthy` becomes `broken`."""

    target: str
    healthy: str
    broken: str


@dataclass(frozen=True)
class Mutant:
    """One bug.  `source` cites where it happened; one of `caught_by` must speak when it is planted.

    `machine` names the machine whose traffic meets it.  What stands in `caught_by` is the name of an
    invariant, or of an engine's own error where that is how the bug shows.
    """

    id: str
    source: str
    hunks: tuple[Hunk, ...]
    caught_by: tuple[str, ...]
    machine: str = "engine"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Run the body with the bug in, once however often it is planted; raises StaleMutant before any change."""
        swaps = [swap for hunk in self.hunks if (swap := self._swap(hunk)) is not None]
        for swap in swaps:
            swap.function.__code__ = swap.broken
        try:
            yield
        finally:
            for swap in swaps:
                swap.function.__code__ = swap.healthy

    def _swap(self, hunk: Hunk) -> "Swap | None":
        """The function to change, so that all who imported it meet the bug; None where it has the bug already."""
        function = _function(hunk.target)
        name = f"<{self.id} in {hunk.target}>"
        if function.__code__.co_filename == name:
            return None
        source = textwrap.dedent(inspect.getsource(function))
        if (times := source.count(hunk.healthy)) != 1:
            raise StaleMutant(f"{self.id}: {hunk.target} has {hunk.healthy!r} {times} times; want it once")
        namespace: dict[str, object] = {}
        code = compile(source.replace(hunk.healthy, hunk.broken), name, "exec", dont_inherit=True)
        exec(code, function.__globals__, namespace)
        return Swap(function, function.__code__, _unwrap(namespace[function.__name__]).__code__)


@dataclass(frozen=True, slots=True)
class Swap:
    """A function with its code before and after a bug was planted."""

    function: FunctionType
    healthy: CodeType
    broken: CodeType


def _function(target: str) -> FunctionType:
    module_name, _, qualified_name = target.partition(":")
    found: object = import_module(module_name)
    for name in qualified_name.split("."):
        found = inspect.getattr_static(found, name)
    return _unwrap(found)


def _unwrap(found: object) -> FunctionType:
    """The plain function behind a property, a classmethod or a staticmethod."""
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    if type(found) is not FunctionType:
        raise StaleMutant(f"{found!r} is not a function whose code can be changed")
    return found
