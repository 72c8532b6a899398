"""Op-logs that kill their process: their fingerprints, and how they are run again."""

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import CRASH, FAULT, HANG, Death, Parent, Process, ProcessDied, ProcessLimits
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import Replays, run_log, verdict_on
from swarden.harness.core.target import prepare

HANG_SECONDS = 60.0  # without an engine step, until a log that is run again counts as hung


def is_death(fingerprint: str) -> bool:
    """Whether the failure with this fingerprint has killed its process."""
    return fingerprint.split("/", maxsplit=1)[0] in (CRASH, HANG, FAULT)


def death_of(log: OpLog) -> Death | None:
    """Run a log that killed its process again, in a new process; None if that process ends normally.

    A log that does not expect a crash or a hang is not run, and the result is None.
    """
    if (log.header.expected or "").split("/")[0] not in (CRASH, HANG):
        return None
    with Process(limits=ProcessLimits(HANG_SECONDS)) as process:
        try:
            [_] = process.stream(_run, log)
        except ProcessDied as error:
            return error.death
    return None


def replays_of(death: Death, log: OpLog) -> Replays:
    """The verdict on a log that has killed its process: the name of a death is the beginning of a fingerprint."""
    expected = log.header.expected or ""
    name = expected if f"{expected}/".startswith(f"{death.name}/") else death.name
    return Replays(verdict_on([name], [expected] if expected else ()), (name,), 1, 1)


def _run(parent: Parent, log: OpLog) -> None:
    prepare(target_for(log.header))
    parent.beat()
    run_log(log, observe=lambda *_: parent.beat())
