"""Programs from sources: a typed module, its constants set, cut to what its calls reach.

A value enters only as a literal, so no value of an op-log can become code.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from textwrap import indent
from typing import Any

from swarden.harness.core.program import Program

LONG_RUN = 4  # of successive numbers, which are printed as a range
CASE, TEST = "run", "test_finding"  # the function of a source with the calls, and that which calls it
HEADING = "# --- the case"  # above the function of the case
FORMATTER = ("ruff", "format", "--isolated", "--line-length", "120", "-")
NOT_RUN = """try:
{imports}
except ImportError as error:
    if __name__ != "__main__":
        raise
    print(f"not run: {{error}}", file=sys.stderr)
    sys.exit(2)
"""
Import = ast.Import | ast.ImportFrom
Function = ast.FunctionDef | ast.AsyncFunctionDef


def program_text(program: Program, title: str, versions: str) -> str:
    """The text of a program, formatted if ruff is installed; raises TypeError for a value that is no plain data."""
    *helpers, main = trees = [_tree(path, program.constants) for path in _paths(program.source)]
    if program.calls:
        _replace_case(main, program.calls)
    imports = [node for tree in trees for node in tree.body if isinstance(node, Import) and not _is_ours(node)]
    imported = {_name_of(alias) for node in imports for alias in node.names} - {"NamedTuple"}
    first = next((node.lineno for node in imports if not _is_own(node) and node in main.body), 0)
    own, of_helpers = _statements(main), [one for tree in helpers for one in _statements(tree) if _defined(one)]
    names = _reached([*of_helpers, *own], imported)
    own, of_helpers = ([_cut(one, names, imported) for one in part if _is_in(one, names)] for part in (own, of_helpers))
    test = max([one.lineno for one in own if TEST in _defined(one)], default=first)
    about = [f"# {line}".rstrip() for line in (versions, *(ast.get_docstring(main) or "").splitlines())]
    guarded = _imports([node for node in imports if not _is_own(node)], names)
    parts = [
        "\n".join([literal(title), "", *about]),
        _imports([node for node in imports if _is_own(node)], names | {"sys"}),
        "\n".join([_unparsed(one) for one in own if one.lineno < first]),
        guarded and NOT_RUN.format(imports=indent(guarded, "    ")),
        "\n".join([_unparsed(one) for one in own if first <= one.lineno <= test]),
        "\n".join([_unparsed(one) for one in (*of_helpers, *[one for one in own if one.lineno > test])]),
    ]
    return _formatted("\n\n".join(part for part in parts if part))


def _formatted(text: str) -> str:
    if find_spec(FORMATTER[0]) is None:
        return text
    command = [sys.executable, "-m", *FORMATTER]
    return subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=True).stdout


def _paths(path: Path) -> list[Path]:
    """A source and those of swarden that it imports, before it."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom) and _is_ours(node)]
    specs = [find_spec(_module_of(node)) for node in nodes]
    return [*dict.fromkeys(one for spec in specs for one in _paths(Path(str(spec and spec.origin)))), path]


def _tree(path: Path, constants: Mapping[str, Any]) -> ast.Module:
    """A module whose constants have their values, and whose conditions on them alone are decided."""
    text = path.read_text()
    tree: ast.Module = _Decided(constants).visit(ast.parse(text))
    tree.body = [one for node in tree.body for one in _each(node)]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for name in _defined(node) & constants.keys():
                node.value = ast.parse(literal(constants[name]), mode="eval").body
            *_, comment = text.splitlines()[(node.end_lineno or 0) - 1].partition("  # ")
            node.comment = comment  # type: ignore[union-attr]  # printed behind it
    return tree


def _each(node: ast.stmt) -> Sequence[ast.stmt]:
    """A statement at the top; for one that gives several names a literal, one for each."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return [node]
    return [ast.copy_location(ast.Assign([target], node.value), node) for target in node.targets]


class _Decided(ast.NodeTransformer):
    """Leaves the branches that are taken."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = dict(constants)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]  # a statement with a body
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        names = _named([node.test])
        if not names or not names <= self._constants.keys():
            return node
        test = compile(ast.Expression(node.test), "a condition", "eval")
        return node.body if eval(test, {}, self._constants) else node.orelse


def _statements(tree: ast.Module) -> list[ast.stmt]:
    body = tree.body[ast.get_docstring(tree) is not None :]
    return [one for one in body if not isinstance(one, Import)]


def _defined(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a source defines."""
    if isinstance(node, Function | ast.ClassDef):
        return {node.name}
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _is_in(node: ast.stmt, used: set[str]) -> bool:
    return not _defined(node) or bool(_defined(node) & used)


def _cut(node: ast.stmt, used: set[str], imported: set[str]) -> ast.stmt:
    """A statement; of a class without a base of a package, without the methods that nothing names."""
    if not isinstance(node, ast.ClassDef) or _named(node.bases) & imported:
        return node
    body = [one for one in node.body if not isinstance(one, Function) or one.name in used or one.name.startswith("__")]
    return ast.copy_location(ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list), node)


def _named(nodes: Iterable[ast.AST]) -> set[str]:
    """All names and attributes in nodes."""
    parts = [part for node in nodes for part in ast.walk(node)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def _reached(statements: Sequence[ast.stmt], imported: set[str]) -> set[str]:
    """The names that are needed: by the statements that define none, by the test, and by what these need."""
    names, before = {TEST}, set[str]()
    while names != before:
        before = names
        names = names | _named([_cut(one, names, imported) for one in statements if _is_in(one, names)])
    return names


def _unparsed(node: ast.stmt) -> str:
    text, comment = ast.unparse(ast.fix_missing_locations(node)), getattr(node, "comment", "")
    above = f"{HEADING}\n" if CASE in _defined(node) else ""
    return f"{above}{text}{comment and f'  # {comment}'}"


def _replace_case(tree: ast.Module, calls: Iterable[Mapping[str, Any]]) -> None:
    """Let the function of the case make these calls."""
    of_name = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    case: Any = of_name[CASE]
    [engine] = case.args.args
    methods = {node.name: node for node in of_name[engine.annotation.value].body if isinstance(node, ast.FunctionDef)}
    texts = [_call(engine.arg, methods[str(call["name"])], call) for call in (*calls, {"name": "finish"})]
    case.body[ast.get_docstring(case) is not None :] = ast.parse("\n".join(texts)).body


def _call(engine: str, method: ast.FunctionDef, call: Mapping[str, Any]) -> str:
    """The statement of a call, without the arguments that have the values of defaults."""
    given = {name: value for name, value in call.items() if name != "name"}
    positional = [one.arg for one in method.args.args[1:]]
    num_required = len(positional) - len(method.args.defaults)
    usual = dict(zip(positional[num_required:], map(ast.literal_eval, method.args.defaults), strict=True))
    arguments = [literal(given.pop(name)) for name in positional[:num_required]]
    more = {name: value for name, value in given.items() if name not in usual or value != usual[name]}
    arguments += [f"{name}={literal(value)}" for name, value in more.items()]
    is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(method))
    return f"{'yield from ' if is_generator else ''}{engine}.{method.name}({', '.join(arguments)})"


def _is_own(node: Import) -> bool:
    return _module_of(node).partition(".")[0] in sys.stdlib_module_names


def _is_ours(node: Import) -> bool:
    return _module_of(node).startswith("swarden.")


def _module_of(node: Import) -> str:
    return str(node.module) if isinstance(node, ast.ImportFrom) else node.names[0].name


def _name_of(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _imports(nodes: Sequence[Import], used: set[str]) -> str:
    """The statements that import the names that are used, in order; one for each module."""
    by_module: dict[tuple[bool, str], set[str]] = {}
    for node in nodes:
        texts = {ast.unparse(alias) for alias in node.names if _name_of(alias) in used}
        if texts:
            by_module.setdefault((isinstance(node, ast.ImportFrom), _module_of(node)), set()).update(texts)
    names = {module: ", ".join(sorted(texts)) for module, texts in by_module.items()}
    return "\n".join(
        f"from {module} import {text}" if is_from else f"import {text}"
        for (is_from, module), text in sorted(names.items())
    )


def literal(value: Any) -> str:
    """The Python literal of plain data; raises TypeError for other values."""
    kind = type(value)
    if kind is dict:
        return f"{{{', '.join([f'{literal(key)}: {literal(one)}' for key, one in value.items()])}}}"
    if kind is list and all(type(one) is int for one in value):
        return f"[{', '.join(_runs(value))}]"
    if kind in (list, tuple):
        text = ", ".join(map(literal, value))
        return f"[{text}]" if kind is list else f"({text}{',' * (len(value) == 1)})"
    if (value is not None and kind not in (str, int, float, bool)) or value != value:
        raise TypeError(f"{kind.__name__}: no plain data, so it has no literal")
    return repr(value)


def _runs(numbers: list[int]) -> list[str]:
    """Numbers as elements of a list literal, runs of them as ranges: "*range(1000, 1016)", "*[*range(9)] * 2", "7"."""
    texts = list[str]()
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        is_long = len(members) >= LONG_RUN
        texts += [f"*range({members[0]}, {members[-1] + 1})"] if is_long else map(str, members)
    same = [list(equal) for _, equal in groupby(texts)]
    return [one for run in same for one in (run if len(run) < LONG_RUN else [f"*[{run[0]}] * {len(run)}"])]
