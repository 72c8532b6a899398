"""Op-logs that kill their process: their fingerprints, and how they are run again."""

import signal

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import run_log
from swarden.harness.search.jobs import JobDeath, run_jobs

CRASH, HANG, FAULT = "crash", "hang", "fault"  # the kinds in fingerprints; FAULT is of swarden itself
HANG_CPU_SECONDS = 60.0  # until a log that is run again counts as hung


def is_death(fingerprint: str) -> bool:
    """Whether the failure with this fingerprint has killed its process."""
    return fingerprint.split("/", maxsplit=1)[0] in (CRASH, HANG, FAULT)


def death_of(log: OpLog) -> JobDeath | None:
    """Run a log that has killed a process again, in a new process; None if the process ends normally.

    A log that does not expect a crash or a hang is not run, and the result is None.
    """
    if (log.header.expected or "").split("/")[0] not in (CRASH, HANG):
        return None
    [(_, ended)] = run_jobs([log], _run_bounded, workers=1)
    return ended


def is_expected(log: OpLog, death: JobDeath) -> bool:
    """Whether the process died as the log's fingerprint says."""
    kind, name, *_ = (log.header.expected or "").split("/")
    return kind == HANG if death.has_hung else (kind, name) == (CRASH, death.name)


def _run_bounded(log: OpLog) -> None:
    signal.setitimer(signal.ITIMER_PROF, HANG_CPU_SECONDS)
    run_log(log)
