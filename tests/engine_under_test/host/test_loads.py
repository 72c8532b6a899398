"""Loads: the pages that are restored, what may happen to them meanwhile, and failures."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.host.copy_jobs import copy_job_owner
from swarden.invariants.events import CopyBegan, CopyEnded, Freed
from tests.engine_under_test.builders import NodeSpan, node_spans
from tests.engine_under_test.host.bench import HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, HostBench, copies

LONG, OTHER = list(range(100, 120)), list(range(200, 220))
ALL_CONFIGS = pytest.mark.parametrize(
    "config", [HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY], ids=["hybrid", "full only", "swa only"]
)


def on_host_only(config=HOSTED, tokens=LONG[:8]) -> HostBench:
    """A cache whose tokens are on the host only."""
    bench = HostBench(config)
    bench.insert_on_host(tokens)
    return bench


def without_window() -> HostBench:
    """A cache with the windowed pages of [0, 12) on the host only."""
    bench = HostBench()
    bench.insert_with_copy(LONG)
    bench.cache.evict({"swa": 1})
    return bench


def causes(bench: HostBench, job: int) -> list[tuple[str, str]]:
    """The pool and the cause of each free by a load."""
    owner = copy_job_owner(job, to_host=False)
    return [(freed.pool, freed.cause) for freed in bench.log.of(Freed) if freed.owner == owner]


def pages(bench: HostBench) -> dict[str, int]:
    """The number of pages that the last job moves, by pool."""
    return {pool: len(here) for pool, here, _ in bench.log.of(CopyBegan)[-1].pages}


@ALL_CONFIGS
def test_acknowledged_load_restores_the_prefix_and_keeps_its_copy(config):
    bench = on_host_only(config)
    everywhere = [NodeSpan(0, 8, " ".join(pool.name for pool in config.pools))]
    bench.load([*LONG[:8], 1])
    before = bench.match([*LONG[:8], 1]).length

    bench.settle()

    assert (before, bench.match([*LONG[:8], 1]).length) == (0, 8)
    assert bench.content([*LONG[:8], 1]) == {pool.name: LONG[:8] for pool in config.pools}
    assert (node_spans(bench.tree), copies(bench.tree)) == (everywhere, everywhere)


def test_only_windowed_pages_that_are_read_are_loaded():
    bench = on_host_only(tokens=LONG)

    bench.load([*LONG[:16], 1])

    assert pages(bench) == {"full": 4, "swa": 2}


def test_only_the_window_is_loaded_when_full_pages_are_live():
    bench = without_window()
    bench.load([*LONG[:8], 1])

    bench.settle()

    assert (pages(bench), bench.content([*LONG[:8], 1])) == ({"swa": 2}, {"full": LONG[:8], "swa": LONG[:8]})


def test_pages_on_the_device_are_not_loaded():
    bench = on_host_only(tokens=LONG)
    bench.load([*LONG[:8], 1])
    bench.settle()

    bench.load([*LONG, 1])

    assert pages(bench) == {"full": 3, "swa": 2}


def test_pages_of_a_load_in_flight_are_neither_free_nor_evictable():
    bench = on_host_only()
    bench.load([*LONG[:8], 1])

    bench.cache.flush()

    assert (bench.device.free, bench.device.evictable) == ({"full": 14, "swa": 10}, {"full": 0, "swa": 0})


def test_copy_that_a_load_reads_is_not_dropped():
    bench = on_host_only()
    bench.load([*LONG[:8], 1])

    bench.tier.flush()

    assert (copies(bench.tree), bench.host_free()) == ([NodeSpan(0, 8, "full swa")], {"host full": 30, "host swa": 22})


def test_copied_window_that_a_load_reads_is_not_dropped():
    bench = HostBench(replace(HOSTED, host_swa_pages=6))
    bench.insert_with_copy(LONG)
    bench.cache.evict({"swa": 1})
    bench.load([*LONG[:8], 1])

    bench.insert_with_copy(OTHER)

    assert [copy.live for copy in copies(bench.tree)] == ["full swa", "full", "full", "full swa", ""]


def test_failed_load_frees_its_pages_and_keeps_the_copy():
    bench = on_host_only()
    job = bench.load([*LONG[:8], 1])
    bench.store.fail(job)

    bench.tier.poll()

    assert (bench.device.free, node_spans(bench.tree)) == ({"full": 16, "swa": 12}, [NodeSpan(0, 8, "")])
    assert copies(bench.tree) == [NodeSpan(0, 8, "full swa")]
    assert causes(bench, job) == [("full", "load failed"), ("swa", "load failed")]
    assert bench.log.of(CopyEnded)[-1] == CopyEnded(job, "the copy failed")


def test_other_pages_are_evicted_for_a_load():
    bench = on_host_only(replace(HOSTED, full_pages=8, swa_pages=8), LONG)
    bench.insert(OTHER)

    bench.load([*LONG, 1])

    assert (bench.device.free, bench.match([*OTHER, 1]).length) == ({"full": 0, "swa": 3}, 12)


def test_node_split_during_its_load_is_restored_in_two_parts():
    bench = on_host_only()
    bench.load([*LONG[:8], 1])
    bench.insert([*LONG[:4], *OTHER[:4]])

    bench.settle()

    assert (node_spans(bench.tree)[:2], bench.content([*LONG[:8], 1])) == (
        [NodeSpan(0, 4, "full swa"), NodeSpan(4, 8, "full swa")],
        {"full": LONG[:8], "swa": LONG[:8]},
    )


def test_backup_in_flight_is_not_found_as_a_load():
    bench = without_window()
    bench.insert(LONG[:16] + OTHER[:4])
    bench.tier.back_up()

    assert bench.store.begun
    assert bench.tier.load_under_way(bench.match([*LONG[:8], 1])) is None
