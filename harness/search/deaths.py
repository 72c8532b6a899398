"""Op-logs that take their process down: their fingerprints, and how they are run again."""

import signal

from harness.core.oplog import OpLog
from harness.core.replay import run_log
from harness.search.jobs import Died, run_jobs

CRASH, HANG, FAULT = "crash", "hang", "fault"  # how the fingerprint of such a log begins; FAULT is swarden's own
HANG_CPU_SECONDS = 60.0  # of a log that is run again, until it counts as hung


def death_of(log: OpLog) -> Died | None:
    """How a log that took a process down ends when it is run again, in a process of its own; None where it ends well.

    A log that expects anything else is not run.
    """
    if (log.header.expected or "").split("/")[0] not in (CRASH, HANG):
        return None
    [(_, ended)] = run_jobs([log], _run_bounded, workers=1)
    return ended


def is_expected(log: OpLog, death: Died) -> bool:
    """Whether the process ended in the way that the log's fingerprint names."""
    kind, name, *_ = (log.header.expected or "").split("/")
    return kind == HANG if death.has_hung else (kind, name) == (CRASH, death.name)


def _run_bounded(log: OpLog) -> None:
    signal.setitimer(signal.ITIMER_PROF, HANG_CPU_SECONDS)
    run_log(log)
