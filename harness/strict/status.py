"""The reports of a server's process on its attachment: in its log, and to `swarden attach --require`.

This module imports the standard library alone, of any Python, so that it can say what of swarden is missing.
"""

import logging
import os
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

FOLDER = "status"  # the setting with the folder that `swarden attach --require` watches: a file per process and state
LOGGER = logging.getLogger("swarden")


class State(Enum):
    IMPORTED = "imported"  # the scheduler's module; no scheduler is made yet
    ATTACHED = "attached"
    REFUSED = "refused"  # the text of the file of this state, as of ENDED, is the reason
    ENDED = "ended"  # the check, before its scheduler


class StandardError(logging.StreamHandler):  # type: ignore[type-arg]  # of whatever sys.stderr is
    """Writes the lines of the check to standard error, unless the root logger writes to a standard stream."""

    def filter(self, record: logging.LogRecord) -> bool:
        streams = [getattr(handler, "stream", None) for handler in logging.getLogger().handlers]
        return super().filter(record) is True and not any(stream in (sys.stderr, sys.stdout) for stream in streams)


def log_to_standard_error() -> None:
    """Show the lines of the check, unless the server has configured this logger; most configure only their own."""
    if not LOGGER.handlers:
        handler = StandardError()
        handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s %(message)s"))
        LOGGER.addHandler(handler)
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)


def attached(setting: Mapping[str, str]) -> None:
    LOGGER.info("swarden: attached to the scheduler, level %s, op-logs in %s", setting["level"], setting["out"])
    report(setting, State.ATTACHED)


def refused(setting: Mapping[str, str], reason: str, error: Exception | None = None) -> None:
    """Report that the scheduler is not checked; the traceback of an internal `error` is logged, too."""
    LOGGER.error("swarden: NOT ATTACHED to the scheduler, which runs unchecked: %s", reason, exc_info=error)
    report(setting, State.REFUSED, reason)


def ended(setting: Mapping[str, str], reason: str, error: Exception | None = None) -> None:
    """Report that the check has ended before its scheduler."""
    LOGGER.error("swarden: THE CHECK HAS ENDED, the scheduler runs on unchecked: %s", reason, exc_info=error)
    report(setting, State.ENDED, reason)


def report(setting: Mapping[str, str], state: State, reason: str = "") -> None:
    """Write the state of this process for `swarden attach --require`, if that watches the process."""
    folder = Path(setting.get(FOLDER) or os.devnull)
    part = folder / f".{os.getpid()}"
    try:
        if folder.is_dir():
            part.write_text(reason)
            part.rename(folder / f"{os.getpid()}.{state.value}")
    except OSError as error:
        LOGGER.error("swarden: %s: not written: %s", part, error.strerror)
