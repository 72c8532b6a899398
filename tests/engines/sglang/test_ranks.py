"""Tensor-parallel ranks in lock-step: they agree, and a rank that leaves out a collective is found."""

import pytest

from swarden.harness.core.driver import Checking, Driver
from swarden.harness.core.ops import Drain, Inject, Op, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import RANKS
from swarden.harness.engines.sglang.parts.host_tier import HOST_FAILS, HOST_SLOW
from swarden.harness.engines.sglang.parts.storage import STORAGE_PARTIAL, STORAGE_SLOW
from swarden.harness.engines.sglang.target import SglangTarget
from tests.engines.sglang.conftest import RELEASES

RELEASE = RELEASES[-1]
PREFIX = tuple(range(1, 33))
HOST = {"sliding_window": None, "full_pages": 80, "host_ratio": 1.0, "load_back_threshold": 1}
STORED = {**HOST, "storage_policy": "wait_complete"}


def driver_of(settings, *ops: Op) -> Driver:
    target = target_of(f"sglang=={RELEASE}")
    systems = target.systems(RANKS, [target.decode(settings)], "")
    driver = Driver(systems, checking=Checking(engines=1))
    for op in ops:
        driver.apply(op)
    return driver


def slow_in(rank, *faults):
    return [Inject(fault=fault, count=3, rank=rank) for fault in faults]


@pytest.mark.parametrize(("ranks", "settings"), [(2, HOST), (4, STORED)], ids=["host", "storage"])
def test_ranks_agree_whichever_of_them_is_late(ranks, settings):
    again = Submit(tokens=(*PREFIX, 40), max_new_tokens=2)
    late = [*slow_in(1, HOST_SLOW, STORAGE_SLOW), *slow_in(0, STORAGE_PARTIAL)]
    ops = (Submit(tokens=PREFIX, max_new_tokens=2), *late, Step(count=12), again, Step(count=12), Drain())

    runs = [driver_of({**settings, "ranks": ranks}, *ops) for _ in range(2)]

    assert [run.failure for run in runs] == [None, None]
    assert runs[0].digests == runs[1].digests
    assert len(runs[0].systems) == ranks


def test_rank_whose_host_pool_is_full_has_another_tree():
    """A release decides in each rank alone whether a prefix is copied; public issue 28429."""
    fails = Inject(fault=HOST_FAILS, count=2, rank=1)

    failure = driver_of({**HOST, "ranks": 2}, fails, Submit(tokens=PREFIX, max_new_tokens=2), Step(count=12)).failure

    assert failure is not None
    assert (failure.engine, failure.fingerprints[0].partition("/")[0]) == (1, "ranks_have_equal_trees")


def test_rank_that_leaves_out_a_collective_is_waited_for(monkeypatch):
    """A condition of one rank alone before an all_reduce, as before public pull 27489."""
    tree = SglangTarget(RELEASE).booted().code("UnifiedRadixCache")
    check = tree.check_hicache_events
    monkeypatch.setattr(tree, "check_hicache_events", lambda self: self.ongoing_write_through and check(self))
    fails = Inject(fault=HOST_FAILS, count=2, rank=1)

    failure = driver_of({**HOST, "ranks": 2}, fails, Submit(tokens=PREFIX, max_new_tokens=2), Step(count=12)).failure

    assert failure is not None
    assert "waits for ever" in str(failure.error) or failure.fingerprints[0].startswith("ranks_have_equal")
