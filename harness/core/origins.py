"""Places in an engine's code, as a reader opens them: file, line and function."""

import re
import sys
from traceback import walk_tb
from types import FrameType

from harness.core.fingerprint import ENGINE_PACKAGE, NESTED, module_of

LEDGERS = f"{ENGINE_PACKAGE}.pools"  # they only keep the books: the code that acts is what calls them
TELLERS = {"_tell", "_notice"}  # of several places that tell of the same
PLANTED = re.compile(r"^<(.+?) in ")  # the file name of code with a mutant


def origin_of_caller() -> str:
    """The innermost place in the engine that is now running, its ledgers left out where something calls them."""
    origin = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = module_of(frame)
        if module.startswith(ENGINE_PACKAGE):
            origin = _place(frame, frame.f_lineno)
        if origin and not module.startswith(LEDGERS) and frame.f_code.co_name not in TELLERS:
            break
        frame = frame.f_back
    return origin


def frames_of(error: BaseException) -> list[str]:
    """The engine's places on the way of an error, outermost first; all places where none is the engine's."""
    frames = list(walk_tb(error.__traceback__))
    own = [(frame, line) for frame, line in frames if module_of(frame).startswith(ENGINE_PACKAGE)]
    return [_place(frame, line) for frame, line in own or frames]


def _place(frame: FrameType, line: int) -> str:
    path = module_of(frame).removeprefix(f"{ENGINE_PACKAGE}.").replace(".", "/")
    function = NESTED.sub("", frame.f_code.co_qualname).rpartition(".")[2]
    planted = PLANTED.match(frame.f_code.co_filename)
    return f"{path}.py:{line} {function}{f' ({planted[1]})' if planted else ''}"
