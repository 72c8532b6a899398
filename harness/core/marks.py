"""Marks in running code: they note which patches a run reaches, that is, executes a statement that the patch changes.

A patch whose statements a run does not reach before a failure cannot be what lets the run pass.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import CodeType, FunctionType
from typing import NamedTuple

from swarden.harness.core.changed_code import Statement, changed, plant, statements_of
from swarden.harness.core.patch import Patch, Sources, StalePatch, code_of

NOTE = "__swarden_note__"  # the function that a mark calls, a global of the module of a marked function


class Version(NamedTuple):
    """The source of a function with a patch."""

    patch: str
    source: str


@contextmanager
def marked(patches: Iterable[Patch], reached: set[str]) -> Iterator[None]:
    """Run the body with marks for patches that are not planted; the names of those that are reached go into the set.

    A patch that does not fit has no marks, so it is not reached.
    """
    before: dict[FunctionType, str] = {}
    versions: dict[FunctionType, list[Version]] = defaultdict(list)
    for patch in patches:
        for function, sources in changed_functions(patch).items():
            before[function] = sources.before
            versions[function].append(Version(patch.name, sources.after))
    with ExitStack() as stack:
        for function, others in versions.items():
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__globals__[NOTE] = reached.add  # and stays there: a generator or a closure can outlive the body
            function.__code__ = _with_marks(function.__code__, before[function], tuple(others))
        yield


def changed_functions(patch: Patch) -> Mapping[FunctionType, Sources]:
    """The functions that a patch changes, with their sources; none if the patch does not fit."""
    try:
        found = {function: patch.sources(function, place) for function, place in patch.functions().items()}
        for sources in found.values():
            ast.parse(sources.after)
    except (StalePatch, SyntaxError):  # the text can stand elsewhere, with another indentation
        return {}
    return found


@lru_cache(maxsize=512)
def _with_marks(original: CodeType, before: str, versions: tuple[Version, ...]) -> CodeType:
    """The code of a function with a mark at each place where a version differs."""
    tree = ast.parse(before)
    here = [*statements_of(_body(tree))]
    marks: list[tuple[Statement, str]] = []
    for one in versions:
        places = [place for place, _ in changed(here, [*statements_of(_body(ast.parse(one.source)))])]
        marks += [(place, f"{NOTE}({one.patch!r})") for place in places or here[:1]]
    plant(marks)
    return code_of(tree, original.co_filename, original)


def _body(tree: ast.Module) -> list[ast.stmt]:
    """The statements of the one function of a tree."""
    [definition] = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef), "the source is not a def"
    return definition.body
