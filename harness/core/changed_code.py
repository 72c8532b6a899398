"""The difference of two source trees of an engine: the changed lines of the newer one, its head.

Statements are compared, so a comment, a blank line, a docstring, an annotation and an import are no change.  A file and
a function with a new name are followed by their content.
"""

import ast
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import copy
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple, TypeVar

from swarden.harness.core.fitting import functions_of

BLOCKS = ("body", "orelse", "finalbody")
PARTS = ("handlers", "cases")  # of a statement, with blocks of their own
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

    What is planted for it is planted in its `block`, in front of the statement with this ordinal.
    """

    node: ast.AST | None
    line: int
    block: list[ast.stmt]
    ordinal: int

    @property
    def text(self) -> str:
        bare = copy(self.node)
        for name in (*BLOCKS, *PARTS):
            if isinstance(getattr(bare, name, None), list):
                setattr(bare, name, [])
        return ast.unparse(bare) if bare is not None else ""


def difference(base: Path, head: Path, package: str) -> tuple[ChangedLine, ...]:
    """The changed lines of a package, of files that are valid Python; `base` and `head` are folders of import."""
    old, new = _files(base, package), _files(head, package)
    gone = {path: _lines(content) for path, content in old.items() if path not in new}
    added = {path: _lines(content) for path, content in new.items() if path not in old}
    before = {path: path for path in new} | _followed(added, gone)
    found: list[ChangedLine] = []
    for path, content in sorted(new.items()):
        if content != (earlier := old.get(before[path], b"")):
            found += _of_file(path, content, earlier)
    return tuple(found)


def statements_of(block: list[ast.stmt], *, inside: bool = True) -> Iterator[Statement]:
    """The statements in a block, without docstrings; `inside` includes those in functions, and definitions."""
    for index, one in enumerate(block):
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            continue
        if inside or not isinstance(one, NO_LINES):
            yield Statement(one, one.lineno, block, index)
        if not inside and isinstance(one, Function):
            continue
        for part in (one, *[part for name in PARTS for part in getattr(one, name, ())]):
            if part is not one:
                line = part.lineno if isinstance(part, ast.ExceptHandler) else part.pattern.lineno
                yield Statement(part, line, part.body, 0)
            for name in BLOCKS:
                if isinstance(inner := getattr(part, name, None), list) and inner:
                    yield from statements_of(inner, inside=inside)
    if block:
        yield Statement(None, block[-1].lineno, block, len(block) - 1)


def _files(root: Path, package: str) -> dict[str, bytes]:
    folder = root.joinpath(*package.split("."))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in folder.rglob("*.py")}


def _lines(content: bytes) -> list[str]:
    return [line for one in content.decode(errors="replace").splitlines() if (line := one.strip())]


def _followed(added: Mapping[KeyT, Sequence[str]], gone: Mapping[KeyT, Sequence[str]]) -> dict[KeyT, KeyT]:
    """For what is added, what it was before: the pairs with the most equal lines."""
    ratios = [
        (SequenceMatcher(None, lines, others, autojunk=False).quick_ratio(), new, old)
        for new, lines in added.items()
        for old, others in gone.items()
    ]
    found: dict[KeyT, KeyT] = {}
    for ratio, new, old in sorted(ratios, key=lambda one: -one[0]):
        if ratio >= ALIKE and new not in found and old not in found.values():
            found[new] = old
    return found


def _of_file(path: str, content: bytes, earlier: bytes) -> Iterator[ChangedLine]:
    """The changed lines of a file, in their order."""
    try:
        tree, old_tree = ast.parse(content), ast.parse(earlier)
    except SyntaxError:  # of the head: no run can import it; of the base: nothing to compare
        return
    module = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    lines, old_lines = (one.decode(errors="replace").splitlines() for one in (content, earlier))
    new, old = _functions(tree), _functions(old_tree)
    added, gone = (
        {name: _lines_of(one[name], text) for name in one if name not in other}
        for one, other, text in ((new, old, lines), (old, new, old_lines))
    )
    before = {name: name for name in new} | _followed(added, gone)
    top, old_top = ([*statements_of(each.body, inside=False)] for each in (tree, old_tree))
    changed = [(f"{module}:", line, removed) for line, removed in _changed(top, old_top)]
    for name, node in new.items():
        was = old.get(before[name])
        if was is not None and _lines_of(node, lines) == _lines_of(was, old_lines):
            continue
        if was is not None and _definition(node) != _definition(was):
            changed.append((f"{module}:{name[0]}", node.lineno, 0))
        statements = [*statements_of(was.body)] if was is not None else []
        found = _changed([*statements_of(node.body)], statements)
        changed += [(f"{module}:{name[0]}", line, removed) for line, removed in found]
    seen: set[int] = set()
    for function, line, removed in sorted(changed, key=lambda one: (one[1], one[2])):
        if line not in seen:
            seen.add(line)
            gone_text = old_lines[removed - 1].strip() if removed else ""
            yield ChangedLine(path, line, lines[line - 1].strip(), function, gone_text)


def _functions(tree: ast.Module) -> dict[tuple[str, int], Function]:
    """The functions of a file by their names; those with one name are numbered."""
    found: dict[tuple[str, int], Function] = {}
    numbers: Counter[str] = Counter()
    for name, node in functions_of(tree):
        found[name, numbers[name]] = node
        numbers[name] += 1
    return found


def _lines_of(node: Function, lines: Sequence[str]) -> list[str]:
    first = min(one.lineno for one in (node, *node.decorator_list))
    return [line.strip() for line in lines[first - 1 : node.end_lineno]]


def _definition(node: Function) -> list[str]:
    """The kind of a function, its decorators, its defaults, and the names of its arguments."""
    some = node.args
    values = [*node.decorator_list, *some.defaults, *filter(None, some.kw_defaults)]
    arguments = [*some.posonlyargs, *some.args, some.vararg, *some.kwonlyargs, some.kwarg]
    return [type(node).__name__, *[one.arg if one else "" for one in arguments], *map(ast.unparse, values)]


def _changed(new: Sequence[Statement], old: Sequence[Statement]) -> Iterator[tuple[int, int]]:
    """The lines of changed statements; where one was removed, its line before, else 0."""
    if not old or not new:
        yield from ((one.line, 0) for one in new if one.node is not None)
        return
    texts, old_texts = [one.text for one in new], [one.text for one in old]
    found: list[tuple[int, int]] = []
    ends: list[tuple[int, int]] = []  # if only ends of blocks are changed
    for kind, start, end, old_start, old_end in SequenceMatcher(None, texts, old_texts, autojunk=False).get_opcodes():
        if kind != "equal":
            place = new[min(start, len(new) - 1)].line
            removed = [(place, one.line) for one in old[old_start:old_end] if one.node is not None]
            found += [(one.line, 0) for one in new[start:end] if one.node is not None] or removed[:1]
            ends.append((new[max(start - (start == end), 0)].line, 0))
    yield from found or ends
