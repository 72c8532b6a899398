"""Places in an engine's code: file, line and function; and the request that a function works for."""

import re
import sys
from collections.abc import Collection, Iterator
from traceback import walk_tb
from types import FrameType
from typing import Any, NamedTuple

NESTED = ".<locals>.<"  # a comprehension or a lambda is part of its function
CALLED_BY = " < "  # between the frames of an origin, innermost first
MAX_CALLERS = 3  # frames of an origin
PLANTED = re.compile(r"^<(.+?) in ")  # the file name of a function with a planted mutant
PLACE = re.compile(  # of EngineCode.place
    r"(?P<path>[\w/]+)\.py:(?P<line>\d+) (?P<function>[\w<>]+)(?: \((?P<patch>[^)]+)\))?"
)
REQUEST_NAMES = ("req", "request", "decode_req")  # of the variable with the request that a function works for
ID_NAMES = ("request_id", "rid", "id")
ABSENT = object()


class EngineCode(NamedTuple):
    """The package of an engine's code, its parts that are no origin of an event, and the stand-ins for its model."""

    package: str = ""
    ledgers: str = ""  # a package within it that only does accounting; the origin of an event is its caller
    emitters: Collection[str] = ()  # functions that only emit events; the origin is their caller
    stand_ins: Collection[str] = ()  # modules of the stand-in for the model, whose time a benchmark counts apart
    decisions: Collection[str] = ()  # the functions, classes and modules that decide which requests a step computes
    core: str = ""  # errors are named for its functions, not for those of models, which move; "": of the package

    def has(self, frame: FrameType) -> bool:
        return bool(self.package) and is_within(module_of(frame), self.package)

    def origin_of_caller(self) -> str:
        """The innermost places on the stack in the engine, joined by CALLED_BY; "" if there is none.

        Places in `ledgers` or `emitters` are left out, unless there is no other place.
        """
        places: list[str] = []
        is_found = False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not (is_found and len(places) == MAX_CALLERS):
            if self.has(frame):
                places = [*(places if is_found else []), self.place(frame, frame.f_lineno)]
            is_ledger = bool(self.ledgers) and module_of(frame).startswith(self.ledgers)
            is_found |= bool(places) and not is_ledger and frame.f_code.co_name not in self.emitters
            frame = frame.f_back
        return CALLED_BY.join(places)

    def frames_of(self, error: BaseException) -> list[str]:
        """The engine's places in the traceback of an error, outermost first; all places if none is in the engine."""
        frames = list(walk_tb(error.__traceback__))
        own = [(frame, line) for frame, line in frames if self.has(frame)]
        return [self.place(frame, line) for frame, line in own or frames]

    def place(self, frame: FrameType, line: int) -> str:
        path = module_of(frame).removeprefix(f"{self.package}.").replace(".", "/")
        function = frame.f_code.co_qualname.partition(NESTED)[0].rpartition(".")[2]
        planted = PLANTED.match(frame.f_code.co_filename)
        return f"{path}.py:{line} {function}{f' ({planted[1]})' if planted else ''}"


class Place(NamedTuple):
    """A line of the engine's code, with its function."""

    path: str
    line: int
    function: str


def places_in(text: str) -> Iterator[Place]:
    """The places in a text, as EngineCode.place writes them."""
    return (Place(f"{match['path']}.py", int(match["line"]), match["function"]) for match in PLACE.finditer(text))


UNKNOWN_CODE = EngineCode()


def is_within(module: str, package: str) -> bool:
    """Whether this is the module of the package itself, or one below it."""
    return module == package or module.startswith(f"{package}.")


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def stored_field(holder: object, name: str) -> Any:
    """The value of an attribute if it is stored in the object; ABSENT if reading it would run code."""
    stored = getattr(holder, "__dict__", {})
    if name in stored:
        return stored[name]
    kind = getattr(type(holder), name, ABSENT)
    return getattr(holder, name, ABSENT) if type(kind).__name__ == "member_descriptor" else ABSENT


def request_of(frame: FrameType, depth: int) -> int:
    """The id of the request that a function, or the nearest of `depth` callers, works for; 0 if there is none."""
    above: FrameType | None = frame
    for _ in range(depth):
        if above is None:
            break
        for variable in REQUEST_NAMES:
            request = above.f_locals.get(variable)
            inner = stored_field(request, "req")
            request = request if inner is ABSENT else inner
            for name in ID_NAMES:
                stored = str(stored_field(request, name))
                if stored.isdecimal():
                    return int(stored)
        above = above.f_back
    return 0
