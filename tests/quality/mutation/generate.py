"""A seeded sample of the mutations that the operators of cosmic-ray can make."""

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.quality.mutation.mutation import Mutation

Definition = ast.FunctionDef | ast.ClassDef
BLOCKS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.For, ast.While, ast.If, ast.With)
RESTRICTIONS = ("strict", "frozen", "slots")  # keyword arguments that only add checks or forbid assignments


class Spot(NamedTuple):
    """One change that an operator can make: its place, and its ordinal among the operator's changes of the file."""

    path: str
    line: int
    column: int
    operator: str
    occurrence: int


def sample(root: Path, folders: Sequence[str], *, count: int, seed: int) -> list[Mutation]:
    """`count` mutations of the sources in `folders`, or all; each place is mutated once before any is mutated twice.

    Changes that no run of a healthy engine can notice (annotations, assertions, zip(strict), ...) are left out.
    """
    paths = [path.relative_to(root).as_posix() for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    sources = {path: (root / path).read_text() for path in paths}
    found: dict[str, Mutation] = {}
    for spot in _shuffled([spot for path in paths for spot in _spots(path, sources[path])], seed):
        if len(found) == count:
            break
        mutation = _mutation(spot, sources[spot.path])
        if mutation is not None:
            found.setdefault(mutation.id, mutation)
    return list(found.values())


def _spots(path: str, source: str) -> Iterator[Spot]:
    nodes = list(ast_nodes(get_ast(source)))
    for name in sorted(operator_names()):
        operator = get_operator(name)
        if operator.arguments():
            continue  # these need names of variables
        starts = [start for node in nodes for start, _ in operator().mutation_positions(node)]
        yield from (Spot(path, line, column, name, index) for index, (line, column) in enumerate(starts))


def _shuffled(spots: Sequence[Spot], seed: int) -> list[Spot]:
    """The spots in an order given by the seed: one spot of each place, then a second one of each place, and so on."""
    ranked = sorted(spots, key=lambda spot: hashlib.blake2b(f"{seed}/{spot}".encode()).digest())
    num_spots: Counter[tuple[str, int, int]] = Counter()
    rounds = []
    for spot in ranked:
        num_spots[spot[:3]] += 1
        rounds.append(num_spots[spot[:3]])
    return [spot for _, spot in sorted(zip(rounds, ranked, strict=True), key=lambda pair: pair[0])]


def _mutation(spot: Spot, source: str) -> Mutation | None:
    """The mutation of a spot; None if it does not change the behaviour, or is not valid Python."""
    changed = mutate_code(source, get_operator(spot.operator)(), spot.occurrence)
    try:
        if changed is None or _behaviour(changed) == _behaviour(source):
            return None
    except SyntaxError:
        return None
    lines = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=1, lineterm=""))
    diff = "\n".join(line for line in lines[2:] if not line.startswith("@@"))
    return Mutation(spot.path, _place(source, spot.line), spot.operator, spot.line, diff, changed)


@cache
def _behaviour(source: str) -> str:
    """The syntax of a file, without the parts that do not change how a healthy engine runs.

    Those are annotations, docstrings, assertions and loops over nothing else, positional-only and keyword-only markers,
    and RESTRICTIONS.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults += [default for default in node.kw_defaults if default is not None]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        elif isinstance(node, ast.arg | ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in RESTRICTIONS]
        if isinstance(node, BLOCKS):
            node.body = [each for each in node.body if not _has_no_effect(each)]
    return ast.dump(tree)


def _has_no_effect(node: ast.stmt) -> bool:
    if isinstance(node, ast.For):
        return not node.orelse and all(map(_has_no_effect, node.body))
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _place(source: str, line: int) -> str:
    """The qualified name of the innermost definition around a line; a decorator belongs to its definition."""
    names = []
    body: Sequence[ast.AST] = [ast.parse(source)]
    while body:
        around = [
            node
            for node in body
            for node in ast.iter_child_nodes(node)
            if isinstance(node, Definition) and _first_line(node) <= line <= (node.end_lineno or line)
        ]
        names += [node.name for node in around]
        body = around
    return ".".join(names) or "the module"


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
