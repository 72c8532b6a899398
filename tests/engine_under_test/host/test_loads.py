"""Loads: what comes back from the host, who may have it when, and what becomes of it if somebody else was faster."""

from dataclasses import replace

import pytest

from engine_under_test.errors import PoolExhausted
from engine_under_test.events import Freed, TransferBegan, TransferEnded
from engine_under_test.host.loads import UnderWay
from engine_under_test.host.transfers import transfer_owner
from tests.engine_under_test.builders import Stretch, hold, locks, stretches
from tests.engine_under_test.host.bench import (
    HOSTED,
    HOSTED_FULL_ONLY,
    HOSTED_SWA_ONLY,
    HostBench,
    StoreByHand,
    copies,
)

LONG, OTHER = list(range(100, 120)), list(range(200, 220))
ALL_CONFIGS = pytest.mark.parametrize(
    "config", [HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY], ids=["hybrid", "full only", "swa only"]
)


def demoted(config=HOSTED, tokens=LONG[:8]) -> HostBench:
    """A cache of which the host alone has something."""
    bench = HostBench(config)
    bench.demoted(tokens)
    return bench


def without_window() -> HostBench:
    """A cache in which [0, 12) has its window on the host alone."""
    bench = HostBench()
    bench.copied(LONG)
    bench.cache.evict({"swa": 1})
    return bench


def causes(bench: HostBench, transfer: int) -> list[tuple[str, str]]:
    """What a load has freed again, by pool, and why."""
    owner = transfer_owner(transfer, to_host=False)
    return [(freed.pool, freed.cause) for freed in bench.heard.of(Freed) if freed.owner == owner]


def pages(bench: HostBench) -> dict[str, int]:
    """How many pages the last transfer moves, by pool."""
    return {pool: len(here) for pool, here, _ in bench.heard.of(TransferBegan)[-1].pages}


@ALL_CONFIGS
def test_what_comes_back_is_what_went(config):
    bench = demoted(config)
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert bench.content([*LONG[:8], 1]) == {pool.name: LONG[:8] for pool in config.pools}


@ALL_CONFIGS
def test_what_has_come_back_is_cached_on_both(config):
    bench = demoted(config)
    everywhere = [Stretch(0, 8, " ".join(pool.name for pool in config.pools))]
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert (stretches(bench.tree), copies(bench.tree), bench.device.evictable) == (
        everywhere,
        everywhere,
        {pool.name: 2 for pool in config.pools},
    )


@ALL_CONFIGS
def test_it_comes_back_when_it_is_acknowledged_and_not_before(config):
    bench = demoted(config)
    bench.load([*LONG[:8], 1])
    before = bench.match([*LONG[:8], 1]).length

    bench.settle()

    assert (before, bench.match([*LONG[:8], 1]).length) == (0, 8)


def test_of_a_window_just_the_pages_that_are_read_come_back():
    bench = demoted(tokens=LONG)

    bench.load([*LONG[:16], 1])

    assert pages(bench) == {"full": 4, "swa": 2}


def test_a_window_comes_back_alone_where_the_rest_is_there():
    bench = without_window()
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert (pages(bench), bench.content([*LONG[:8], 1])) == ({"swa": 2}, {"full": LONG[:8], "swa": LONG[:8]})


def test_only_the_missing_pages_of_a_window_come_back():
    bench = without_window()

    bench.load([*LONG[:16], 1])

    assert pages(bench) == {"swa": 1}


def test_what_is_on_the_device_is_not_loaded_again():
    bench = demoted(tokens=LONG)
    bench.load([*LONG[:8], 1])
    bench.settle()

    bench.load([*LONG, 1])

    assert pages(bench) == {"full": 3, "swa": 2}


def test_what_is_loaded_is_neither_free_nor_evictable_before_it_is_there():
    bench = demoted()
    bench.load([*LONG[:8], 1])

    bench.cache.flush()

    assert (bench.device.free, bench.device.evictable) == ({"full": 14, "swa": 10}, {"full": 0, "swa": 0})


def test_what_is_loaded_from_stays_on_the_host():
    bench = demoted()
    bench.load([*LONG[:8], 1])

    bench.tier.flush()

    assert (copies(bench.tree), bench.host_free()) == ([Stretch(0, 8, "full swa")], {"host full": 30, "host swa": 22})


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        pytest.param(StoreByHand.end, [Stretch(0, 8, "full swa")], id="loaded"),
        pytest.param(StoreByHand.fail, [], id="failed"),
    ],
)
def test_afterwards_it_may_go_from_the_host(ends, left):
    bench = demoted()
    ends(bench.hand, bench.load([*LONG[:8], 1]))
    bench.tier.poll()

    bench.tier.flush()

    assert (stretches(bench.tree), bench.host_free()) == (left, {"host full": 32, "host swa": 24})


def test_a_window_that_is_loaded_from_the_host_stays_there():
    bench = HostBench(replace(HOSTED, host_swa_pages=6))
    bench.copied(LONG)
    bench.cache.evict({"swa": 1})
    bench.load([*LONG[:8], 1])

    bench.copied(OTHER)

    assert [copy.live for copy in copies(bench.tree)] == ["full swa", "full", "full", "full swa", ""]


def test_a_load_that_fails_gives_its_pages_back():
    bench = demoted()
    transfer = bench.load([*LONG[:8], 1])
    bench.hand.fail(transfer)

    bench.tier.poll()

    assert (bench.device.free, stretches(bench.tree), copies(bench.tree)) == (
        {"full": 16, "swa": 12},
        [Stretch(0, 8, "")],
        [Stretch(0, 8, "full swa")],
    )


def test_a_load_that_failed_says_so():
    bench = demoted()
    transfer = bench.load([*LONG[:8], 1])
    bench.hand.fail(transfer)

    bench.tier.poll()

    assert (causes(bench, transfer), bench.heard.of(TransferEnded)[-1]) == (
        [("full", "load failed"), ("swa", "load failed")],
        TransferEnded(transfer, "the copy failed"),
    )


def test_after_a_load_that_failed_another_may_succeed():
    bench = demoted()
    bench.hand.fail(bench.load([*LONG[:8], 1]))
    bench.tier.poll()
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert bench.content([*LONG[:8], 1]) == {"full": LONG[:8], "swa": LONG[:8]}


@pytest.mark.parametrize("pool", ["full", "swa"])
def test_where_a_pool_is_short_nothing_is_changed(pool):
    bench = demoted()
    hold(bench.memory, pool, leaving=1)
    free = bench.device.free

    with pytest.raises(PoolExhausted) as caught:
        bench.load([*LONG[:8], 1])

    assert (caught.value.pool, bench.device.free, locks(bench.tree, pool), bench.nodes()[0].host.pins) == (
        pool,
        free,
        {(0, 8): 0},
        [0, 0],
    )


def test_a_copy_that_could_not_be_loaded_may_go():
    bench = demoted()
    hold(bench.memory, "full", leaving=1)
    with pytest.raises(PoolExhausted):
        bench.load([*LONG[:8], 1])

    bench.tier.flush()

    assert stretches(bench.tree) == []


def test_others_are_evicted_for_a_load():
    bench = demoted(replace(HOSTED, full_pages=8, swa_pages=8), LONG)
    bench.cached(OTHER)

    bench.load([*LONG, 1])

    assert (bench.device.free, bench.match([*OTHER, 1]).length) == ({"full": 0, "swa": 3}, 12)


def test_what_a_load_goes_on_from_is_not_evicted_for_it():
    bench = demoted(replace(HOSTED, full_pages=5), LONG)
    bench.load([*LONG[:8], 1])
    bench.settle()
    bench.load([*LONG, 1])

    bench.settle()

    assert bench.content([*LONG, 1]) == {"full": LONG, "swa": LONG[12:]}


def test_what_was_computed_meanwhile_is_not_replaced():
    bench = demoted()
    transfer = bench.load([*LONG[:8], 1])
    bench.cached(LONG[:8])

    bench.settle()

    assert (causes(bench, transfer), bench.device.free, bench.content([*LONG[:8], 1])) == (
        [("full", "load unused"), ("swa", "load unused")],
        {"full": 14, "swa": 10},
        {"full": LONG[:8], "swa": LONG[:8]},
    )


def test_what_was_computed_meanwhile_gets_the_window_that_it_has_lost():
    """Who published [0, 20) had given up its window before 12."""
    bench = demoted()
    transfer = bench.load([*LONG[:8], 1])
    bench.cached(LONG, slid=True)

    bench.settle()

    assert (causes(bench, transfer), bench.content([*LONG[:8], 1])) == (
        [("full", "load unused")],
        {"full": LONG[:8], "swa": LONG[:8]},
    )


def test_a_node_that_is_split_meanwhile_comes_back_in_two():
    bench = demoted()
    bench.load([*LONG[:8], 1])
    bench.cached([*LONG[:4], *OTHER[:4]])

    bench.settle()

    assert (stretches(bench.tree)[:2], bench.content([*LONG[:8], 1])) == (
        [Stretch(0, 4, "full swa"), Stretch(4, 8, "full swa")],
        {"full": LONG[:8], "swa": LONG[:8]},
    )


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["in their order", "the last first"])
def test_loads_end_in_any_order(order):
    bench = demoted()
    bench.demoted(OTHER[:8])
    started = {1: bench.load([*LONG[:8], 1]), 2: bench.load([*OTHER[:8], 1])}
    for number in order:
        bench.hand.end(started[number])
        bench.tier.poll()

    assert (bench.content([*LONG[:8], 1])["full"], bench.content([*OTHER[:8], 1])["full"]) == (LONG[:8], OTHER[:8])


@pytest.mark.parametrize(
    ("tokens", "brings_all"),
    [
        pytest.param([*LONG[:8], 1], True, id="the same"),
        pytest.param([*LONG, 1], False, id="more"),
        pytest.param([*LONG[:4], 1], True, id="less"),
        pytest.param([*OTHER[:8], 1], None, id="another branch"),
        pytest.param([1, 2, 3, 4, 5], None, id="nothing that is cached"),
    ],
)
def test_who_needs_some_of_what_is_under_way_waits_for_it(tokens, brings_all):
    bench = demoted(tokens=LONG)
    bench.demoted(OTHER[:8])
    transfer = bench.load([*LONG[:8], 1])

    found = bench.tier.load_under_way(bench.match(tokens))

    assert found == (None if brings_all is None else UnderWay(transfer, brings_all))


def test_nobody_waits_for_what_goes_to_the_host():
    bench = without_window()
    bench.cached(LONG[:16] + OTHER[:4])
    bench.tier.back_up()

    assert bench.hand.begun
    assert bench.tier.load_under_way(bench.match([*LONG[:8], 1])) is None
