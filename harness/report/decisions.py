"""The branches by which an engine leaves a request out of a step, with the values of their conditions.

A traced run follows the functions that `EngineCode.decisions` names, line by line.  A branch is a `return`, `break` or
`continue` below an `if`, and a `return` of a comparison; the numbers come from the engine's own variables, and from the
results of the calls that it has just made, so no function of the engine is called again.
"""

import ast
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from swarden.harness.core.event_log import PassedOver
from swarden.harness.core.origins import ABSENT, EngineCode, module_of, request_of, stored_field

MAX_DEPTH = 3  # calls below a decision whose results are kept
MAX_VALUES = 8  # of one condition
MAX_NAMES = 4  # of a value that is a mapping
PLANTED_IN = re.compile(r"^<.+? in (.+)>$")  # the file name of a function with a planted mutant
COMPUTED = ("min", "max", "int", "len", "float", "abs", "round", "sum", "any", "all")


class Branch(NamedTuple):
    """A statement that leaves a loop or a function, and the conditions under which it is reached."""

    conditions: Sequence[ast.expr]
    is_result: bool = False  # the statement returns the last condition, and leaves a request out if that is false

    @property
    def text(self) -> str:
        both = ast.BoolOp(ast.And(), list(self.conditions)) if len(self.conditions) > 1 else self.conditions[0]
        return ast.unparse(both)


class Source(NamedTuple):
    """The branches of a file, the expressions that it returns, and its assignments to names, by line."""

    branches: Mapping[int, Branch]
    returned: Mapping[int, ast.expr]
    assigned: Mapping[int, tuple[str, ast.expr]]


@dataclass
class Results:
    """The results of the calls that a function has made so far, by name, each with the values that gave it."""

    depth: int
    of: dict[str, tuple[object, Sequence[tuple[str, object]]]] = field(default_factory=dict)


class DecisionTracer:
    """Finds a PassedOver for each branch that a function of the engine's `decisions` takes.

    With `everywhere` all functions of the engine are followed.  A comparison that another function returns is left out,
    because most are answers to questions that decide nothing.
    """

    def __init__(self, code: EngineCode, *, everywhere: bool = False) -> None:
        self.found: list[PassedOver] = []
        self._code = code
        self._is_decision: dict[CodeType, bool] = {}
        self._is_everywhere = everywhere
        self._is_listed: dict[CodeType, bool] = {}
        self._results: dict[FrameType, Results] = {}

    @contextmanager
    def tracing(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
            self._results.clear()

    def _called(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self._is_decision:
            planted = PLANTED_IN.match(code.co_filename)
            name = planted[1].replace(":", ".") if planted else f"{module_of(frame)}.{code.co_qualname}"
            listed = any(name == decision or name.startswith(f"{decision}.") for decision in self._code.decisions)
            self._is_listed[code] = listed
            self._is_decision[code] = listed or (self._is_everywhere and self._code.has(frame))
        if self._is_decision[code]:
            self._results[frame] = Results(0)
            return self._decided
        above = self._results.get(frame.f_back) if frame.f_back is not None else None
        if above is None or above.depth == MAX_DEPTH:
            return None
        self._results[frame] = Results(above.depth + 1)
        frame.f_trace_lines = False
        return self._returned

    def _decided(self, frame: FrameType, event: str, result: object) -> Callable[..., Any]:
        source = source_of(frame.f_code.co_filename)
        branch = source.branches.get(frame.f_lineno) if event in ("line", "return") else None
        if branch is not None and branch.is_result and not self._is_listed[frame.f_code]:
            branch = None
        if branch is not None and branch.is_result == (event == "return") and not (branch.is_result and result):
            values = dict(pair for condition in reversed(branch.conditions) for pair in self._values(frame, condition))
            shown = [(name, text) for name, value in values.items() if (text := _shown(value))]
            place = self._code.place(frame, frame.f_lineno)
            self.found.append(PassedOver(request_of(frame, MAX_DEPTH), branch.text, tuple(shown[:MAX_VALUES]), place))
        return self._returned(frame, event, result) or self._decided

    def _returned(self, frame: FrameType, event: str, result: object) -> Callable[..., Any] | None:
        if event == "return":
            above = self._results.get(frame.f_back) if frame.f_back is not None else None
            if above is not None:
                returned = source_of(frame.f_code.co_filename).returned.get(frame.f_lineno)
                values = () if returned is None else tuple(self._values(frame, returned))
                if values and returned is not None and _text(returned) == values[0][0]:
                    values = values[1:]  # the result itself
                above.of[frame.f_code.co_name] = (result, values)
            del self._results[frame]
        return None if self._is_decision[frame.f_code] else self._returned

    def _values(
        self, frame: FrameType, expression: ast.expr, *, is_assigned: bool = False
    ) -> Iterator[tuple[str, object]]:
        """The variables and results in an expression, each followed by the values from which it was computed."""
        for node in _operands(expression):
            value, of = self._value(frame, node)
            if value is ABSENT or (isinstance(value, Enum) and _text(node).endswith(f".{value.name}")):
                continue
            yield _text(node), value
            yield from of
            if isinstance(node, ast.Name) and node.id in frame.f_locals and not is_assigned:
                assigned = _assigned_to(node.id, frame)
                if assigned is not None:
                    yield from self._values(frame, assigned, is_assigned=True)

    def _value(self, frame: FrameType, node: ast.expr) -> tuple[object, Sequence[tuple[str, object]]]:
        """The value of a variable, an attribute or a call, with the values that gave it; ABSENT if it is not known."""
        results = self._results[frame].of
        match node:
            case ast.Name():
                return frame.f_locals.get(node.id, frame.f_globals.get(node.id, ABSENT)), ()
            case ast.Attribute():
                holder, _ = self._value(frame, node.value)
                if node.attr in results and isinstance(getattr(type(holder), node.attr, None), property):
                    return results[node.attr]
                return stored_field(holder, node.attr), ()
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return results.get(name, (ABSENT, ()))
        return ABSENT, ()


def decision_tracer(code: EngineCode) -> DecisionTracer | None:
    """The tracer of the decisions that an engine's code names; None if it names none."""
    return DecisionTracer(code) if code.decisions else None


@cache
def source_of(filename: str) -> Source:
    """The branches, returns and assignments in the file of a function; none if the file cannot be read."""
    text = "".join(linecache.getlines(filename))
    branches: dict[int, Branch] = {}
    returned: dict[int, ast.expr] = {}
    assigned: dict[int, tuple[str, ast.expr]] = {}

    def walk(statements: Sequence[ast.stmt], above: tuple[ast.expr, ...]) -> None:
        passed: tuple[ast.expr, ...] = ()  # that an earlier branch of the block, which accepts, was not taken
        for statement in statements:
            match statement:
                case ast.If():
                    walk(statement.body, (*above[-1:], *passed, statement.test))
                    walk(statement.orelse, (*above[-1:], *passed, _negated(statement.test)))
                    if isinstance(statement.body[-1], ast.Return) and _accepts(statement.body[-1].value):
                        passed = (_negated(statement.test),)
                    continue
                case ast.Return(value=(ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not())) as value):
                    branches.update(dict.fromkeys(_lines(statement), Branch((_negated(value),), is_result=True)))
                case ast.Return(value=value) if (above or passed) and _refuses(value):
                    branches.update(dict.fromkeys(_lines(statement), Branch((*above, *passed))))
                case ast.Break() | ast.Continue() if above or passed:
                    branches[statement.lineno] = Branch((*above, *passed))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned[statement.lineno] = (name, value)
            if isinstance(statement, ast.Return) and statement.value is not None:
                returned.update(dict.fromkeys(_lines(statement), statement.value))
            is_scope = isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.For | ast.While)
            for name in ("body", "orelse", "finalbody"):
                walk(getattr(statement, name, ()), () if is_scope else above)
            for handler in getattr(statement, "handlers", ()):
                walk(handler.body, above)

    walk(ast.parse(text).body, ())
    return Source(branches, returned, assigned)


def _refuses(value: ast.expr | None) -> bool:
    """Whether a returned value may mean that a request is left out: a name, an attribute, None, False or []."""
    match value:
        case None | ast.Attribute() | ast.Name() | ast.List(elts=[]):
            return True
        case ast.Constant(value=constant) | ast.Tuple(elts=[ast.Constant(value=constant), *_]):
            return constant is None or constant is False
    return False


def _accepts(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(value=constant) | ast.Tuple(elts=[ast.Constant(value=constant), *_]):
            return constant is True
    return False


def _negated(condition: ast.expr) -> ast.expr:
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return condition.operand
    return ast.UnaryOp(ast.Not(), condition)


def _operands(expression: ast.expr) -> Iterator[ast.expr]:
    """The variables, attributes and calls of an expression, without those of a call's arguments."""
    match expression:
        case ast.Name() | ast.Attribute():
            yield expression
        case ast.NamedExpr():
            yield expression.target
        case ast.Call(func=ast.Name(id=name)) if name in COMPUTED:
            for argument in expression.args:
                yield from _operands(argument)
        case ast.Call():
            yield expression
        case ast.Constant() | ast.Lambda() | ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            return
        case _:
            for child in ast.iter_child_nodes(expression):
                if isinstance(child, ast.expr):
                    yield from _operands(child)


def _assigned_to(name: str, frame: FrameType) -> ast.expr | None:
    """The expression that was last assigned to a name, within the function of a frame and above its line."""
    assigned = source_of(frame.f_code.co_filename).assigned
    lines = range(frame.f_lineno - 1, frame.f_code.co_firstlineno, -1)
    return next((assigned[line][1] for line in lines if line in assigned and assigned[line][0] == name), None)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return f"{ast.unparse(node.func)}({'…' if node.args or node.keywords else ''})"
    return ast.unparse(node)


def _shown(value: object) -> str:
    """A value as text; "" for a value without a short text."""
    match value:
        case bool() | int() | None:
            return str(value)
        case float():
            return f"{value:g}"
        case str():
            return repr(value) if len(value) < 40 else ""
        case Enum():
            return value.name
        case Mapping() if all(isinstance(number, int | float) for number in value.values()):
            pairs = [f"{name} {number}" for name, number in list(value.items())[:MAX_NAMES]]
            return f"[{', '.join(pairs)}]"
        case list() | tuple() | set() | frozenset():
            return f"{len(value)} entries"
    return ""


def _lines(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
