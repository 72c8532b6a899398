"""The report of violations: raised or logged once each, with the op-log of the first one."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from swarden.harness.core.fingerprint import fingerprints
from swarden.harness.core.oplog import OpLogError
from swarden.harness.report.story import story
from swarden.harness.strict.live import Evidence
from swarden.harness.strict.private import OFF, VARIABLE
from swarden.harness.strict.recording import Recording
from swarden.invariants.violation import Violation

MAX_LOGS = 100  # in a folder, so that a server that restarts after each failure does not fill the disk
LOGGER = logging.getLogger("swarden.strict")


class Reporter:
    """Raises `error` for violations.  With `reports`, the first violation of each fingerprint is logged instead.

    `counts` has the violations per fingerprint; `log_path` is the op-log of the first failure, below `folder`.
    """

    def __init__(self, recording: Recording, folder: Path, *, error: type[Exception], reports: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.log_path: Path | None = None
        self.reports = reports
        self._recording, self._folder, self._error = recording, folder, error

    def report(self, violations: Sequence[Violation], evidence: Callable[[], Evidence]) -> None:
        names = fingerprints(violations)
        is_first, is_new = not self.counts, any(name not in self.counts for name in names)
        self.counts.update(names)
        if self.reports and not is_new:
            return
        history, pools = evidence()
        lines = [story(violations, history, pools)]
        if is_first:
            lines.append(self.save_log(names[0]))
        if not self.reports:
            raise self._error("\n".join(lines))
        LOGGER.error("swarden: %s", "\n".join(lines))

    def save_log(self, fingerprint: str) -> str:
        """Write the op-log of the recorder. Returns the line with its path, or with the error."""
        if self._recording.mode == OFF:
            return f"not recorded: {VARIABLE} is {OFF}"
        if len(list(self._folder.glob("*.oplog"))) >= MAX_LOGS:
            return f"not recorded: {self._folder} has {MAX_LOGS} op-logs; remove some"
        try:
            self.log_path = self._recording.save(fingerprint, self._folder)
        except OpLogError as error:
            return f"not recorded: {error}"
        truncated = f" (truncated: {self._recording.truncated})" if self._recording.truncated else ""
        return f"replay: swarden replay {self.log_path}{truncated}"
