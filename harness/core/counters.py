"""Counters in running code: they note which changed lines of an engine a run executes.

The functions of a loaded module are found by their code, so it does not matter what decorates them or where they are
kept.  A function that was changed by a patch, and one that is compiled, cannot be followed.
"""

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

from swarden.harness.core.changed_code import ChangedLine, Statement, plant, statements_of
from swarden.harness.core.patch import functions_of

RAN = "__swarden_ran__"  # the dict in which a counter notes its line, a global of the module
Key = tuple[str, str, int]  # of the code of a function: its file, its name and its first line


class Coverage(NamedTuple):
    """Changed lines, by their ordinals: those that ran, that have a counter, and whose module is imported.

    A line that runs on import has run if its module is imported.
    """

    ran: frozenset[int] = frozenset()
    followed: frozenset[int] = frozenset()
    imported: frozenset[int] = frozenset()

    def __or__(self, other: "Coverage") -> "Coverage":
        return Coverage(self.ran | other.ran, self.followed | other.followed, self.imported | other.imported)

    def beyond(self, other: "Coverage") -> "Coverage":
        """What another one has not."""
        return Coverage(self.ran - other.ran, self.followed - other.followed, self.imported - other.imported)


NO_COVERAGE = Coverage()


class Counters:
    """The counters at changed lines, in the modules that this process has imported."""

    def __init__(self, change: Sequence[ChangedLine]) -> None:
        self._waiting: dict[str, list[int]] = defaultdict(list)  # by module, until it is imported
        for ordinal, line in enumerate(change):
            self._waiting[line.module].append(ordinal)
        self._change = change
        self._ran: dict[int, bool] = {}
        self._always = NO_COVERAGE  # of each run
        self._replaced: list[tuple[FunctionType, CodeType]] = []

    @contextmanager
    def planted(self) -> Iterator["Counters"]:
        """Run the body with the counters."""
        try:
            self.begin()
            yield self
        finally:
            for function, code in self._replaced:
                function.__code__ = code

    def begin(self) -> None:
        """Begin a run: what ran before it is forgotten, and modules that were imported since then get counters."""
        self._ran.clear()
        if loaded := [name for name in self._waiting if getattr(sys.modules.get(name), "__file__", None)]:
            self._plant({name: self._waiting.pop(name) for name in loaded})

    @property
    def coverage(self) -> Coverage:
        """The coverage of the run."""
        return self._always | Coverage(frozenset(self._ran))

    def _plant(self, lines: dict[str, list[int]]) -> None:
        codes: dict[Key, CodeType] = {}
        by_place: dict[tuple[str, int], int] = {}
        for name, ordinals in lines.items():
            file = str(sys.modules[name].__file__)
            numbers = {self._change[one].number: one for one in ordinals if not self._change[one].runs_on_import}
            on_import = frozenset(ordinals) - {*numbers.values()}
            self._always |= Coverage(on_import, on_import, frozenset(ordinals))
            by_place |= {(file, number): ordinal for number, ordinal in numbers.items()}
            codes |= {_key(code): code for code in _with_counters(file, numbers)}
        places: set[tuple[str, int | None]] = set()
        for function in _functions():
            code = codes.get(_key(function.__code__))
            if code is None or code.co_freevars != function.__code__.co_freevars:
                continue
            self._replaced.append((function, function.__code__))
            function.__globals__[RAN] = self._ran  # and stays there: a generator or a closure can outlive the body
            function.__code__ = code
            places |= {(code.co_filename, line) for inner in _every(code) for _, _, line in inner.co_lines()}
        self._always |= Coverage(followed=frozenset(ordinal for place, ordinal in by_place.items() if place in places))


def _functions() -> list[FunctionType]:
    """The functions of this process, also those that the garbage collector does not visit."""
    is_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    functions = [candidate for candidate in gc.get_objects() if type(candidate) is FunctionType]
    if is_frozen:
        gc.collect()  # what is garbage now would stay
        gc.freeze()
    return functions


def _with_counters(file: str, numbers: dict[int, int]) -> Iterator[CodeType]:
    """The codes of the functions of a file, those with counters at lines; `numbers` has the ordinals of the lines."""
    tree = ast.parse(Path(file).read_bytes(), file)
    places = {one.line: one for one in reversed([*statements_of(tree.body)]) if one.node is not None}
    places |= {node.lineno: Statement(node, node.lineno, node.body, 0) for _, node in functions_of(tree)}
    plant((places[line], f"{RAN}[{number}] = True") for line, number in numbers.items() if line in places)
    for code in _every(compile(tree, file, "exec", dont_inherit=True)):
        if code.co_flags & CO_NEWLOCALS and any(RAN in inner.co_names for inner in _every(code)):
            yield code


def _every(code: CodeType) -> Iterator[CodeType]:
    """A code, and all codes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _every(constant)


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno
