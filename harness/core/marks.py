"""Marks in running code: they note which patches a run reaches, that is, executes a statement that the patch changes.

A patch whose statements a run does not reach before a failure cannot be what lets the run pass.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from difflib import SequenceMatcher
from functools import lru_cache
from types import CodeType, FunctionType
from typing import NamedTuple

from swarden.harness.core.patch import Patch, Sources, StalePatch, code_of

NOTE = "__swarden_note__"  # the function that a mark calls, a global of the module of a marked function
BLOCKS = ("body", "orelse", "finalbody")


class Place(NamedTuple):
    """A place in a block of statements: before the statement with this ordinal from 0, or at the end of the block."""

    block: list[ast.stmt]
    ordinal: int


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
        changed = {function: patch.sources(function, place) for function, place in patch.functions().items()}
        for sources in changed.values():
            ast.parse(sources.after)
    except (StalePatch, SyntaxError):  # the text can stand elsewhere, with another indentation
        return {}
    return changed


@lru_cache(maxsize=512)
def _with_marks(original: CodeType, before: str, versions: tuple[Version, ...]) -> CodeType:
    """The code of a function with a mark at each place where a version differs."""
    tree = ast.parse(before)
    body = _body(tree)
    places = {one: list(changed_places(body, _body(ast.parse(one.source)))) or [Place(body, 0)] for one in versions}
    marks = [(place, one.patch) for one, found in places.items() for place in found]
    for place, name in sorted(marks, key=lambda mark: mark[0].ordinal, reverse=True):  # the last one of a block first
        place.block.insert(place.ordinal, ast.parse(f"{NOTE}({name!r})").body[0])
    return code_of(tree, original.co_filename, original)


def _body(tree: ast.Module) -> list[ast.stmt]:
    """The statements of the one function of a tree."""
    [definition] = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef), "the source is not a def"
    return definition.body


def changed_places(old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[Place]:
    """The places of a block, or of the innermost blocks in it, at which the new block has other statements.

    Blocks are compared one by one: in a list of all statements, a new `break` could stand for that of another block.
    """
    texts = [[*map(ast.unparse, block)] for block in (old, new)]
    for kind, start, end, new_start, new_end in SequenceMatcher(a=texts[0], b=texts[1], autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if end - start != new_end - new_start:
            yield Place(old, start)
            continue
        for index, (statement, other) in enumerate(zip(old[start:end], new[new_start:new_end], strict=True), start):
            yield from list(_inside(statement, other)) or [Place(old, index)]


def _inside(old: ast.stmt, new: ast.stmt) -> Iterator[Place]:
    """The changed places in the blocks of a statement; none if more than its blocks is changed."""
    if _head(old) == _head(new):
        for block, other in zip(_blocks(old), _blocks(new), strict=True):
            yield from changed_places(block, other)


def _head(statement: ast.stmt) -> str:
    """A statement with empty blocks, as text."""
    copied = deepcopy(statement)
    for block in _blocks(copied):
        block[:] = [ast.Pass()]
    return ast.unparse(copied)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a statement, those of its handlers and cases, too; also those that could have statements."""
    parts = [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
    return [getattr(part, name) for part in parts for name in BLOCKS if isinstance(getattr(part, name, None), list)]
