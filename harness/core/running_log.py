"""The op-log of the current run, written ahead: each op is in the file before it is applied."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from swarden.harness.core.admission import parse_log
from swarden.harness.core.oplog import Header, OpLog, OpLogError
from swarden.harness.core.ops import Op

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # a link or a FIFO in its place is not written


class RunningLog:
    """A file that holds the ops of the current run, so that a process that dies leaves a log that replays.

    A file that cannot be written (a full disk) stops the log of a run, not the run.  Without a path there is no file.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: int | None = None
        self._is_torn = False

    def begin(self, header: Header) -> None:
        """Start the log of a new run; it replaces the log of the run before.

        The file is created by the first run alone, so it does not come back if it is removed while the process ends.
        """
        if self._file is None and self.path is not None:
            with suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, FLAGS | os.O_APPEND, 0o644)
        self.end()
        self._is_torn = False
        self._write(OpLog(header, []).to_bytes())

    def note(self, op: Op) -> None:
        """Append an op that is about to be applied."""
        self._write(msgspec.json.encode(op) + b"\n")

    def end(self) -> None:
        """Empty the file, after the run has ended and was checked."""
        if self._file is not None:
            with suppress(OSError):
                os.truncate(self._file, 0)

    def _write(self, line: bytes) -> None:
        if self._file is not None and not self._is_torn:
            try:
                self._is_torn = os.write(self._file, line) < len(line)
            except OSError:
                self._is_torn = True


def last_run(path: Path) -> OpLog | None:
    """The last run in the file of a dead process, without a torn last line; None if the file has no run."""
    try:
        content = path.read_bytes()
        return parse_log(content[: content.rfind(b"\n") + 1], path)
    except (OSError, OpLogError):
        return None
