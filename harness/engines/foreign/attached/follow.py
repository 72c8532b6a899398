"""The wrapping of a running engine's methods, so that an attachment follows the calls to its scheduler."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import in_environment

LOGGER = logging.getLogger("swarden.strict")
ATTRIBUTE = "swarden_attachment"  # of a scheduler; None if it is not checked


class MemoryViolation(AssertionError):
    """A law is broken; the text is the story."""


class UnknownScheduler(UsageError):
    """A scheduler whose memory the check does not know; the text is the reason."""


class AttachSetting(NamedTuple):
    """The level, whether violations are only reported, and the folder for op-logs."""

    level: str
    reports: bool
    out: Path

    @classmethod
    def of(cls, setting: Mapping[str, str]) -> "AttachSetting":
        return cls(setting["level"], setting["on_violation"] == "log", Path(setting["out"]))


class Attached(Protocol):
    """The check of one scheduler."""

    def detach(self) -> None:
        """End the check."""

    def failed(self, error: Exception) -> None:
        """The scheduler raised an error, which ends it."""


class Follow(NamedTuple):
    """What an attachment does before a call, with its arguments in their order, and after it, with its result."""

    before: Callable[[Any, Sequence[Any]], None] | None = None
    after: Callable[[Any, Any], None] | None = None


def can_follow(kind: type, names: Sequence[str]) -> bool:
    """Whether a class has all these methods; if not, the log names the missing ones."""
    if missing := [name for name in names if not hasattr(kind, name)]:
        LOGGER.warning("not attached: the scheduler has no %s", ", ".join(missing))
    return not missing


def attached(package: str, setting: AttachSetting, attach: Callable[[str], Attached]) -> Any:
    """What `attach` makes of the version of the package; None, with a line in the log, if it is not known."""
    found = in_environment(package)
    try:
        if found is None:
            raise UsageError(f"the folder of the {package} package is not on the path")
        attachment = attach(found.version)
    except UsageError as error:
        LOGGER.warning("not attached to the scheduler: %s", error)
        return None
    except Exception:
        LOGGER.exception("not attached to the scheduler, by a fault of swarden")
        return None
    LOGGER.info("attached to the scheduler, level %s, op-logs in %s", setting.level, setting.out)
    return attachment


def followed(original: Callable[..., Any], follow: Follow) -> Callable[..., Any]:
    parameters = signature(original)

    @wraps(original)
    def method(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        call = parameters.bind(scheduler, *args, **kwargs)
        call.apply_defaults()
        _act(scheduler, follow.before, tuple(call.arguments.values())[1:])
        result = original(scheduler, *args, **kwargs)
        _act(scheduler, follow.after, result)
        return result

    return method


@contextmanager
def recorded_errors(scheduler: Any) -> Iterator[None]:
    """Record an error of the scheduler, and raise it again."""
    try:
        yield
    except MemoryViolation:
        raise
    except Exception as error:
        attachment = vars(scheduler).get(ATTRIBUTE)
        if attachment is not None:
            attachment.failed(error)
        raise


def _act(scheduler: Any, action: Callable[[Any, Any], None] | None, value: Any) -> None:
    """Let the attachment act, if the scheduler has one. A fault of swarden ends the check, not the server."""
    attachment = vars(scheduler).get(ATTRIBUTE)
    if attachment is None or action is None:
        return
    try:
        action(attachment, value)
        return
    except MemoryViolation:
        raise
    except UsageError as error:
        LOGGER.warning("the check ends here: %s", error)
    except Exception:
        LOGGER.exception("the check ends here, by a fault of swarden")
    attachment.detach()
    setattr(scheduler, ATTRIBUTE, None)
