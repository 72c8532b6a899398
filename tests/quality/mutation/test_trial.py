"""A mutation is loaded in its own process, and affects no other process."""

from pathlib import Path

import pytest

from swarden.engine_under_test.components import kept_len
from swarden.harness.core.admission import load_log
from tests.quality.mutation.__main__ import ROOT
from tests.quality.mutation.attack import KeptRuns
from tests.quality.mutation.corpus import record
from tests.quality.mutation.mutation import Mutation
from tests.quality.mutation.trial import STUCK, trials

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
WINDOW = "engine_under_test/components.py"
KEPT = "return align_up(max(lookback(window), page_size), page_size)"
LEDGER = "engine_under_test/pools/ledger.py"
TAKEN = "units = [take_one() for _ in range(count)]"
FREED = "self._free.extend(units)"


def mutation(path, healthy, broken):
    source = (ROOT / path).read_text()
    assert source.count(healthy) == 1
    return Mutation(path, "somewhere", "by hand", 1, f"-{healthy}\n+{broken}", source.replace(healthy, broken))


@pytest.fixture(scope="module")
def kept() -> list[KeptRuns]:
    return record(runs=2, seed=1).kept


@pytest.mark.parametrize(
    ("change", "killed_by"),
    [
        pytest.param((FREED, "self._free.extend(units[1:])"), "unit_has_one_owner", id="violated invariant"),
        pytest.param((TAKEN, f"{TAKEN}\n        count.seen = 1"), "AttributeError/pools", id="raised by the engine"),
        pytest.param(("\nclass Ledger:", "\nclass Books:"), "ImportError/pools", id="engine cannot be imported"),
        pytest.param((TAKEN, f"while True: pass\n        {TAKEN}"), STUCK, id="stuck"),
        pytest.param((TAKEN, f"{TAKEN}\n        self.seen = count"), None, id="survives"),
    ],
)
def test_trial_has_the_fingerprint_that_killed_the_mutation(kept, tmp_path, change, killed_by):
    """The op-log of a run that hangs is kept."""
    seconds = 1.0 if killed_by == STUCK else 120.0

    [trial] = trials([mutation(LEDGER, *change)], kept, seconds=seconds, workers=1, out=tmp_path)

    assert (trial.killed_by or "").startswith(killed_by or "")
    assert bool(trial.killed_by) == bool(killed_by)
    assert [load_log(path).ops != [] for path in tmp_path.iterdir()] == [True] * (killed_by == STUCK)


def test_trials_change_neither_modules_nor_files_of_the_parent(kept, tmp_path):
    before = Path(ROOT / WINDOW).read_bytes()

    list(trials([mutation(WINDOW, KEPT, "return 0")] * 2, kept, seconds=1.0, workers=2, out=tmp_path))

    assert kept_len(window=2, page_size=16) == 16
    assert Path(ROOT / WINDOW).read_bytes() == before
