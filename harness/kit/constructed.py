"""Records how the objects of a release are made, for a program that makes them in the same way."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import wraps
from inspect import isfunction, signature
from types import NoneType, SimpleNamespace
from typing import Any

from swarden.harness.core.program import NoProgram, arguments, literal
from swarden.harness.kit.calls import replaced
from swarden.harness.kit.stand_ins import Missing

WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
PLACE = re.compile("\0([0-9]+)\0")  # of an object by its id: no literal has a null character
STAND_INS = {SimpleNamespace: "types", Missing: ""}  # with their modules; the program has the other one


class Constructions:
    """The calls of constructors that are not within another one; `named` objects have a name in the program."""

    def __init__(self) -> None:
        self.named = dict[int, str]()
        self._calls: dict[int, tuple[Any, Any, Any]] = {}  # with the object, so that no other one gets its id
        self._texts: dict[str, tuple[str, str]] = {}  # the class of each object, and how it is made
        self._imports = set[str]()
        self._depth = 0

    @contextmanager
    def recording(self, kinds: Iterable[Any]) -> Iterator[None]:
        """Record the constructors of those of the kinds that are classes in Python."""
        with ExitStack() as stack:
            for kind in kinds:
                init = getattr(kind, "__init__", None)
                if isinstance(kind, type) and isfunction(init):
                    stack.enter_context(replaced(kind, "__init__", self._noting(kind, init)))
            yield

    def _noting(self, kind: type, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def noted(one: Any, *args: Any, **kwargs: Any) -> None:
            if not self._depth and type(one) is kind:
                self._calls[id(one)] = (one, args, kwargs)
            self._depth += 1
            try:
                init(one, *args, **kwargs)
            finally:
                self._depth -= 1

        return noted

    def has(self, one: Any) -> bool:
        return id(one) in self._calls or isinstance(one, Enum)

    def of(self, kind: type) -> Any:
        """The one object of a class that was made."""
        [found] = [one for one, *_ in self._calls.values() if type(one) is kind]
        return found

    def text(self, wanted: Mapping[str, Any]) -> str:
        """The imports, and the lines that make these objects and return them; one that is needed twice gets a name.

        Raises NoProgram for one whose constructor was not recorded.
        """
        returned, lines, known = literal(dict(wanted), self._text), list[str](), dict[str, str]()
        uses = Counter(PLACE.findall("".join([returned, *[text for _, text in self._texts.values()]])))
        for place, (kind, text) in self._texts.items():
            known[place] = PLACE.sub(lambda found: known[found[1]], text)
            if uses[place] > 1:
                name = "_".join(WORD.findall(kind)).lower()
                name += f"_{len(lines)}" * (name in known.values())
                lines.append(f"{name} = {known[place]}")
                known[place] = name
        end = PLACE.sub(lambda found: known[found[1]], returned)
        return "\n".join([*sorted(self._imports), *lines, f"return {end}"])

    def _text(self, one: Any) -> str:
        kind = type(one)
        if id(one) in self.named:
            return self.named[id(one)]
        if isinstance(one, Enum):
            return f"{self._imported(kind.__module__, kind.__name__)}.{one.name}"
        if kind in STAND_INS:
            return f"{self._imported(STAND_INS[kind], kind.__name__)}({arguments((), vars(one), self._text)})"
        if str(kind) == "<class 'torch.dtype'>":
            return self._imported("torch", str(one).removeprefix("torch."))
        if id(one) in self._calls:
            if str(id(one)) not in self._texts:
                name, (_, args, kwargs) = self._imported(kind.__module__, kind.__name__), self._calls[id(one)]
                self._texts[str(id(one))] = (name, f"{name}({arguments(args, _changed(kind, kwargs), self._text)})")
            return f"\0{id(one)}\0"
        for whole, _, given in list(self._calls.values()):
            for name, part in vars(whole).items():
                if part is one and all(value is not one for value in given.values()):
                    return f"{self._text(whole)}.{name}"
        raise NoProgram(f"the release is built with a {kind.__name__}, which a program cannot make")

    def _imported(self, module: str, name: str) -> str:
        self._imports.update([f"from {module} import {name}"] if module else ())
        return name


def _changed(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments without those of plain data that the constructor has by default."""
    defaults = {name: one.default for name, one in signature(kind).parameters.items()}
    plain = (bool, int, float, str, NoneType)
    return {
        name: one
        for name, one in given.items()
        if not (type(one) in plain and name in defaults and (type(one), one) == (type(defaults[name]), defaults[name]))
    }
