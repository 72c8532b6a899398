"""Faults of a target: exceptions of its own code, such as its `build`, `decode` and `capture`."""

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

from swarden.harness.core.errors import UsageError, text_of
from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.core.origins import UNKNOWN_CODE, module_of

CORE = __name__.rpartition(".")[0]
MAX_FRAMES = 6  # in the message, the innermost


class TargetFault(UsageError):
    """An error of a target; the text names the target, its function, the error and the frames."""

    def __init__(self, text: str, fingerprint: str) -> None:
        super().__init__(text, fingerprint)
        self.fingerprint = fingerprint

    @property
    def text(self) -> str:
        return str(self.args[0])


@contextmanager
def blamed_on(target: str, function: str) -> Iterator[None]:
    """Raise any error of the body, except for a UsageError, as a fault of `function` of the target."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        frames = list(walk_tb(error.__traceback__))
        frames = frames[2:] or frames  # without this function and its block
        theirs = [(frame, line) for frame, line in frames if not module_of(frame).startswith(f"{CORE}.")] or frames
        places = ", ".join(UNKNOWN_CODE.place(frame, line) for frame, line in theirs[-MAX_FRAMES:])
        what = f"{type(error).__name__}: {' '.join(text_of(error).split())}"
        raise TargetFault(
            f"target {target}: its {function} raised {what}; at {places}; correct the target",
            f"target/{function}/{fingerprint_of_error(error, module_of(theirs[0][0]).partition('.')[0])}",
        ) from error
