"""Attributes that methods of a release read of an object that an adapter makes without the release's `__init__`.

An adapter does so with a subclass of a part that has an `__init__` of its own.  The methods are those that the adapter
reads of the part and does not replace, and those that these call on the same object.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain

from swarden.harness.releases.definitions import Definitions, Function

INIT, GETATTR = "__init__", "__getattr__"
LOOKUPS = frozenset({"code", "optional"})  # of a class by its name


@dataclass(frozen=True)
class Replacement:
    """A subclass of a part in an adapter, with an `__init__` in place of the release's; `methods` are its names."""

    part: str
    file: str
    line: int
    function: str
    methods: Set[str]


def replacements(trees: Mapping[str, ast.Module], parts: Iterable[str]) -> Iterator[Replacement]:
    """The subclasses of parts that have an `__init__` of their own."""
    for file, tree in trees.items():
        for function in [node for node in ast.walk(tree) if isinstance(node, Function)]:
            by_name: dict[str, set[str]] = {}
            for node in ast.walk(function):
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        by_name[name] = _parts_in(value, {})
            for node in ast.walk(function):
                bases, names = _subclass(node)
                if INIT in names:
                    for part in {*parts} & set(chain.from_iterable(_parts_in(base, by_name) for base in bases)):
                        yield Replacement(part, file, getattr(node, "lineno", 0), function.name, names)


def stand_ins(trees: Iterable[ast.Module]) -> set[str]:
    """The names of attributes for which an adapter makes a SimpleNamespace."""
    attributes = set()
    for node in chain.from_iterable(map(ast.walk, trees)):
        match node:
            case ast.keyword(arg=str(name), value=ast.Call(func=ast.Name(id="SimpleNamespace"))):
                attributes.add(name)
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    match key, value:
                        case ast.Constant(value=str(name)), ast.Call(func=ast.Name(id="SimpleNamespace")):
                            attributes.add(name)
    return attributes


def reach_of(
    release: Definitions, kind: str, roots: Set[str], stops: Set[str], replaced: Set[str]
) -> Mapping[str, Set[str]]:
    """The attributes that the reached methods of a class read and do not set themselves, each with these methods.

    `roots` are reached, and what they call on the same object, but for `stops`.  "a.b" is the attribute b of a, which
    is in `replaced`: the adapter has a stand-in for it.
    """
    owners = {kind, *release.classes.get(kind, ())}
    nodes = chain.from_iterable(map(ast.walk, release.modules.values()))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name in owners]
    body = [statement for node in classes for statement in node.body]
    own = {name for statement in body for name in _with_values(statement)}
    methods: dict[str, list[ast.Attribute]] = defaultdict(list)
    for statement in body:
        if isinstance(statement, Function):
            methods[statement.name] += [node for node in ast.walk(statement) if isinstance(node, ast.Attribute)]
    reached, waiting = set[str](), [*roots]
    read: dict[str, set[str]] = defaultdict(set)
    while waiting:
        name = waiting.pop()
        if name in reached or name in stops or name not in methods:
            continue
        reached.add(name)
        for node in methods[name]:
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=outer), ctx=ast.Load()):
                    if outer in replaced:
                        read[f"{outer}.{node.attr}"].add(name)
                case ast.Attribute(value=ast.Name(id="self"), attr=attribute) if attribute in methods:
                    waiting.append(attribute)
                case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Load()) if node.attr not in own:
                    read[node.attr].add(name)
    setters: dict[str, set[str]] = defaultdict(set)
    for name, node in [(name, node) for name, many in methods.items() for node in many]:
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                setters[node.attr].add(name)
    return {name: by for name, by in read.items() if not setters[name] or setters[name] - reached}


def _parts_in(node: ast.AST, by_name: Mapping[str, set[str]]) -> set[str]:
    """The parts that an expression looks up, also by a name that was assigned before."""
    parts: set[str] = set()
    for child in ast.walk(node):
        match child:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(part)), *_]) if name in LOOKUPS:
                parts.add(part)
            case ast.Name(id=name):
                parts |= by_name.get(name, set())
    return parts


def _subclass(node: ast.AST) -> tuple[list[ast.expr], Set[str]]:
    """The bases and the names of a class, or of one that is made by a call of `type`; else nothing."""
    match node:
        case ast.ClassDef():
            return node.bases, {name for statement in node.body for name in _with_values(statement)}
        case ast.Call(func=ast.Name(id="type"), args=[_, bases, ast.Dict(keys=keys)]):
            return [bases], {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return [], frozenset()


def _with_values(node: ast.stmt) -> Iterator[str]:
    """The names to which a statement in the body of a class gives a value."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            yield name
        case ast.Assign(targets=targets):
            yield from [target.id for target in targets if isinstance(target, ast.Name)]
