"""Ledgers, prefix tree and host tier behave like their naive models; with a planted bug they do not."""

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from swarden.engine_under_test.errors import AccountingError, PoolExhausted
from swarden.harness.core.mutant import Mutant
from swarden.harness.engines.own.mutants.catalog import BUGS
from swarden.harness.search.mutants.unplanted import DetectedByTest
from tests.quality.parts.host import HostPart
from tests.quality.parts.ledger import LedgerPart
from tests.quality.parts.playing import RUNS, Disagreement, play
from tests.quality.parts.tree import TreePart

PARTS: dict[str, type[RuleBasedStateMachine]] = {"ledger": LedgerPart, "tree": TreePart, "host": HostPart}
DETECTED = {
    "ledger": ("B1", "B3", "B4", "B8", "B88", "S4", "S5"),
    "tree": ("B26", "B27", "B29", "S8", "S9", "S10", "S19", "S24", "S25", "S26"),
    "host": ("B53", "S23", "S132", "S134", "S135", "S137", "S177"),
}
BY_ID = {bug.id: bug for bug in BUGS if isinstance(bug, Mutant | DetectedByTest)}


@pytest.mark.parametrize("part", PARTS)
def test_part_agrees_with_its_model(part):
    play(PARTS[part])


@pytest.mark.parametrize(("part", "bug"), [(part, bug) for part, bugs in DETECTED.items() for bug in bugs])
def test_planted_bug_is_detected_by_the_part(part, bug):
    with BY_ID[bug].planted(), pytest.raises((Disagreement, AccountingError, PoolExhausted)):
        play(PARTS[part], runs=4 * RUNS, shrinks=False)  # it ends with the first failure
