"""Who tells of a planted bug, on a given op-log."""

from collections.abc import Sequence

import msgspec

from harness.core.driver import Failure
from harness.core.mutant import Mutant
from harness.core.oplog import OpLog
from harness.core.replay import run_log
from invariants.catalog import ALL

PLACES = {invariant.name: place for place, invariant in enumerate(ALL.invariants)}


def told_by(mutant: Mutant, log: OpLog) -> list[str]:
    """The invariants, in the order of their catalogue, and the errors that tell of a mutant when `log` is run with it.

    Of a bug of a checker that overlooks another: those who fall silent when it is planted too.
    """
    told = speakers(log, mutant.id)
    if mutant.overlooks is None:
        return told
    return [name for name in speakers(log, mutant.overlooks.id) if name not in told]


def speakers(log: OpLog, mutant: str | None) -> list[str]:
    """Who speaks where a log first fails with a mutant planted; nobody where it passes."""
    failure = run_log(OpLog(msgspec.structs.replace(log.header, mutant=mutant), log.ops)).failure
    return _speakers(failure) if failure is not None else []


def _speakers(failure: Failure) -> list[str]:
    names: Sequence[str] = [fingerprint.split("/")[0] for fingerprint in failure.fingerprints]
    return sorted(dict.fromkeys(names), key=lambda name: PLACES.get(name, len(PLACES)))
