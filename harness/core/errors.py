"""Errors that the user can correct."""

from pathlib import Path
from traceback import TracebackException

MAX_TEXT = 500  # characters of a message: a name or a list of what is known can be of any length


def cut(text: str, most: int = MAX_TEXT) -> str:
    """The text, without a part in its middle if it has more characters: the end of a message is the remedy."""
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end - 3]} … {text[-end:]}"


class UsageError(Exception):
    """A command or a file that cannot be used: one line with the place, the value found and the value wanted.

    The command line prints it and exits with 2.  A subclass that makes its own text overrides `text`, which is cut.
    """

    @property
    def text(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return cut(self.text)


class CannotImport(UsageError):
    """Code that cannot be imported; `what` is the reason."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    @property
    def text(self) -> str:
        return f"{self.what}; {self.remedy}"


class RemoteError(Exception):
    """An error of an engine in another process, with its fingerprint there."""

    def __init__(self, text: str, fingerprint: str) -> None:
        super().__init__(text, fingerprint)
        self.fingerprint = fingerprint

    def __str__(self) -> str:
        return str(self.args[0])


class CheckFailed(RemoteError):
    """The strict check of an engine in another process has failed; `log` is the op-log that it has written there."""

    def __init__(self, text: str, fingerprint: str, log: Path) -> None:
        super().__init__(text, fingerprint)
        self.log = log


class EngineGone(UsageError):
    """An engine outside of this process has ended, and no further run can be made with it; the text says why."""


class InvalidConfig(UsageError):
    """A configuration that an engine cannot be built from; the text names the setting and its value."""


class RunTooLarge(UsageError):
    """A run needs more memory or steps than the limits allow; the text names the limit."""


def text_of(error: BaseException) -> str:
    """The text of an error, which may be one of a user whose own `__str__` raises."""
    return str(TracebackException(type(error), error, None, compact=True))
