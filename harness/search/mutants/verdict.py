"""The laws that detect a planted bug in an op-log."""

from collections.abc import Sequence

from swarden.harness.core.driver import Failure
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import run_log
from swarden.invariants.catalog import ALL

ORDER = {invariant.name: index for index, invariant in enumerate(ALL.invariants)}


def detecting_laws(mutant: Mutant, log: OpLog) -> list[str]:
    """The invariants, in catalogue order, and the errors that detect a mutant when `log` is run with it.

    For a checker bug that hides another mutant: the laws that no longer detect that mutant.
    """
    laws = violated_laws(log, mutant.id)
    if mutant.overlooks is None:
        return laws
    return [name for name in violated_laws(log, mutant.overlooks.id) if name not in laws]


def violated_laws(log: OpLog, mutant: str | None) -> list[str]:
    """The laws violated at the first failure of a log, with this mutant instead of its own; empty if the log passes."""
    failure = run_log(log.with_header(mutant=mutant)).failure
    return _laws_of(failure) if failure is not None else []


def _laws_of(failure: Failure) -> list[str]:
    names: Sequence[str] = [fingerprint.split("/")[0] for fingerprint in failure.fingerprints]
    return sorted(dict.fromkeys(names), key=lambda name: ORDER.get(name, len(ORDER)))
