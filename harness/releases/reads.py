"""The names that an adapter reads and wraps in a release, and which of these names another release lacks.

The table is made from the adapter's sources: each name in them that the driven modules of a release define.  The
sources do not show the class of an object, so a name stands for all its definitions.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.target import install_command
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.releases.definitions import ATTRIBUTE, CLASS, Definition, Definitions
from swarden.harness.releases.unset import GETATTR, INIT, Replacement, reach_of, replacements, stand_ins
from swarden.invariants.catalog import catalog_of
from swarden.invariants.events import ALL_EVENTS

READS, WRAPS, NAMES = "reads", "wraps", "names"
BY_NAME = frozenset({"getattr", "hasattr", "methodcaller", "attrgetter", "code", "optional", "import_module"})
PATCHES = "mutants.py"  # they say themselves which releases they fit
DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+(:\w+)?")


class Use(NamedTuple):
    """A place of an adapter at which a name is read or wrapped, or named in a text."""

    how: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return " ".join(filter(None, (f"{self.file}:{self.line}", self.function)))


@dataclass(frozen=True)
class Adapter:
    """The sources of an adapter: the Python files in its folders, and in the packages in them."""

    folders: Sequence[Path]
    root: str
    places: Mapping[str, Sequence[str]]  # of each class or function that it asks for, relative to `root`
    contracts: frozenset[str] = frozenset()  # of its target

    @cached_property
    def trees(self) -> Mapping[str, ast.Module]:
        inner = [inside.parent for folder in self.folders for inside in folder.glob("*/__init__.py")]
        paths = [path for folder in (*self.folders, *inner) for path in sorted(folder.glob("*.py"))]
        sources = [path for path in paths if path.name not in (PATCHES, "__init__.py")]
        return {f"{path.parent.name}/{path.name}": ast.parse(path.read_bytes()) for path in sources}

    @cached_property
    def uses(self) -> Mapping[str, Sequence[Use]]:
        """The places at which the sources use each name, by name."""
        uses: dict[str, list[Use]] = defaultdict(list)
        for file, tree in self.trees.items():
            for name, use in _uses(tree, file, "", is_inner=False):
                uses[name].append(use)
        return uses

    @cached_property
    def replacements(self) -> Sequence[Replacement]:
        """The subclasses of parts that have an `__init__` of their own."""
        return list(replacements(self.trees, self.places))

    @cached_property
    def named(self) -> Set[str]:
        """The modules and the names in them that the sources contain as strings, relative to the root."""
        nodes = chain.from_iterable(map(ast.walk, self.trees.values()))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        return {text.removeprefix(f"{self.root}.") for text in texts if DOTTED.fullmatch(text)}

    @cached_property
    def features(self) -> Mapping[str, Set[str]]:
        """The parts by which a release is found to have a difference, by difference."""
        nodes = chain.from_iterable(map(ast.walk, self.trees.values()))
        tables = [node for node in nodes if isinstance(node, ast.Dict)]
        return {
            str(key.value): self.places.keys() & {getattr(node, "value", None) for node in ast.walk(value)}
            for key, value in chain.from_iterable(zip(table.keys, table.values, strict=True) for table in tables)
            if isinstance(key, ast.Constant) and isinstance(value, ast.Call) and _called(value) == "Feature"
        }

    def laws_of(self, uses: Iterable[Use]) -> list[str]:
        """The laws that need an event which a function with one of these uses reports."""
        functions = {(use.file, use.function) for use in uses if use.function}
        events = {
            name for name in ALL_EVENTS for use in self.uses.get(name, ()) if (use.file, use.function) in functions
        }
        laws = catalog_of(self.contracts).invariants
        return [law.name for law in laws if events & {*law.needs, *(kind.__name__ for kind in law.on)}]

    def definitions(self, folder: Path) -> Definitions:
        places = [*chain.from_iterable(self.places.values()), *self.named]
        return Definitions(folder, self.root, tuple(sorted({*places})))


def adapter_of(target: ReleasedTarget[Any]) -> Adapter:
    return Adapter(target.adapter_folders, target.load.root, target.load.places, target.contracts)


def definitions_of(target: ReleasedTarget[Any]) -> Definitions:
    """The definitions in the sources of a release, as far as the adapter drives them; nothing is imported."""
    if target.sources is None:
        raise UsageError(f"{target.process} is not installed; run: {install_command(target, target.version())}")
    return adapter_of(target).definitions(target.sources.folder.parent)


class Difference(NamedTuple):
    """A name that a release lacks or has anew."""

    kind: str
    what: str  # its former or new form
    now: Sequence[str] = ()  # the forms in its place
    uses: Sequence[Use] = ()
    laws: Sequence[str] = ()  # not applicable if the adapter cannot read it
    features: Sequence[str] = ()  # that the release then lacks

    @property
    def name(self) -> str:
        """The name without its module and its class."""
        return re.split(r"[.:]", self.what.partition("(")[0].strip())[-1]

    @property
    def place(self) -> str:
        """The module and the class of the name."""
        return self.what.partition("(")[0].strip().removesuffix(self.name).rstrip(".:")


MISSING, GONE, MOVED, SIGNATURE, UNSET, NEW = "missing", "gone", "moved", "signature", "unset", "new"
BREAKS = (MISSING, GONE, MOVED, SIGNATURE, UNSET)  # the kinds that can break an adapter
KINDS = (*BREAKS, NEW)


@dataclass(frozen=True)
class Comparison:
    """A release beside an older one that the adapter drives; `version` is that of the older one."""

    adapter: Adapter
    old: Definitions
    new: Definitions
    version: str

    @property
    def table(self) -> Mapping[str, Sequence[Use]]:
        """What the adapter reads and wraps: its uses of the names that one of the releases defines."""
        defined = {*self.old.by_name, *self.new.by_name}
        return {name: uses for name, uses in self.adapter.uses.items() if name in defined}

    @cached_property
    def differences(self) -> Sequence[Difference]:
        unset = [*self._unset()]
        names = {item.name for item in unset}
        new = [item for item in self._new() if item.name not in names]
        differences = [*self._missing(), *self._of_names(), *unset, *new]
        return sorted(differences, key=lambda item: (KINDS.index(item.kind), item.name, item.what))

    def _missing(self) -> Iterator[Difference]:
        adapter = self.adapter
        for name, places in adapter.places.items():
            if any(map(self.old.has, places)) and not any(map(self.new.has, places)):
                uses = [use for use in adapter.uses[name] if use.how == READS]
                features = [feature for feature, parts in adapter.features.items() if name in parts]
                yield Difference(MISSING, f"{name} ({', '.join(places)})", (), uses, adapter.laws_of(uses), features)
        for place in adapter.named - {*chain.from_iterable(adapter.places.values())}:
            if self.old.names(place) and not self.new.names(place):
                yield Difference(MISSING, place, (), adapter.uses[place.rpartition(".")[2]])

    def _of_names(self) -> Iterator[Difference]:
        for name, uses in {INIT: (), **self.table}.items():
            old = {definition.qualified: definition for definition in self.old.by_name.get(name, ())}
            new = {definition.qualified: definition for definition in self.new.by_name.get(name, ())}
            fresh = [str(definition) for key, definition in new.items() if key not in old]
            for key, was in old.items():
                kind, now = self._kind_of(was, new), fresh if key not in new else [new[key].form]
                if kind:
                    places = self.adapter.uses[was.owner] if name == INIT else uses
                    yield Difference(kind, str(was), now, places, self.adapter.laws_of(places))

    def _kind_of(self, was: Definition, new: Mapping[str, Definition]) -> str:
        """The kind of the difference for a name that the older release defines here; "" for none.

        `new` has the definitions of this name in the other release.
        """
        part, now = self._parts_by_class.get(was.owner or was.name), new.get(was.qualified)
        is_special = was.name.startswith("__")
        if not new and not is_special:  # a missing part has a difference of its own
            return "" if part is not None and not was.owner else GONE
        if part is None or (is_special and (was.name != INIT or was.owner not in self.adapter.uses)):
            return ""
        if now is not None:
            return SIGNATURE if now.form != was.form else ""
        kind = self._new_classes.get(part, "")
        owners = {kind, *self.new.classes.get(kind, ())}
        return MOVED if was.name != INIT and kind and not any(other.owner in owners for other in new.values()) else ""

    def _new(self) -> Iterator[Difference]:
        """New subclasses of the parts or of their bases, and new fields, members and attributes of the parts."""
        old = {definition.qualified for definition in chain.from_iterable(self.old.by_name.values())}
        parts = {*self._new_classes.values()}
        modules = {self.new.module_of(place) for place in self.new.places}
        bases = {base for part in parts for base in (part, *self.new.classes.get(part, ()))}
        by_name = self.new.by_name
        bases = {base for base in bases if modules & {definition.module for definition in by_name.get(base, ())}}
        for definition in sorted(set(chain.from_iterable(self.new.by_name.values()))):
            is_member = definition.kind == ATTRIBUTE and definition.owner in parts
            is_kind = definition.kind == CLASS and bool(bases & {*self.new.classes.get(definition.name, ())})
            if definition.qualified not in old and definition.name not in self.adapter.uses and (is_member or is_kind):
                old.add(definition.qualified)
                yield Difference(NEW, str(definition))

    def _unset(self) -> Iterator[Difference]:
        """Attributes that driven methods read of an object whose `__init__` is the adapter's, and did not before."""
        uses, seen = self.adapter.uses, set()
        roots = {name for name, places in uses.items() if any(use.how == READS for use in places)}
        replaced = stand_ins(self.adapter.trees.values())
        for replacement in self.adapter.replacements:
            stops = ({*uses} | replacement.methods) - roots | {INIT}
            classes, kind = self._old_classes, self._new_classes.get(replacement.part, "")
            old = reach_of(self.old, classes.get(replacement.part, ""), roots, stops, replaced)
            if GETATTR not in replacement.methods:  # a method that needs more than the adapter sets is not driven
                stops |= {method for name, methods in old.items() if _last(name) not in uses for method in methods}
            for name, methods in sorted(reach_of(self.new, kind, roots, stops, replaced).items()):
                place = f"{kind}.{name}"
                if name not in old and _last(name) not in uses and place not in seen:
                    seen.add(place)
                    use = Use(WRAPS, replacement.file, replacement.line, replacement.function)
                    yield Difference(UNSET, f"{place} (read by {', '.join(sorted(methods))})", (), (use,))

    @cached_property
    def _old_classes(self) -> Mapping[str, str]:
        return self._classes_in(self.old)

    @cached_property
    def _new_classes(self) -> Mapping[str, str]:
        return self._classes_in(self.new)

    def _classes_in(self, release: Definitions) -> Mapping[str, str]:
        """By part, the name of its class in a release."""
        by_part = {part: next(filter(release.has, places), "") for part, places in self.adapter.places.items()}
        return {part: place.partition(":")[2] for part, place in by_part.items() if place}

    @cached_property
    def _parts_by_class(self) -> Mapping[str, str]:
        """The part of each class of the older release: its own part, or the first whose class derives from it."""
        parts = {name: part for part, name in self._old_classes.items()}
        for part, name in self._old_classes.items():
            for base in self.old.classes.get(name, ()):
                parts.setdefault(base, part)
        return parts


def _uses(node: ast.AST, file: str, function: str, *, is_inner: bool) -> Iterator[tuple[str, Use]]:
    """The uses of names in a node; `is_inner` within a function, where a class may derive from one of the release."""
    for child in ast.iter_child_nodes(node):
        line, inner, is_within = getattr(child, "lineno", 0), function, is_inner
        match child:
            case ast.FunctionDef(name=name):
                if is_inner:
                    yield name, Use(WRAPS, file, line, function)
                inner = f"{function}.{name}".lstrip(".")
                is_within = is_inner or not isinstance(node, ast.ClassDef)
            case ast.ClassDef(name=name):
                inner = f"{function}.{name}".lstrip(".")
            case ast.Attribute(attr=name):
                yield name, Use(WRAPS if isinstance(child.ctx, ast.Store) else READS, file, line, function)
            case ast.keyword(arg=str(name)):
                yield name, Use(NAMES, file, line, function)
            case ast.Constant(value=str(text)) if not isinstance(node, ast.Expr):
                how = READS if isinstance(node, ast.Call) and _called(node) in BY_NAME else NAMES
                for part in re.split("[.:]", text):
                    if part.isidentifier():
                        yield part, Use(how, file, line, function)
        yield from _uses(child, file, inner, is_inner=is_within)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _last(name: str) -> str:
    return name.rpartition(".")[2]
