"""Marks in running code: they note which patches a run reaches, that is, executes a statement that the patch changes.

A patch whose statements a run does not reach before a failure cannot be what lets the run pass.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from difflib import SequenceMatcher
from functools import cache
from types import CodeType, FunctionType
from typing import NamedTuple

from swarden.harness.core.patch import Patch, StalePatch, code_of

NOTE = "__swarden_note__"  # the function that a mark calls, a global of the module of a marked function


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
        with suppress(StalePatch):
            for function, sources in [(one, patch.sources(one, place)) for one, place in patch.functions().items()]:
                before[function] = sources.before
                versions[function].append(Version(patch.name, sources.after))
    with ExitStack() as stack:
        for function, others in versions.items():
            stack.callback(setattr, function, "__code__", function.__code__)
            stack.callback(function.__globals__.pop, NOTE, None)
            function.__globals__[NOTE] = reached.add
            function.__code__ = _with_marks(function.__code__, before[function], tuple(others))
        yield


@cache
def _with_marks(original: CodeType, before: str, versions: tuple[Version, ...]) -> CodeType:
    """The code of a function with a mark at each place where a version differs."""
    tree = ast.parse(before)
    marks = [(place, one.patch) for one in versions for place in changed_places(tree.body, ast.parse(one.source).body)]
    for place, name in sorted(marks, key=lambda mark: mark[0].ordinal, reverse=True):  # the last one of a block first
        place.block.insert(place.ordinal, ast.parse(f"{NOTE}({name!r})").body[0])
    return code_of(tree, original.co_filename, original)


def changed_places(old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[Place]:
    """The places of a block, or of the innermost blocks in it, at which the new block has other statements."""
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
    heads = [ast.unparse(one).partition("\n")[0] for one in (old, new)]
    blocks, others = _blocks(old), _blocks(new)
    if heads[0] == heads[1] and len(blocks) == len(others):
        for block, other in zip(blocks, others, strict=True):
            yield from changed_places(block, other)


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The blocks of a statement, those of its handlers and cases, too; also those that could have statements."""
    blocks: list[list[ast.stmt]] = []
    for _, value in ast.iter_fields(node):
        if isinstance(value, list):
            if all(isinstance(one, ast.stmt) for one in value):
                blocks.append(value)
            blocks += [one.body for one in value if isinstance(one, ast.ExceptHandler | ast.match_case)]
    return blocks
