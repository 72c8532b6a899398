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
        """Run the body with the bug in; raises StaleMutant before anything is changed."""
        swaps = [self._swap(hunk) for hunk in self.hunks]
        healthy = [(function, function.__code__) for function, _ in swaps]
        for function, code in swaps:
            function.__code__ = code
        try:
            yield
        finally:
            for function, code in healthy:
                function.__code__ = code

    def _swap(self, hunk: Hunk) -> tuple[FunctionType, CodeType]:
        """The function to change, and its code with the bug: all who imported it meet the bug."""
        function = _function(hunk.target)
        source = textwrap.dedent(inspect.getsource(function))
        if (times := source.count(hunk.healthy)) != 1:
            raise StaleMutant(f"{self.id}: {hunk.target} has {hunk.healthy!r} {times} times; want it once")
        name = f"<{self.id} in {hunk.target}>"
        namespace: dict[str, object] = {}
        broken = compile(source.replace(hunk.healthy, hunk.broken), name, "exec", dont_inherit=True)
        exec(broken, function.__globals__, namespace)
        return function, _unwrap(namespace[function.__name__]).__code__


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
    if not isinstance(found, FunctionType):
        raise StaleMutant(f"{found!r} is not a function whose code can be changed")
    return found
