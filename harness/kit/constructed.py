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
from unittest import mock

from swarden.harness.core.program import NoProgram, arguments, literal
from swarden.harness.kit.stand_ins import Missing

WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
PLACE = re.compile("\0([0-9]+)\0")  # of an object by its id: no literal has a null character
STAND_INS = {SimpleNamespace: "types", Missing: ""}  # the module of each in a program; "": the program itself


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
        """Record the calls of the constructors of these kinds; a kind that is no class in Python is skipped."""
        with ExitStack() as stack:
            for kind in kinds:
                init = getattr(kind, "__init__", None)
                if isinstance(kind, type) and isfunction(init):
                    stack.enter_context(mock.patch.object(kind, "__init__", self._noting(kind, init)))
            yield

    def _noting(self, kind: type, init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def noted(made: Any, *args: Any, **kwargs: Any) -> None:
            if not self._depth and type(made) is kind:
                self._calls[id(made)] = (made, args, kwargs)
            self._depth += 1
            try:
                init(made, *args, **kwargs)
            finally:
                self._depth -= 1

        return noted

    def has(self, value: Any) -> bool:
        return id(value) in self._calls or isinstance(value, Enum)

    def of(self, kind: type) -> Any:
        """The one object of a class that was made."""
        [made] = [made for made, *_ in self._calls.values() if type(made) is kind]
        return made

    def text(self, wanted: Mapping[str, Any]) -> str:
        """The imports, and the lines that make these objects and return them; one that is needed twice gets a name.

        Raises NoProgram for one whose constructor was not recorded.
        """
        returned, lines, text_of = literal(dict(wanted), self._text), list[str](), dict[str, str]()
        uses = Counter(PLACE.findall("".join([returned, *[text for _, text in self._texts.values()]])))
        for place, (kind, text) in self._texts.items():
            text_of[place] = PLACE.sub(lambda match: text_of[match[1]], text)
            if uses[place] > 1:
                name = "_".join(WORD.findall(kind)).lower()
                if name in text_of.values():
                    name += f"_{len(lines)}"
                lines.append(f"{name} = {text_of[place]}")
                text_of[place] = name
        end = PLACE.sub(lambda match: text_of[match[1]], returned)
        return "\n".join([*sorted(self._imports), *lines, f"return {end}"])

    def _text(self, made: Any) -> str:
        kind = type(made)
        if id(made) in self.named:
            return self.named[id(made)]
        if isinstance(made, Enum):
            return f"{self._imported(kind.__module__, kind.__name__)}.{made.name}"
        if kind in STAND_INS:
            return f"{self._imported(STAND_INS[kind], kind.__name__)}({arguments((), vars(made), self._text)})"
        if str(kind) == "<class 'torch.dtype'>":
            return self._imported("torch", str(made).removeprefix("torch."))
        if id(made) in self._calls:
            if str(id(made)) not in self._texts:
                name, (_, args, kwargs) = self._imported(kind.__module__, kind.__name__), self._calls[id(made)]
                self._texts[str(id(made))] = (name, f"{name}({arguments(args, _changed(kind, kwargs), self._text)})")
            return f"\0{id(made)}\0"
        for whole, _, given in list(self._calls.values()):
            for name, part in vars(whole).items():
                if part is made and all(value is not made for value in given.values()):
                    return f"{self._text(whole)}.{name}"
        raise NoProgram(f"the release is built with a {kind.__name__}, which a program cannot make")

    def _imported(self, module: str, name: str) -> str:
        self._imports.update([f"from {module} import {name}"] if module else ())
        return name


def _changed(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments, without plain data that equals the default of the constructor."""
    parameters = signature(kind).parameters
    defaults = {name: (type(parameter.default), parameter.default) for name, parameter in parameters.items()}
    plain = (bool, int, float, str, NoneType)
    return {
        name: value
        for name, value in given.items()
        if type(value) not in plain or defaults.get(name) != (type(value), value)
    }
