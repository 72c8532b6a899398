"""Programs from sources: a typed module, its constants set, cut to what its calls reach.

A value enters only as a literal, so no value of an op-log can become code.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from textwrap import fill, indent
from typing import Any

from swarden.harness.core.program import Program

WIDTH = 120
LONG_RUN = 4  # of successive numbers, which are printed as a range
CASE, TEST = "run", "test_finding"  # the function of a source with the calls, and that which calls it
NOT_RUN = """try:
{imports}
except ImportError as error:
    if __name__ != "__main__":
        raise
    print(f"not run: {{error}}", file=sys.stderr)
    sys.exit(2)
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def program_text(program: Program, title: str, versions: str) -> str:
    """The text of a program; raises TypeError for a value that is no plain data."""
    *helpers, main = [_Source(path, program.constants) for path in _paths(program.source)]
    if program.calls:
        main.replace_case(program.calls)
    of_helpers = [one for source in helpers for one in source.statements if one.names]
    names = _reached([*of_helpers, *main.statements])
    own, of_helpers = ([one for one in part if one.is_in(names)] for part in (main.statements, of_helpers))
    begin = len([one for one in own if one.node.lineno < main.begin])
    case = max([place for place, one in enumerate(own, 1) if TEST in one.names], default=begin)
    imports = [node for source in (*helpers, main) for node in source.imports]
    about = [f"# {line}".rstrip() for line in (versions, *main.docstring.splitlines())]
    guarded = "\n".join(_imports(imports, names, is_own=False))
    parts = [
        "\n".join([literal(title), "", *about]),
        "\n".join(_imports(imports, names | {"sys"}, is_own=True)),
        _joined(own[:begin], names),
        guarded and NOT_RUN.format(imports=indent(guarded, "    ")),
        _joined([*own[begin:case], *of_helpers, *own[case:]], names),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _paths(path: Path) -> list[Path]:
    """A source and those of swarden that it imports, before it."""
    nodes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom) and _is_ours(node)]
    specs = [find_spec(_module_of(node)) for node in nodes]
    return [*dict.fromkeys(one for spec in specs for one in _paths(Path(str(spec and spec.origin)))), path]


@dataclass(eq=False)
class _Statement:
    """A statement at the top of a source, with the comment above it."""

    node: ast.stmt
    lines: Sequence[str]  # those of its source
    imported: set[str]  # names of other packages and of this Python

    @cached_property
    def names(self) -> set[str]:
        """The names that it defines."""
        targets = [self.node.target] if isinstance(self.node, ast.AnnAssign) else getattr(self.node, "targets", [])
        named = {self.node.name} if isinstance(self.node, Definition) else set()
        return named | {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}

    @cached_property
    def methods(self) -> Mapping[str, Function]:
        """The methods that are left out if nothing names them."""
        if not isinstance(self.node, ast.ClassDef) or _named(self.node.bases) & self.imported:
            return {}
        return {one.name: one for one in self.node.body if isinstance(one, Function) and not one.name.startswith("__")}

    def is_in(self, used: set[str]) -> bool:
        return not self.names or bool(self.names & used)

    def uses(self, used: set[str]) -> set[str]:
        """The names in it, without the methods that are left out."""
        left_out = [node for name, node in self.methods.items() if name not in used]
        return _named([self.node], left_out)

    def text(self, used: set[str]) -> str:
        left_out = [node for name, node in self.methods.items() if name not in used]
        gone = {number for node in left_out for number in range(_first_line(node), (node.end_lineno or 0) + 1)}
        numbers = range(_first_line(self.node), (self.node.end_lineno or 0) + 1)
        text = "\n".join(self.lines[number - 1] for number in numbers if number not in gone)
        while "\n\n\n" in text:
            text = text.replace("\n\n\n", "\n\n")
        start = numbers[0] - 1
        while start and self.lines[start - 1].startswith("#"):
            start -= 1
        return "\n".join([*self.lines[start : numbers[0] - 1], text.rstrip()])


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *[one.lineno for one in decorators]])


def _named(nodes: Iterable[ast.AST], left_out: Sequence[ast.AST] = ()) -> set[str]:
    """All names and attributes in nodes, but for those that are left out."""
    names, queue = set[str](), [*nodes]
    while queue:
        node = queue.pop()
        if node in left_out:
            continue
        names |= {node.id} if isinstance(node, ast.Name) else set()
        names |= {node.attr} if isinstance(node, ast.Attribute) else set()
        queue += ast.iter_child_nodes(node)
    return names


def _reached(statements: Sequence[_Statement]) -> set[str]:
    """The names that are needed: by the statements that define none, by the test, and by what these need."""
    names, before = {TEST}, set[str]()
    while names != before:
        before = names
        names = names.union(*[one.uses(names) for one in statements if one.is_in(names)])
    return names


def _joined(statements: Sequence[_Statement], used: set[str]) -> str:
    """Their texts, with two empty lines around definitions."""
    text = ""
    for before, one in zip([None, *statements], statements, strict=False):
        is_apart = any(isinstance(two.node, (*Definition, ast.If)) for two in (before, one) if two is not None)
        text += ("\n\n\n" if is_apart else "\n") * (before is not None) + one.text(used)
    return text


@dataclass(eq=False)
class _Source:
    """A module whose constants have their values, and whose conditions on them alone are decided."""

    path: Path
    constants: Mapping[str, Any]
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        folded: list[str | None] = [*self.path.read_text().splitlines()]
        for node in ast.walk(ast.parse(self.path.read_text())):
            if isinstance(node, ast.If) and node.lineno and folded[node.lineno - 1] is not None:
                self._fold(node, folded)
        self.lines = [line for line in folded if line is not None]
        for node in reversed(self.tree.body):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for name in _named(node.targets if isinstance(node, ast.Assign) else [node.target]):
                    self._set(name, node.value)
        del self.tree

    def _fold(self, node: ast.If, lines: list[str | None]) -> None:
        """Leave the branch that is taken."""
        names, is_later = _named([node.test]), str(lines[node.lineno - 1]).lstrip().startswith("elif ")
        if not names or not names <= self.constants.keys() or is_later:
            return
        test = compile(ast.Expression(node.test), str(self.path), "eval")
        taken = node.body if eval(test, {}, dict(self.constants)) else node.orelse
        is_elif = bool(taken) and taken[0].col_offset == node.col_offset
        kept = range(taken[0].lineno, (taken[-1].end_lineno or 0) + 1) if taken else ()
        for number in range(node.lineno, (node.end_lineno or 0) + 1):
            line = lines[number - 1]
            if number not in kept:
                lines[number - 1] = None
            elif line is not None and not is_elif:
                lines[number - 1] = line.removeprefix("    ")
        if is_elif:
            lines[taken[0].lineno - 1] = str(lines[taken[0].lineno - 1]).replace("elif ", "if ", 1)

    def _set(self, name: str, value: ast.expr) -> None:
        if name in self.constants:
            before = self.lines[value.lineno - 1][: value.col_offset]
            behind = self.lines[(value.end_lineno or 0) - 1][value.end_col_offset :]
            text = before + literal(self.constants[name]) + behind
            self.lines[value.lineno - 1 : value.end_lineno] = text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse("\n".join(self.lines))

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        return [node for node in self.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    @property
    def begin(self) -> int:
        """The line of the first import of another package; what is above it is done before."""
        lines = [node.lineno for node in self.imports if not _is_own(node) and not _is_ours(node)]
        return min(lines, default=0)

    @cached_property
    def statements(self) -> list[_Statement]:
        imported = {alias.asname or alias.name for node in self.imports if not _is_ours(node) for alias in node.names}
        body = [one for one in self.tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
        return [_Statement(node, self.lines, imported - {"NamedTuple"}) for node in body[bool(self.docstring) :]]

    def replace_case(self, calls: Iterable[Mapping[str, Any]]) -> None:
        """Let the function of the case make these calls."""
        [case] = [node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == CASE]
        engine = case.args.args[0]
        [kind] = [node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == _text(engine)]
        methods = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}
        texts = [_call(engine.arg, methods[str(call["name"])], call) for call in (*calls, {"name": "finish"})]
        first = case.body[ast.get_docstring(case) is not None].lineno
        self.lines[first - 1 : case.end_lineno] = indent("\n".join(texts), "    ").splitlines()
        del self.tree


def _text(argument: ast.arg) -> object:
    return argument.annotation.value if isinstance(argument.annotation, ast.Constant) else None


def _call(engine: str, method: ast.FunctionDef, call: Mapping[str, Any]) -> str:
    """The statement of a call, without the arguments that have the values of defaults."""
    given = {name: value for name, value in call.items() if name != "name"}
    positional = method.args.args[1:]
    required = positional[: len(positional) - len(method.args.defaults)]
    defaults = zip(positional[len(required) :], method.args.defaults, strict=True)
    usual = {one.arg: ast.literal_eval(value) for one, value in defaults}
    arguments = [literal(given.pop(one.arg)) for one in required]
    more = {name: value for name, value in given.items() if name not in usual or value != usual[name]}
    arguments += [f"{name}={literal(value)}" for name, value in more.items()]
    is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(method))
    start = f"{'yield from ' if is_generator else ''}{engine}.{method.name}("
    whole = f"{start}{', '.join(arguments)})"
    if len(whole) <= WIDTH - 4 and "\n" not in whole:
        return whole
    lines = "\n".join(f"{argument}," for argument in arguments)
    return f"{start}\n{indent(lines, '    ')}\n)"


def _is_own(node: ast.Import | ast.ImportFrom) -> bool:
    return _module_of(node).partition(".")[0] in sys.stdlib_module_names


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    return _module_of(node).startswith("swarden.")


def _module_of(node: ast.Import | ast.ImportFrom) -> str:
    return str(node.module) if isinstance(node, ast.ImportFrom) else node.names[0].name


def _imports(nodes: Sequence[ast.Import | ast.ImportFrom], used: set[str], *, is_own: bool) -> Iterator[str]:
    """The statements that import the names that are used, in order: of this Python, or of other packages."""
    modules, names = set[str](), defaultdict[str, set[str]](set)
    for node in nodes:
        if _is_own(node) == is_own and not _is_ours(node):
            texts = {
                ast.unparse(alias) for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in used
            }
            if isinstance(node, ast.Import):
                modules |= texts
            else:
                names[_module_of(node)] |= texts
    yield from (f"import {name}" for name in sorted(modules))
    for module, of_module in sorted(names.items()):
        text = f"from {module} import {', '.join(sorted(of_module))}"
        wrapped = f"from {module} import (\n{''.join(f'    {name},' + chr(10) for name in sorted(of_module))})"
        if of_module:
            yield text if len(text) <= WIDTH - 4 else wrapped


def literal(value: Any, width: int = WIDTH - 40) -> str:
    """The Python literal of plain data, on as many lines as it needs."""
    _check(value)
    if isinstance(value, str):
        text = repr(value)
        return text if set(text[1:-1]) & set("\"'\\") else f'"{text[1:-1]}"'
    if not isinstance(value, list | tuple | dict):
        return repr(value)
    if isinstance(value, dict):
        elements = [f"{literal(key)}: {literal(one, width - 4)}" for key, one in value.items()]
    elif isinstance(value, list) and all(type(one) is int for one in value):
        elements = _runs(value)
    else:
        elements = [literal(one, width - 4) for one in value]
    opening, closing = {dict: ("{", "}"), list: ("[", "]"), tuple: ("(", ")")}[type(value)]
    text = ", ".join(elements)
    if len(text) > width or "\n" in text:
        parts = value.values() if isinstance(value, dict) else value
        is_flat = len(value) > LONG_RUN and not any(isinstance(one, list | tuple | dict) for one in parts)
        filled = fill(f"{text},".replace(": ", ":\0"), WIDTH - 4).replace(":\0", ": ")
        lines = filled if is_flat else "\n".join(f"{element}," for element in elements)
        return f"{opening}\n{indent(lines, '    ')}\n{closing}"
    return f"{opening}{text}{',' * (type(value) is tuple and len(value) == 1)}{closing}"


def _runs(numbers: list[int]) -> list[str]:
    """Numbers as elements of a list literal, runs of them as ranges: "*range(1000, 1016)", "7"."""
    texts = list[str]()
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        is_long = len(members) >= LONG_RUN
        texts += [f"*range({members[0]}, {members[-1] + 1})"] if is_long else map(str, members)
    return texts


def _check(value: Any) -> None:
    if type(value) in (list, tuple, dict):
        for part in value:
            _check(part)
        for part in value.values() if type(value) is dict else ():
            _check(part)
    elif (value is not None and type(value) not in (str, int, float, bool)) or value != value:
        raise TypeError(f"{type(value).__name__}: no plain data, so it has no literal")
