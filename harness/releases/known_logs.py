"""Known op-logs on a release and on the one before it: how each of them ends on both."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.target import Target
from swarden.harness.search.endings import STEP_SECONDS, end_on
from swarden.harness.search.workers import WorkerGroup


class KnownLogs(NamedTuple):
    """How known op-logs end on the base and on the head: FAILS, PASSES, or why they cannot be run."""

    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}

    def changed(self, before: str, after: str) -> list[str]:
        """The logs that end so on both sides; a log that fails otherwise fails."""
        ends = ((log, self.before.get(log, ""), end) for log, end in self.after.items())
        return [log for log, earlier, end in ends if earlier.startswith(before) and end.startswith(after)]


def logs_of_bugs(target: Target) -> dict[str, Path]:
    """The op-logs of the known bugs of a target, by name."""
    return {path.name: path for bug in target.known_bugs().values() for path in bug.oplogs}


def ends_on(engine: str, logs: Mapping[str, Path]) -> Mapping[str, str]:
    """How each of these logs ends on a release, in one process."""
    ends = {}
    with WorkerGroup(1, None, hang_seconds=STEP_SECONDS) as group:
        for label, path in logs.items():
            try:
                ends[label] = end_on(group, engine, OpLog.load(path, engine=engine))
            except UsageError as error:
                ends[label] = str(error)
    return ends
