"""Tensor-parallel ranks in lock-step: they agree, and a rank that leaves out a collective is found."""

import pytest

from swarden.harness.core import replay
from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Drain, Inject, Op, Pause, Resume, Step, Submit
from swarden.harness.core.target import DATA_RANKS, RANKS, RANKS_OF_PAIR
from swarden.harness.engines.sglang.parts.host_tier import HOST_FAILS, HOST_SLOW
from swarden.harness.engines.sglang.parts.link import LINK_DELAY, LINK_DROP, LINK_FAILS, LINK_LATE, LINK_METADATA
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL
from swarden.harness.engines.sglang.parts.storage import CLOCK_JUMPS, STORAGE_PARTIAL, STORAGE_SLOW
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.kit.ranks import Ranks
from tests.engines.sglang.conftest import RELEASES

RELEASE = RELEASES[-1]
PREFIX = tuple(range(1, 33))
HOST = {"sliding_window": None, "full_pages": 80, "host_ratio": 1.0, "load_back_threshold": 1}
STORED = {**HOST, "storage_policy": "wait_complete"}
PAIR_OF_RANKS = {"sliding_window": None, "full_pages": 80, "ranks": 2}


def driver_of(settings, *ops: Op, roles=("null",), of_decode=()) -> Driver:
    alone = DATA_RANKS if settings.get("dp_attention") else RANKS
    machine = alone if len(roles) == 1 else RANKS_OF_PAIR
    configs = [{**settings, "role": role, **dict(of_decode if role == DECODE else ())} for role in roles]
    driver = replay.driver_of(Header(engine=f"sglang=={RELEASE}", machine=machine, configs=configs))
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


def prefetches(*faults):
    """A prompt that goes to the storage, these faults, each in one rank, and the prompt again."""
    prompt = Submit(tokens=PREFIX, max_new_tokens=2)
    return driver_of(
        {**STORED, "storage_policy": "timeout", "ranks": 2},
        *(prompt, *[Step()] * 12, Drain()),
        *(Inject(fault=fault, count=8, rank=rank) for fault, rank in faults),
        *(prompt, *[Step()] * 6, Drain()),
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_agree_that_a_prefetch_has_timed_out(rank, monkeypatch):
    """The clock of one is ahead while its storage is slow; a rank that ends the prefetch alone is found."""
    faults = (STORAGE_SLOW, rank), (CLOCK_JUMPS, rank)
    assert prefetches(*faults).failure is None

    tree = SglangTarget(RELEASE).booted().code("UnifiedRadixCache")
    monkeypatch.setattr(tree, "_can_terminate_prefetch", tree._prefetch_deadline_expired)

    assert prefetches(*faults).failure is not None


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


@pytest.mark.skipif(RELEASE != "0.5.23", reason="the release marks no decisions")
def test_rank_that_decides_alone_is_found(monkeypatch):
    """It calls once more what the release marks with @rank_consensus."""
    tree = SglangTarget(RELEASE).booted().code("UnifiedRadixCache")
    check = tree.check_hicache_events
    alone = lambda self: (Ranks.running() and self.write_backup_storage(0), check(self))[1]  # noqa: E731
    monkeypatch.setattr(tree, "check_hicache_events", alone)

    failure = driver_of({**HOST, "ranks": 2}, Submit(tokens=PREFIX, max_new_tokens=2), Step()).failure

    assert failure is not None
    assert "the decision of write_backup_storage called" in str(failure.error)


def transfers(*faults):
    """A prompt for a pair, these faults of its transfer in the second rank, and steps of both sides."""
    begin = Submit(tokens=PREFIX, max_new_tokens=2), *slow_in(1, *faults)
    return *begin, *(Step(engine=1), Step(), Step()) * 6, Abort(engine=1), *(Step(engine=1), Step()) * 4


@pytest.mark.parametrize(
    "faults", [[LINK_DELAY], [LINK_LATE], [LINK_DROP], [LINK_METADATA], [LINK_LATE, LINK_FAILS]], ids="+".join
)
def test_ranks_of_a_pair_agree_whichever_transfer_is_late(faults):
    ops = *transfers(*faults), *transfers(), Drain()

    runs = [driver_of(PAIR_OF_RANKS, *ops, roles=(PREFILL, DECODE)) for _ in range(2)]

    assert [run.failure for run in runs] == [None, None]
    assert runs[0].digests == runs[1].digests
    assert len(runs[0].systems) == 4


def test_ranks_agree_which_writes_of_a_decode_side_to_its_storage_have_ended():
    slow, request = Inject(engine=1, fault=STORAGE_SLOW, count=3, rank=0), Submit(tokens=PREFIX, max_new_tokens=8)
    ops = slow, request, *(Step(engine=1), Step(), Step()) * 10, Drain()
    of_decode = {"decode_offload": True}

    driver = driver_of(PAIR_OF_RANKS, *ops, roles=(PREFILL, DECODE), of_decode=of_decode)

    assert driver.failure is None


def test_rank_that_releases_an_aborted_transfer_alone_is_found(monkeypatch):
    """The acknowledgement of an abort comes to each rank at another time; fixed in 0.5.23."""
    queue = SglangTarget(RELEASE).booted().code("DecodeReqToTokenPool").__module__
    monkeypatch.setattr(f"{queue}.all_reduce_flags", lambda flags, **_: flags)

    failure = driver_of(PAIR_OF_RANKS, *transfers(LINK_LATE), *transfers(), roles=(PREFILL, DECODE)).failure

    assert failure is not None
    assert failure.fingerprints[0].startswith(("ranks_have_equal", "CollectiveFailed"))


def of_data(ranks, *ops: Op, roles=("null",)):
    """Ranks with requests of their own; the ops of a pair are made on both sides."""
    settings = {**(HOST if len(roles) == 1 else PAIR_OF_RANKS), "ranks": ranks, "dp_attention": True}
    steps = Step(), *[Step(engine=1)] * (len(roles) - 1)
    prompt = Submit(tokens=PREFIX, max_new_tokens=6)
    begin = prompt, *steps * 8, prompt, *steps * 3, *ops, *steps * 12, Drain()
    return driver_of(settings, *begin, roles=roles)


@pytest.mark.parametrize(("ranks", "roles"), [(2, ("null",)), (4, ("null",)), (2, (PREFILL, DECODE))], ids=str)
def test_each_request_of_ranks_of_data_runs_in_one_of_them(ranks, roles):
    """The second one begins in the second rank, while the first is idle; one is aborted there; all pause."""
    ops = (
        Submit(tokens=PREFIX[:9]),
        Abort(request=1),
        Step(count=3),
        Pause(),
        Step(),
        Resume(),
        *[Submit(tokens=PREFIX[5:])] * 3,
    )

    runs = [of_data(ranks, *ops, roles=roles) for _ in range(2)]

    assert [run.failure for run in runs] == [None, None]
    assert runs[0].digests == runs[1].digests
    decoding = runs[0].systems[len(roles) - 1 :: len(roles)]
    assert [len(one.reference.expectations) for one in decoding] == [
        6 // ranks + (rank < 6 % ranks) for rank in range(ranks)
    ]


def test_rank_without_an_idle_batch_is_waited_for(monkeypatch):
    """The first request is computed in the first rank alone, though the layers behind its attention need all."""
    driver_of(HOST)  # an engine that is alone in the process before
    adapter = SglangTarget(RELEASE).booted().code("DPAttnAdapter")
    monkeypatch.setattr(adapter, "get_idle_batch", lambda _: None)

    failure = of_data(2).failure

    assert failure is not None
    assert str(failure.error).startswith("rank 0 waits for ever: rank 0 is in pass of ")


def test_rank_that_is_not_paused_with_the_others_waits_for_them(monkeypatch):
    scheduler = SglangTarget(RELEASE).booted().code("Scheduler")
    pause = scheduler.pause_generation
    monkeypatch.setattr(scheduler, "pause_generation", lambda *args: Ranks.running() or pause(*args))

    failure = of_data(2, Pause(), Step()).failure

    assert failure is not None
    assert str(failure.error).startswith("rank 1 waits for ever: rank 1 is in all_gather of ")
