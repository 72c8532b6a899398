"""Each bug that can be planted into the newest release is detected by its op-log, which passes without the bug."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.engines.sglang.mutants import MUTANTS
from swarden.harness.search.mutants.kill_matrix import violated_laws

OPLOGS = Path(__file__).parent / "mutants"
RELEASE = "0.5.23"  # that the mutants fit


def laws_with_and_without(mutant):
    log = load_log(OPLOGS / f"{mutant}.oplog", engine=f"sglang=={RELEASE}")
    return violated_laws(log, mutant), violated_laws(log, None)


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_planted_bug_is_detected_by_its_laws_and_nothing_fails_without_it(mutant, on_release):
    planted, healthy = on_release(RELEASE, laws_with_and_without, mutant.id)

    assert set(mutant.caught_by) & set(planted)
    assert healthy == []
