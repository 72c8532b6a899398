"""The difference of two source trees of an engine: the changed lines of the newer one, its head.

Statements are compared, so a comment, a blank line, a docstring, an annotation and an import are no change.  A file and
a function with a new name are followed by their content.
"""

import ast
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple, TypeVar

from swarden.harness.core.patch import functions_of

BLOCKS = ("body", "orelse", "finalbody")
PLACES = ("handlers", "cases")  # of a statement, with blocks of their own
NO_LINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # of a module or a class
ALIKE = 0.5  # the share of equal lines by which a file or a function has another name
Function = ast.FunctionDef | ast.AsyncFunctionDef
KeyT = TypeVar("KeyT", bound=Hashable)


class ChangedLine(NamedTuple):
    """The first line of a changed statement of the head, or of the statement where `removed` ones were.

    `path` is that from the import root, `function` "module:qualified.name", without a name for the statements of
    modules and classes.  A changed decorator, default or argument of a function is a change of its first line.
    """

    path: str
    number: int
    text: str
    function: str
    removed: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.text}" + (f" (removed: {self.removed})" if self.removed else "")

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    @property
    def runs_on_import(self) -> bool:
        return self.function.endswith(":")


class Statement(NamedTuple):
    """A statement, a handler or a case, without its blocks; None is the end of a block.

    What is planted for it is planted in its `block`, in front of the statement with this ordinal: that of a handler or
    a case in front of the statement that has it.
    """

    node: ast.AST | None
    line: int
    block: list[ast.stmt]
    ordinal: int

    @property
    def text(self) -> str:
        bare = copy(self.node)
        for name in (*BLOCKS, *PLACES):
            if isinstance(getattr(bare, name, None), list):
                setattr(bare, name, [])
        return ast.unparse(bare) if bare is not None else ""


class Difference(NamedTuple):
    """The changed lines of a package, and the functions that have another name or module now."""

    lines: tuple[ChangedLine, ...] = ()
    renamed: Mapping[str, str] = {}  # their earlier names, without the package, as in the fingerprint of an error


class File(NamedTuple):
    """A file of Python: its module, its lines, and its functions by their names; those with one name are numbered."""

    module: str
    lines: Sequence[str]
    tree: ast.Module
    functions: Mapping[tuple[str, int], Function]

    def lines_of(self, name: tuple[str, int]) -> list[str]:
        node = self.functions[name]
        first = min(part.lineno for part in (node, *node.decorator_list))
        return [line.strip() for line in self.lines[first - 1 : node.end_lineno]]


def difference(base: Path, head: Path, package: str) -> Difference:
    """The difference of a package, of files that are valid Python; `base` and `head` are folders of import."""
    old, new = _files(base, package), _files(head, package)
    gone = {path: _lines(content) for path, content in old.items() if path not in new}
    added = {path: _lines(content) for path, content in new.items() if path not in old}
    earlier_paths = _followed(added, gone)
    lines: list[ChangedLine] = []
    renamed, prefix = dict[str, str](), f"{package}."
    for path, content in sorted(new.items()):
        was = earlier_paths.get(path, path)
        if was == path and content == old.get(path):
            continue
        file, earlier = _parsed(path, content), _parsed(was, old.get(was, b""))
        if file is not None and earlier is not None:
            before = _earlier_names(file, earlier)
            lines += _of_file(path, file, earlier, before)
            names = ((f"{file.module}.{name}", f"{earlier.module}.{other}") for (name, _), (other, _) in before.items())
            renamed |= {now.removeprefix(prefix): then.removeprefix(prefix) for now, then in names if now != then}
    return Difference(tuple(lines), renamed)


def statements_of(block: list[ast.stmt], *, inside: bool = True) -> Iterator[Statement]:
    """The statements in a block, without docstrings; `inside` includes those in functions, and definitions."""
    for index, one in enumerate(block):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            continue
        if inside or not isinstance(one, NO_LINES):
            yield Statement(one, one.lineno, block, index)
        if not inside and isinstance(one, Function):
            continue
        for part in (one, *[part for name in PLACES for part in getattr(one, name, ())]):
            if part is not one:
                line = part.lineno if isinstance(part, ast.ExceptHandler) else part.pattern.lineno
                yield Statement(part, line, block, index)
            for name in BLOCKS:
                if isinstance(inner := getattr(part, name, None), list) and inner:
                    yield from statements_of(inner, inside=inside)
    if block:
        yield Statement(None, block[-1].lineno, block, len(block) - 1)


def changed(new: Sequence[Statement], old: Sequence[Statement]) -> Iterator[tuple[Statement, Statement | None]]:
    """The statements that are not among the old ones; where old ones are gone, the one behind them, and their first."""
    texts, old_texts = [statement.text for statement in new], [statement.text for statement in old]
    changes: list[tuple[Statement, Statement | None]] = []
    ends: list[tuple[Statement, None]] = []  # if only ends of blocks are changed
    for kind, start, end, old_start, old_end in SequenceMatcher(None, texts, old_texts, autojunk=False).get_opcodes():
        if kind != "equal" and new:
            follower = new[min(start, len(new) - 1)]
            removed = [(follower, statement) for statement in old[old_start:old_end] if statement.node is not None]
            changes += [(statement, None) for statement in new[start:end] if statement.node is not None] or removed[:1]
            ends += [(new[max(start - (start == end), 0)], None)] if old else []
    yield from changes or ends


def plant(statements: Iterable[tuple[Statement, str]]) -> None:
    """Put a further statement, given as text, in front of each of these statements of one tree."""
    for place, text in sorted(statements, key=lambda pair: pair[0].ordinal, reverse=True):  # the last of a block first
        [planted] = ast.parse(text).body
        place.block.insert(place.ordinal, ast.increment_lineno(planted, place.line - 1))


def _files(root: Path, package: str) -> dict[str, bytes]:
    folder = root.joinpath(*package.split("."))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in folder.rglob("*.py") if path.is_file()}


def _lines(content: bytes) -> list[str]:
    return [line for raw in content.decode(errors="replace").split("\n") if (line := raw.strip())]


def _parsed(path: str, content: bytes) -> File | None:
    """A file; None if it is not valid Python, which no run can import."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return None
    functions: dict[tuple[str, int], Function] = {}
    numbers: Counter[str] = Counter()
    for name, node in functions_of(tree):
        functions[name, numbers[name]] = node
        numbers[name] += 1
    module = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    return File(module, content.decode(errors="replace").split("\n"), tree, functions)


def _followed(added: Mapping[KeyT, Sequence[str]], gone: Mapping[KeyT, Sequence[str]]) -> dict[KeyT, KeyT]:
    """For what is added, what it was before: the pairs with the most equal lines."""
    ratios = [
        (SequenceMatcher(None, lines, others, autojunk=False).quick_ratio(), new, old)
        for new, lines in added.items()
        for old, others in gone.items()
    ]
    pairs: dict[KeyT, KeyT] = {}
    for ratio, new, old in sorted(ratios, key=lambda match: -match[0]):
        if ratio >= ALIKE and new not in pairs and old not in pairs.values():
            pairs[new] = old
    return pairs


def _earlier_names(file: File, earlier: File) -> Mapping[tuple[str, int], tuple[str, int]]:
    """The names that the functions of a file had, of those that were there."""
    added, gone = (
        {name: one.lines_of(name) for name in one.functions if name not in other.functions}
        for one, other in ((file, earlier), (earlier, file))
    )
    return {name: name for name in file.functions if name in earlier.functions} | _followed(added, gone)


def _of_file(
    path: str, file: File, earlier: File, before: Mapping[tuple[str, int], tuple[str, int]]
) -> Iterator[ChangedLine]:
    """The changed lines of a file, in their order."""
    top, old_top = ([*statements_of(module.tree.body, inside=False)] for module in (file, earlier))
    places = [("", statement.line, gone) for statement, gone in changed(top, old_top)]
    for name, node in file.functions.items():
        was = earlier.functions[before[name]] if name in before else None
        if was is not None and file.lines_of(name) == earlier.lines_of(before[name]):
            continue
        if was is not None and _definition(node) != _definition(was):
            places.append((name[0], node.lineno, None))
        statements = changed([*statements_of(node.body)], [*statements_of(was.body)] if was is not None else [])
        places += [(name[0], statement.line, gone) for statement, gone in statements]
    seen: set[int] = set()
    for function, line, gone in sorted(places, key=lambda place: (place[1], place[2] is not None)):
        if line not in seen:
            seen.add(line)
            removed = earlier.lines[gone.line - 1].strip() if gone is not None else ""
            yield ChangedLine(path, line, file.lines[line - 1].strip(), f"{file.module}:{function}", removed)


def _definition(node: Function) -> list[str]:
    """The kind of a function, its decorators, its defaults, and the names of its arguments."""
    some = node.args
    values = [*node.decorator_list, *some.defaults, *filter(None, some.kw_defaults)]
    arguments = [*some.posonlyargs, *some.args, some.vararg, *some.kwonlyargs, some.kwarg]
    return [type(node).__name__, *[one.arg if one else "" for one in arguments], *map(ast.unparse, values)]
