"""Does swarden find the bugs that really happened?  By its stored op-logs always, and from a cold start."""

from operator import attrgetter
from pathlib import Path

import msgspec
import pytest

from harness.hunt import hunt
from harness.mutants.catalog import BY_ID, CATALOG
from harness.oplog import OpLog
from harness.replay import run_log

OPLOGS = Path(__file__).with_name("oplogs")
COLD_STARTS = ("B30", "B18", "B8")
SEEDS = (0, 1, 2)
CPU_SECONDS = 60


def log_of(mutant):
    return OpLog.load(OPLOGS / f"{mutant.id}.oplog")


@pytest.mark.parametrize("mutant", CATALOG, ids=attrgetter("id"))
def test_the_healthy_engine_passes_the_op_log_of_each_mutant(mutant):
    """What the log shows is the bug's doing."""
    log = log_of(mutant)
    log.header = msgspec.structs.replace(log.header, mutant=None)

    assert run_log(log).failure is None


@pytest.mark.parametrize("mutant", CATALOG, ids=attrgetter("id"))
def test_each_mutant_is_caught_by_its_own_op_log(mutant):
    """With the bug planted, an invariant of its list speaks, and nothing but it is needed."""
    failure = run_log(log_of(mutant)).failure

    assert failure is not None
    assert {name.split("/")[0] for name in failure.fingerprints} & set(mutant.caught_by)
    assert log_of(mutant).header.expected in failure.fingerprints


@pytest.mark.parametrize("mutant", COLD_STARTS)
def test_a_mutant_is_found_from_a_cold_start_and_shrunk(mutant, tmp_path):
    """By any of three seeds within a minute of CPU, to at most 12 ops and 40 engine steps."""
    hunts = (hunt(BY_ID[mutant], seed=seed, seconds=CPU_SECONDS, out=tmp_path) for seed in SEEDS)

    caught = next(one for one in hunts if one.is_caught)

    assert caught.settled is not None
    assert caught.settled.ops <= 12
    assert caught.settled.engine_steps <= 40
