"""Programs from sources: a typed module, cut to what its calls reach, with values that enter only as literals."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any

from swarden.harness.core.program import Program, arguments, literal

TEST = "test_finding"  # the function of a source that makes the engine, makes the calls, and judges the end
MADE = "made"  # the function that returns objects of the release
HEADING = "# --- the case\n"
FORMATTERS = (("check", "--select", "I", "--fix", "--quiet"), ("format",))  # of ruff
EXIT_CODES = "Exit code 1 with the bug, 0 without it, 2 for all else."
NOT_RUN = """try:
{imports}
except ImportError as error:
    print(f"not run: {{error}}", file=sys.stderr)
    sys.exit(2)
"""
Import = ast.Import | ast.ImportFrom
Function = ast.FunctionDef | ast.AsyncFunctionDef


def program_text(program: Program, title: str, versions: str, *, is_test: bool = False) -> str:
    """The text of a program, formatted if ruff is installed; raises TypeError for a value that is no plain data.

    A test is for the suite of the engine: it fails, and has no exit codes.
    """
    trees = [_tree(path, {**program.constants, "IS_TEST": is_test}) for path in _paths(program.source)]
    imports = [node for tree in trees for node in tree.body if isinstance(node, Import) and not _is_ours(node)]
    *helpers, main = [[node for node in tree.body[1:] if not isinstance(node, Import)] for tree in trees]
    place = next((number for number, node in enumerate(main, 1) if _is_case(node)), 0)
    if program.calls:
        _replace_case(main[place - 1], program.calls)
    if program.made:
        lines = ast.parse(program.made).body
        imports += [line for line in lines if isinstance(line, Import)]
        _function(main, MADE).body = [line for line in lines if not isinstance(line, Import)]
    imported = {_name_of(alias) for node in imports for alias in node.names} - {"NamedTuple"}
    needed = _needed([*main[:place], *[node for helper in helpers for node in helper], *main[place:]], imported)
    used = _named(needed) if is_test else _named(needed) | {"sys"}  # of NOT_RUN
    standard, packages = (_imports(imports, used, of_python=of_python) for of_python in (True, False))
    if packages and not is_test:
        packages = NOT_RUN.format(imports=indent(packages, "    "))
    about = [*([versions] if is_test else [versions, EXIT_CODES]), *(ast.get_docstring(trees[-1]) or "").splitlines()]
    head = "\n".join([literal(title), "", *[f"# {line}".rstrip() for line in about]])
    return _formatted("\n\n".join([head, standard, packages, "\n".join(map(_unparsed, needed))]))


def _formatted(text: str) -> str:
    for words in FORMATTERS if find_spec("ruff") is not None else ():
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "120", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=True)
        text = done.stdout
    return text


def _paths(path: Path) -> list[Path]:
    """The files of a program: the modules of swarden that a source imports, then the source."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom) and _is_ours(node)]
    specs = [find_spec(_module_of(node)) for node in nodes]
    return [*dict.fromkeys(path for spec in specs for path in _paths(Path(str(spec and spec.origin)))), path]


def _tree(path: Path, constants: Mapping[str, Any]) -> ast.Module:
    """A module whose constants have their values, and whose conditions on them alone are decided."""
    text = path.read_text()
    tree: ast.Module = _Decided(constants).visit(ast.parse(text))
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for name in _defined(node) & constants.keys():
                node.value = ast.parse(literal(constants[name]), mode="eval").body
            *_, comment = text.splitlines()[(node.end_lineno or 0) - 1].partition("  # ")
            node.comment = comment  # type: ignore[union-attr]  # printed behind it
    return tree


class _Decided(ast.NodeTransformer):
    """Leaves the branches that are taken, up to the first return."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = dict(constants)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(body := getattr(node, "body", None), list):
            end = next((place for place, child in enumerate(body, start=1) if isinstance(child, ast.Return)), None)
            node.body = body[:end] or [ast.Pass()]  # type: ignore[attr-defined]  # a statement with a body
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        variables = _named([node.test])
        if not variables or not variables <= self._constants.keys():
            return node
        test = compile(ast.Expression(node.test), "a condition", "eval")
        return node.body if eval(test, {}, self._constants) else node.orelse


def _defined(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a source defines."""
    if isinstance(node, Function | ast.ClassDef):
        return {node.name}
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _named(nodes: Iterable[ast.AST]) -> set[str]:
    """All names and attributes in nodes."""
    parts = [part for node in nodes for part in ast.walk(node)]
    variables = {part.id for part in parts if isinstance(part, ast.Name)}
    return variables | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def _needed(statements: Sequence[ast.stmt], imported: set[str]) -> list[ast.stmt]:
    """The case, the statements that define no name, and what these need."""
    names = {name for node in statements if _is_case(node) for name in _defined(node)}
    while True:
        needed = [_cut(node, names, imported) for node in statements if not _defined(node) or _defined(node) & names]
        more = names | _named(needed)
        if more == names:
            return needed
        names = more


def _cut(node: ast.stmt, names: set[str], imported: set[str]) -> ast.stmt:
    """A statement; a class loses its unused methods, unless a base class is of a package, which may call them."""
    if not isinstance(node, ast.ClassDef) or _named(node.bases) & imported:
        return node
    body = [part for part in node.body if not isinstance(part, Function) or part.name in names or part.name[:2] == "__"]
    return ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)


def _is_case(node: ast.stmt) -> bool:
    return TEST in {getattr(statement, "name", "") for statement in (node, *getattr(node, "body", ()))}


def _unparsed(node: ast.stmt) -> str:
    text, comment = ast.unparse(ast.fix_missing_locations(node)), getattr(node, "comment", "")
    return f"{HEADING if _is_case(node) else ''}{text}{comment and f'  # {comment}'}"


def _replace_case(node: ast.stmt, calls: Iterable[Mapping[str, Any]]) -> None:
    """Make these calls between the first statement, which makes the engine, and the last, which judges the end."""
    test: Any = _function([node], TEST)
    [engine] = test.body[0].targets
    test.body[1:-1] = ast.parse("\n".join([f"{engine.id}.{_call(**call)}" for call in calls])).body


def _function(nodes: Iterable[ast.AST], name: str) -> Function:
    return next(node for node in nodes for node in ast.walk(node) if isinstance(node, Function) and node.name == name)


def _call(name: str, args: Sequence[Any] = (), **more: Any) -> str:
    return f"{name}({arguments(args, more)})"


def _is_ours(node: Import) -> bool:
    return _module_of(node).startswith("swarden.")


def _module_of(node: Import) -> str:
    return str(node.module) if isinstance(node, ast.ImportFrom) else node.names[0].name


def _name_of(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _imports(nodes: Sequence[Import], names: set[str], *, of_python: bool) -> str:
    """The imports of the standard library, or of packages, with the names that are used."""
    lines = list[str]()
    for node in nodes:
        is_used = [alias for alias in node.names if _name_of(alias) in names]
        if is_used and (_module_of(node).partition(".")[0] in sys.stdlib_module_names) is of_python:
            node.names = is_used
            lines.append(ast.unparse(node))
    return "\n".join(lines)
