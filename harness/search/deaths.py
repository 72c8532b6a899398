"""Op-logs that kill their process: their fingerprints and their verdict."""

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import CRASH, FAULT, HANG, Death
from swarden.harness.core.replay import Replays, verdict_on


def is_death(fingerprint: str) -> bool:
    """Whether the failure with this fingerprint has killed its process."""
    return fingerprint.split("/", maxsplit=1)[0] in (CRASH, HANG, FAULT)


def replays_of(death: Death, log: OpLog) -> Replays:
    """The verdict on a log that has killed its process: the name of a death is the beginning of a fingerprint."""
    expected = log.header.expected or ""
    name = expected if f"{expected}/".startswith(f"{death.name}/") else death.name
    return Replays(verdict_on([name], [expected] if expected else ()), (name,), 1, 1)
