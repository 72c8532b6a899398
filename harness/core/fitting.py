"""Which patches fit the sources of an engine: the text of each hunk stands once in its function. Nothing runs."""

import ast
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from swarden.harness.core.patch import Patch

ACCESSORS = ("setter", "deleter")


def fitting(patches: Iterable[Patch], folder: Path) -> list[Patch]:
    """The patches that fit the packages in a folder, each in the functions as those before it leave them.

    A file is read once in a process.
    """
    found: list[Patch] = []
    patched: dict[str, str] = {}
    for patch in patches:
        with_patch = dict(patched)
        for hunk in patch.hunks:
            source = with_patch.get(hunk.at) or _function(hunk.at, folder)
            begins_line = hunk.before[:1].isspace()  # then it has the indentation of its first line
            if source.count(hunk.before) != 1 or (begins_line and f"\n{hunk.before}" not in f"\n{source}"):
                break
            with_patch[hunk.at] = source.replace(hunk.before, hunk.after)
        else:
            found.append(patch)
            patched = with_patch
    return found


def _function(place: str, folder: Path) -> str:
    """The source of a function "module:qualified.name"; "" if there is none."""
    module, _, name = place.partition(":")
    path = folder.joinpath(*module.split("."))
    files = [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
    return _functions_in(files[0]).get(name, "") if files else ""


@cache
def _functions_in(path: Path) -> Mapping[str, str]:
    """The sources of the functions of a file by their qualified names, with decorators and without indentation."""
    try:
        tree = ast.parse(source := path.read_text())
    except (SyntaxError, UnicodeDecodeError):  # of a checkout that cannot be imported, either
        return {}
    lines, found = source.splitlines(keepends=True), {}
    for name, node in functions_of(tree):
        if any(isinstance(one, ast.Attribute) and one.attr in ACCESSORS for one in node.decorator_list):
            continue  # a patch of a property changes its getter
        first = min(one.lineno for one in (node, *node.decorator_list))
        found[name] = textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    return found


def functions_of(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module and of its classes, those under conditions, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from functions_of(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)
