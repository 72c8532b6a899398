"""A mutant: a bug as data, which is planted into the code at run time."""

import __future__

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.imports import name_of_today
from swarden.invariants.invariant import Invariant


class StaleMutant(UsageError):
    """A hunk does not fit the code; the message names the mutant, the target and the text."""


class Hunk(NamedTuple):
    """A replacement in the source of `target` ("module:qualified.name"): `healthy` occurs once and becomes `broken`."""

    target: str
    healthy: str
    broken: str


@dataclass(frozen=True)
class Mutant:
    """One bug.  `source` cites where it occurred; `caught_by` names the invariants or engine errors that may detect it.

    `machine` names the machine whose traffic reaches the bug, `model` the model that its engines run, if any.

    A bug of a checker `overlooks` another mutant, and both are planted together.  It is caught if the op-log of the
    other mutant violates a law of `caught_by` without the checker bug, and does not with it.
    """

    id: str
    source: str
    hunks: tuple[Hunk, ...]
    caught_by: tuple[str, ...]
    machine: str = "engine"
    model: str = ""
    overlooks: "Mutant | None" = None

    @property
    def all_hunks(self) -> tuple[Hunk, ...]:
        """Its own hunks, and those of the mutant that it overlooks."""
        return self.hunks + (self.overlooks.all_hunks if self.overlooks is not None else ())

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Run the body with the bug planted; raises StaleMutant before any change.

        Planting a planted mutant again has no effect.
        """
        swaps = [swap for target in self.targets if not (swap := _swap(self, target)).is_done]
        for swap in swaps:
            swap.function.__code__ = swap.broken
        try:
            yield
        finally:
            for swap in swaps:
                swap.function.__code__ = swap.healthy

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Run the body without the bug, within `planted`."""
        swaps = [_swap(self, target) for target in self.targets]
        for swap in swaps:
            swap.function.__code__ = swap.healthy
        try:
            yield
        finally:
            for swap in swaps:
                swap.function.__code__ = swap.broken

    @property
    def is_planted(self) -> bool:
        """Whether the bug is planted in this process now."""
        return all(_function(target).__code__.co_filename == _file_name(self, target) for target in self.targets)

    @property
    def targets(self) -> tuple[str, ...]:
        """The distinct functions that are changed."""
        return tuple(dict.fromkeys(hunk.target for hunk in self.all_hunks))


@dataclass(frozen=True, slots=True)
class Mutants:
    """The mutants of a module in the order of its calls of `bug`, and the machine and model of those that name none."""

    machine: str = "engine"
    model: str = ""
    all: list[Mutant] = field(default_factory=list)

    def bug(
        self,
        id: str,
        source: str,
        *hunks: Hunk,
        at: str = "",
        healthy: str = "",
        broken: str = "",
        caught_by: tuple[str, ...],
        machine: str = "",
        model: str = "",
        overlooks: Mutant | None = None,
    ) -> Mutant:
        """Add a mutant with these hunks; `at`, `healthy` and `broken` are its only one, or its last."""
        if at or not hunks:
            hunks += (Hunk(at, healthy, broken),)
        mutant = Mutant(id, source, hunks, caught_by, machine or self.machine, model or self.model, overlooks)
        self.all.append(mutant)
        return mutant


@dataclass(frozen=True, slots=True)
class Swap:
    """A function with its code before and after a bug was planted."""

    function: FunctionType
    healthy: CodeType
    broken: CodeType

    @property
    def is_done(self) -> bool:
        return self.function.__code__ is self.broken


@cache
def _swap(mutant: Mutant, target: str) -> Swap:
    """The function of a target with both versions of its code. Modules that imported the function get the bug too."""
    try:
        function = _function(target)
        source = textwrap.dedent(inspect.getsource(function))
    except (ImportError, AttributeError, ValueError, TypeError, OSError) as error:
        raise StaleMutant(f"{mutant.id}: {target} is not a function whose code can be changed: {error}") from error
    for hunk in mutant.all_hunks:
        if hunk.target == target:
            if (times := source.count(hunk.healthy)) != 1:
                raise StaleMutant(f"{mutant.id}: {target} has {_shown(hunk.healthy)} {times} times; want it once")
            source = source.replace(hunk.healthy, hunk.broken)
    try:
        tree = ast.parse(source, _file_name(mutant, target))
        ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)  # a traceback names the lines of the file
        [definition] = tree.body
        assert isinstance(definition, ast.FunctionDef), f"{target} is not a def"
        definition.decorator_list = []
        future = function.__code__.co_flags & __future__.annotations.compiler_flag  # else annotations are evaluated
        code = compile(tree, _file_name(mutant, target), "exec", flags=future, dont_inherit=True)
    except SyntaxError as error:
        raise StaleMutant(
            f"{mutant.id}: {target} with the bug is not valid Python: {error.msg}: {error.text}"
        ) from error
    lines = ["\n"] * (function.__code__.co_firstlineno - 1) + source.splitlines(keepends=True)
    linecache.cache[code.co_filename] = (len(source), None, lines, code.co_filename)  # for tracebacks and stories
    namespace: dict[str, object] = {}
    exec(code, function.__globals__, namespace)
    return Swap(function, function.__code__, _unwrap(namespace[function.__name__]).__code__)


def _shown(text: str) -> str:
    """A hunk's text on one line: its first line, and the number of further ones."""
    first, *more = text.strip().splitlines() or [""]
    return repr(first) + (f" and {len(more)} more line{'s' * (len(more) > 1)}" if more else "")


def _file_name(mutant: Mutant, target: str) -> str:
    """The file name in tracebacks of a function with a bug, to distinguish it from the healthy function."""
    return f"<{mutant.id} in {target}>"


def _function(target: str) -> FunctionType:
    module_name, _, qualified_name = target.partition(":")
    found: object = import_module(name_of_today(module_name))
    for name in qualified_name.split("."):
        found = inspect.getattr_static(found, name)
    return _unwrap(found)


def _unwrap(found: object) -> FunctionType:
    """The plain function behind a property, a classmethod, a staticmethod or an invariant."""
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    if isinstance(found, Invariant):
        found = found.find
    if type(found) is not FunctionType:
        raise TypeError(f"{found!r}")
    return found
