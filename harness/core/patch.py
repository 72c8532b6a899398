"""A patch: replacements in the source of functions, which are planted into the running code and removed again.

A mutant plants a bug, a fix removes the known bug of a release.  Patches of one function can be planted one after the
other: each replaces text in the result of the patches before it.  A patch fits the sources of an engine if the text of
each hunk stands once in its function, and their package has the names that it brings in; to learn that runs nothing.
"""

import __future__

import ast
import builtins
import dis
import inspect
import linecache
import re
import symtable
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.invariants.invariant import Invariant

PLANTED = "__swarden_planted__"  # the attribute of a function with its planted changes
ACCESSORS = ("setter", "deleter")


class StalePatch(UsageError):
    """A hunk does not fit the code; the message names the patch, the function and the text."""


class Hunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replacement in the source of a function, `at` "module:qualified.name": `before` occurs once."""

    at: str
    before: str
    after: str


class Change(NamedTuple):
    """A planted change of one function: the patch, the new source, and the code that it replaces."""

    patch: str
    source: str
    replaced: CodeType


class Sources(NamedTuple):
    """The source of a function before and after a patch."""

    before: str
    after: str


@dataclass(frozen=True)
class Patch:
    """Hunks that are planted together; tracebacks of the changed functions show the `name`."""

    name: str
    hunks: tuple[Hunk, ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Run the body with the patch planted; raises StalePatch before any change.

        Planting a planted patch again has no effect.  Patches are removed in the reverse order.
        """
        missing = {function: place for function, place in self.functions().items() if not self._is_in(function)}
        changed = {function: self._changed(function, place) for function, place in missing.items()}
        with ExitStack() as stack:
            for function, (source, code) in changed.items():
                _plant(function, Change(self.name, source, function.__code__), code)
                stack.callback(_take_out, function)
            yield

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Run the body without the patch, within `planted`; it must be the last one planted."""
        with ExitStack() as stack:
            for function in self.functions():
                last, code = _changes(function)[-1], function.__code__
                assert last.patch == self.name, f"{last.patch} is planted over {self.name}"
                _take_out(function)
                stack.callback(_plant, function, last, code)
            yield

    @property
    def is_planted(self) -> bool:
        """Whether the patch is planted in this process now."""
        return all(map(self._is_in, self.functions()))

    @property
    def places(self) -> tuple[str, ...]:
        """The distinct names of the functions that are changed."""
        return tuple(dict.fromkeys(hunk.at for hunk in self.hunks))

    def functions(self) -> dict[FunctionType, str]:
        """The functions that are changed, each with its first name: a class and its base can name the same function."""
        return {self._function(place): place for place in reversed(self.places)}

    def _is_in(self, function: FunctionType) -> bool:
        return self.name in [change.patch for change in _changes(function)]

    def _function(self, place: str) -> FunctionType:
        try:
            return _function(place)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise StalePatch(f"{self.name}: {place} is not a function whose code can be changed: {error}") from error

    def sources(self, function: FunctionType, place: str) -> Sources:
        """The source of a function as it runs now, and with this patch; raises StalePatch if the patch does not fit."""
        changes = _changes(function)
        try:
            source = before = changes[-1].source if changes else _source(function)
        except OSError as error:
            raise StalePatch(f"{self.name}: {place} is not a function whose code can be changed: {error}") from error
        for hunk in self.hunks:
            if self._function(hunk.at) is function:
                if (times := source.count(hunk.before)) != 1:
                    raise StalePatch(f"{self.name}: {place} has {_shown(hunk.before)} {times} times; want it once")
                source = source.replace(hunk.before, hunk.after)
        return Sources(before, source)

    def _changed(self, function: FunctionType, place: str) -> tuple[str, CodeType]:
        """The source and the code of a function with this patch."""
        changes, (before, source) = _changes(function), self.sources(function, place)
        names = ", ".join([*(change.patch for change in changes), self.name])
        original = changes[0].replaced if changes else function.__code__
        try:
            code = _compiled(source, f"<{names} in {place}>", original)
        except SyntaxError as error:
            text = f"{self.name}: {place} with the change is not valid Python: {error.msg}: {error.text}"
            raise StalePatch(text) from error
        if code.co_freevars != original.co_freevars:
            change = f"from {_listed(original.co_freevars)} to {_listed(code.co_freevars)}"
            text = f"the names of outer scopes {change} (super() reads __class__); use the names that it has"
            raise StalePatch(f"{self.name}: {place} with the change changes {text}")
        if _of_definition(source) != _of_definition(before):
            text = "changes a default or a decorator, which has no effect on a defined function; change its body"
            raise StalePatch(f"{self.name}: {place} with the change {text}")
        return source, code


def _plant(function: FunctionType, change: Change, code: CodeType) -> None:
    function.__code__ = code
    _changes(function).append(change)


def _take_out(function: FunctionType) -> None:
    function.__code__ = _changes(function).pop().replaced


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


@cache
def _of_definition(source: str) -> list[str]:
    """The expressions that Python evaluates as it defines the function of this source: defaults and decorators."""
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef), f"{source} is not a def"
    arguments = definition.args
    evaluated = [*arguments.defaults, *filter(None, arguments.kw_defaults), *definition.decorator_list]
    return [ast.dump(node) for node in evaluated]


@cache
def _source(function: FunctionType) -> str:
    return textwrap.dedent(inspect.getsource(function))


@cache
def _compiled(source: str, file_name: str, original: CodeType) -> CodeType:
    """The code of a function with this source; a traceback has the lines of the function's file."""
    lines = ["\n"] * (original.co_firstlineno - 1) + source.splitlines(keepends=True)
    linecache.cache[file_name] = (len(source), None, lines, file_name)  # for tracebacks and stories
    return code_of(ast.parse(source, file_name), file_name, original)


def code_of(tree: ast.Module, file_name: str, original: CodeType) -> CodeType:
    """The code of the one function of a tree, in the classes and at the line of the original code.

    The classes give the code its qualified name, the meaning of `super()` and that of private names.
    """
    ast.increment_lineno(tree, original.co_firstlineno - 1)
    [definition] = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef), f"{file_name} is not a def"
    definition.decorator_list = []
    *classes, name = original.co_qualname.split(".")
    body: ast.stmt = definition
    for outer in reversed(classes):
        body = ast.ClassDef(outer, [], [], [body], [])
    tree.body = [ast.fix_missing_locations(body)]
    future = original.co_flags & __future__.annotations.compiler_flag
    code: CodeType = compile(tree, file_name, "exec", flags=future, dont_inherit=True)
    for inner in (*classes, name):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == inner)
    return code


def _shown(text: str) -> str:
    """A hunk's text on one line: its first line, and the number of further lines."""
    first, *more = text.strip().splitlines() or [""]
    return repr(first) + (f" and {len(more)} more line{'s' * (len(more) > 1)}" if more else "")


def _changes(function: FunctionType) -> list[Change]:
    """The changes that are planted in a function, the first one first."""
    changes: list[Change] = function.__dict__.setdefault(PLANTED, [])
    return changes


@cache
def _function(place: str) -> FunctionType:
    module_name, _, qualified_name = place.partition(":")
    value: object = import_module(module_name)
    for name in qualified_name.split("."):
        value = inspect.getattr_static(value, name)
    return _unwrap(value)


def _unwrap(value: object) -> FunctionType:
    """The plain function behind a property, a classmethod, a staticmethod, an invariant or decorators."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, Invariant):
        value = value.find
    if callable(value):
        value = inspect.unwrap(value)
    if type(value) is not FunctionType:
        raise TypeError(f"{value!r}")
    return value


def fitting(patches: Iterable[Patch], folder: Path) -> list[Patch]:
    """The patches that fit the packages in a folder, each after those before it.  A file is read once in a process."""
    fits: list[Patch] = []
    patched: dict[str, str] = {}
    for patch in patches:
        with_patch = dict(patched)
        for hunk in patch.hunks:
            source = with_patch.get(hunk.at) or _source_in(folder, hunk.at)
            begins_line = hunk.before[:1].isspace()  # then it has the indentation of its first line
            if source.count(hunk.before) != 1 or (begins_line and f"\n{hunk.before}" not in f"\n{source}"):
                break
            with_patch[hunk.at] = source.replace(hunk.before, hunk.after)
        else:
            changed = [(at, patched.get(at) or _source_in(folder, at), with_patch[at]) for at in patch.places]
            if not _missing_names(folder, changed):
                fits.append(patch)
                patched = with_patch
    return fits


def _missing_names(folder: Path, changed: Iterable[tuple[str, str, str]]) -> set[str]:
    """The names that only the changed source of functions (place, before, after) uses, and that its release lacks.

    A global name must be one of the module; an attribute must stand somewhere in the package of the module or in one
    that the module imports, or in the change as a string or as an attribute that is set.
    """
    missing, own = set[str](), set[str]()
    for place, *sources in changed:
        old, new = map(_names, sources)
        own |= new["STORE_ATTR"] | new["str"]
        text = (path := _file_of(folder, place)).read_text()
        missing |= new["LOAD_GLOBAL"] - old["LOAD_GLOBAL"] - _globals_in(path)
        packages = {place.partition(":")[0].partition(".")[0], *re.findall(r"^ *+(?:from|import) (\w++)", text, re.M)}
        words = {word for word in new["LOAD_ATTR"] - old["LOAD_ATTR"] if word not in text}
        missing |= {word for word in words if not any(_has(folder / package, word) for package in packages)}
    return missing - own


@cache
def _names(source: str) -> Mapping[str, set[str]]:
    """The names in a function by the kind of Python's instruction; its strings are in "str"."""
    names: dict[str, set[str]] = defaultdict(set)
    try:
        codes = [compile(source, "", "exec", dont_inherit=True)]
    except SyntaxError:  # of which planting the change tells
        codes = []
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for step in dis.get_instructions(code):
            kind = {"LOAD_CONST": "str", "LOAD_METHOD": "LOAD_ATTR"}.get(step.opname, step.opname)
            names[kind].add(step.argval)
    return names


@cache
def _globals_in(path: Path) -> frozenset[str]:
    return frozenset([*dir(builtins), *symtable.symtable(path.read_text(), str(path), "exec").get_identifiers()])


@cache
def _has(package: Path, word: str) -> bool:
    """Whether a word stands in the code of a package."""
    return any(word in text and re.search(rf"\b{word}\b", text) for text in _texts(package))


@cache
def _texts(package: Path) -> list[str]:
    return [path.read_text(errors="replace") for path in package.rglob("*.py")]


def _file_of(folder: Path, place: str) -> Path:
    """The file of the function "module:qualified.name"; it may not exist."""
    path = folder.joinpath(*place.partition(":")[0].split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _source_in(folder: Path, place: str) -> str:
    """The source of a function "module:qualified.name"; "" if there is none."""
    path = _file_of(folder, place)
    return _functions_in(path).get(place.partition(":")[2], "") if path.is_file() else ""


@cache
def _functions_in(path: Path) -> Mapping[str, str]:
    """The sources of the functions of a file by their qualified names, with decorators and without indentation."""
    try:
        tree = ast.parse(source := path.read_text())
    except (SyntaxError, UnicodeDecodeError):  # of a checkout that cannot be imported, either
        return {}
    lines, functions = source.splitlines(keepends=True), {}
    for name, node in functions_of(tree):
        if any(isinstance(one, ast.Attribute) and one.attr in ACCESSORS for one in node.decorator_list):
            continue  # a patch of a property changes its getter
        first = min(part.lineno for part in (node, *node.decorator_list))
        functions[name] = textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    return functions


def functions_of(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module and of its classes, those under conditions, too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from functions_of(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)
