"""The definitions in the sources of a release, read without an import: modules, classes, functions, and attributes."""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.errors import UsageError

CLASS, FUNCTION = "class", "function"
ATTRIBUTE = "attribute"  # of a class, or that a method sets on its object; also the member of an enumeration
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """A name that a module or a class defines; `form` is the signature of a function, the bases of a class."""

    module: str
    qualified: str
    kind: str
    form: str
    line: int

    @property
    def owner(self) -> str:
        return self.qualified.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.qualified.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.module}:{self.qualified}{self.form if self.kind != ATTRIBUTE else ''}"


@dataclass(frozen=True)
class Definitions:
    """The driven modules of a release: the modules of `places`, and what these import from their own packages.

    A place is a module, or "module:attribute", relative to `root`, which is a package in `folder`; names of other
    things are passed over.
    """

    folder: Path
    root: str
    places: Sequence[str]

    @cached_property
    def modules(self) -> Mapping[str, ast.Module]:
        """The driven modules, by their names relative to the root."""
        named = {self.module_of(place) for place in self.places}
        packages = {self._package_of(name) for name in named} - {""}
        trees = {name: tree for name in named if (tree := self._parsed(name)) is not None}
        imported = {inner for name, tree in trees.items() for inner in self._imported(name, tree)} - {*trees}
        for name in imported:
            if self._package_of(name) in packages and (tree := self._parsed(name)) is not None:
                trees[name] = tree
        return dict(sorted(trees.items()))

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[Definition]]:
        definitions: dict[str, list[Definition]] = defaultdict(list)
        for module, tree in self.modules.items():
            for node in defined(module, tree.body):
                definitions[node.name].append(node)
        return definitions

    @cached_property
    def classes(self) -> Mapping[str, Sequence[str]]:
        """The names of the bases of each class, the direct and the indirect ones, by the name of the class."""
        bases: dict[str, set[str]] = defaultdict(set)
        for definition in chain.from_iterable(self.by_name.values()):
            if definition.kind == CLASS:
                named = re.split(r"[(), ]+|\[.*?\]", definition.form)
                bases[definition.name] |= {base.rpartition(".")[2] for base in named} - {""}
        return {name: sorted(_closure(name, bases) - {name}) for name in bases}

    @cached_property
    def defaults(self) -> Mapping[str, Mapping[str, object]]:
        """The fields whose default is a literal, each with its default, by class."""
        defaults: dict[str, dict[str, object]] = defaultdict(dict)
        nodes = chain.from_iterable(map(ast.walk, self.modules.values()))
        for kind in [node for node in nodes if isinstance(node, ast.ClassDef)]:
            for node in kind.body:
                match node:
                    case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                        with suppress(ValueError):
                            defaults[kind.name][name] = ast.literal_eval(value)
        return defaults

    @cached_property
    def digest(self) -> str:
        """The hash of the driven modules, without their comments and layout."""
        text = "\n".join(f"{name} {ast.dump(tree)}" for name, tree in self.modules.items())
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def has(self, place: str) -> bool:
        """Whether this place exists; also true for a name that a module imports from elsewhere or makes at run time."""
        module, _, attribute = place.partition(":")
        tree = self._parsed(module)
        is_module = self._path(f"{module}.{attribute}") is not None
        return tree is not None and (not attribute or is_module or attribute in _bound(tree))

    def names(self, text: str) -> bool:
        """Whether a dotted name is a module, or a name in a module or in a class of a module."""
        if ":" in text or self._path(text) is not None:
            return self.has(text)
        owner = text.rpartition(".")[0]
        module = owner if self._path(owner) is not None else owner.rpartition(".")[0]
        qualified = text.removeprefix(f"{module}.")
        tree = self._parsed(module) if module else None
        return tree is not None and any(node.qualified == qualified for node in defined(module, tree.body))

    def module_of(self, place: str) -> str:
        """The module of a place, or of a dotted name in a module; else the name itself."""
        module = place.partition(":")[0]
        outer = [module.rsplit(".", count)[0] for count in range(3)]
        return next((name for name in outer if self._path(name) is not None), module)

    def _path(self, module: str) -> Path | None:
        base = self.folder.joinpath(*self.root.split("."), *filter(None, module.split(".")))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    def _package_of(self, module: str) -> str:
        path = self._path(module)
        return module if path is not None and path.name == "__init__.py" else module.rpartition(".")[0]

    def _parsed(self, module: str) -> ast.Module | None:
        path = self._path(module)
        try:
            return None if path is None else _parsed(path)
        except SyntaxError as error:
            raise UsageError(f"{path}: line {error.lineno}: {error.msg}; is it of another Python?") from error

    def _imported(self, module: str, tree: ast.Module) -> Iterator[str]:
        here = f"{self.root}.{self._package_of(module)}".rstrip(".").split(".")
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            start = here[: len(here) - node.level + 1] if node.level else []
            full = ".".join([*start, *filter(None, [node.module])])
            for name in (full, *(f"{full}.{alias.name}" for alias in node.names)):
                if name.startswith(f"{self.root}."):
                    yield name.removeprefix(f"{self.root}.")


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def _bound(tree: ast.Module) -> frozenset[str]:
    """The names that a module binds, also by imports, and names in its strings, as in __all__ or for lazy imports."""
    names = {definition.name for definition in defined("", tree.body) if not definition.owner}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return frozenset(names)


def defined(module: str, body: Iterable[ast.stmt], owner: str = "") -> Iterator[Definition]:
    """The definitions in these statements; `owner` is the class around them, with a dot behind it."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(map(ast.unparse, node.bases))
            yield Definition(module, f"{owner}{node.name}", CLASS, f"({bases})" if bases else "", node.lineno)
            yield from defined(module, node.body, f"{owner}{node.name}.")
        elif isinstance(node, Function):
            yield Definition(module, f"{owner}{node.name}", FUNCTION, _signature(node), node.lineno)
            if owner:
                yield from _set_on_self(module, node, owner)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield Definition(module, f"{owner}{target.id}", ATTRIBUTE, "", node.lineno)
        else:
            yield from defined(module, _within(node), owner)


def _within(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements in the blocks of a compound statement, such as `if`, `try`, `with`, `for` and `match`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from child.body


def _set_on_self(module: str, function: Function, owner: str) -> Iterator[Definition]:
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                yield Definition(module, f"{owner}{node.attr}", ATTRIBUTE, "", node.lineno)


def _signature(function: Function) -> str:
    arguments = deepcopy(function.args)
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    return f"({ast.unparse(arguments)})"


def _closure(name: str, bases: Mapping[str, Iterable[str]]) -> set[str]:
    closure, waiting = set(), [name]
    while waiting:
        if (current := waiting.pop()) not in closure:
            closure.add(current)
            waiting += bases.get(current, ())
    return closure
