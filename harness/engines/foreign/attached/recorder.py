"""The flight recorder of a scheduler that serves: its calls as an op-log that the adapter replays."""

import os
from collections.abc import Sequence
from pathlib import Path

from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Op, Submit
from swarden.harness.strict.private import OFF, record_mode
from swarden.harness.strict.recording import RecordedAbort, RecordedSubmit, Recording, Steps

MAX_OPS = 100_000


class LiveRecorder:
    """Records from an empty cache on, which is at the start of the server or at a flush.

    `lost` are the settings of the server that a replay does not have.
    """

    def __init__(self, header: Header, lost: Sequence[str]) -> None:
        self._recording = Recording(lambda: header, max_ops=MAX_OPS, mode=record_mode(os.environ))
        self._lost = lost
        self._aborted: set[int] = set()
        self._submitted: set[int] = set()
        self._stopped: Sequence[int] = ()
        self.restart()

    @property
    def is_on(self) -> bool:
        """Whether a log is written."""
        return self._recording.mode != OFF

    @property
    def truncated(self) -> str:
        return self._recording.truncated

    def save(self, fingerprint: str, out: Path) -> Path:
        return self._recording.save(fingerprint, out)

    def lose(self, kind: str) -> None:
        """Count a call that has no op."""
        self._recording.lost[kind] += 1

    def submitted(self, request: int, op: Submit) -> None:
        self._submitted.add(request)
        self._recording.append(RecordedSubmit(request, op))

    def is_aborted(self, request: int) -> bool:
        return request in self._aborted

    def aborted(self, request: int) -> None:
        if request in self._submitted and request not in self._aborted:
            self._aborted.add(request)
            self._recording.append(RecordedAbort(request))

    def called(self, op: Op) -> None:
        self._recording.append(op)

    def turn_ended(self, ended: Sequence[int], stopped: Sequence[int] = ()) -> None:
        """Record a turn. Requests in `stopped` ended, too, but not by their length: a replay aborts them behind it."""
        ended = [*self._stopped, *ended]
        self._aborted.difference_update(ended)
        self._submitted.difference_update(ended)
        self._recording.append(Steps(ended=ended))
        for request in stopped:
            self.aborted(request)
        self._stopped = stopped

    def restart(self) -> None:
        """The cache is empty, and there is no request."""
        self._recording.clear()
        for kind in self._lost:
            self.lose(kind)
