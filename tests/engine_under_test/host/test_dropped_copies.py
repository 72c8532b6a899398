"""Host pages for backups: which copies are dropped for a backup, and which stay."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.host.copy_jobs import copy_job_owner
from swarden.invariants.events import CopyDropped, CopyEnded, Freed
from tests.engine_under_test.builders import NodeSpan, locks, node_spans
from tests.engine_under_test.host.bench import (
    HOSTED,
    HOSTED_FULL_ONLY,
    SELECTIVE,
    HostBench,
    copies,
)

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))


def short_of_host(*, full: int = 32, swa: int = 24, config=HOSTED) -> HostBench:
    return HostBench(replace(config, host_full_pages=full, host_swa_pages=swa))


@pytest.mark.parametrize(("full", "swa"), [pytest.param(2, 24, id="full"), pytest.param(32, 2, id="swa")])
def test_backup_larger_than_the_host_pool_is_not_started(full, swa):
    bench = short_of_host(full=full, swa=swa)
    bench.insert(LONG)

    bench.tier.back_up()

    assert (bench.store.begun, bench.host_free(), locks(bench.tree, "full")) == (
        {},
        {"host full": full, "host swa": swa},
        {(0, 12): 0, (12, 20): 0},
    )


def test_least_recently_used_copy_is_dropped():
    bench = short_of_host(full=4)
    for tokens in (LONG, OTHER):
        bench.insert_with_copy(tokens[:8])
    bench.device.leave(bench.device.start([*LONG[:8], 1]))

    bench.insert_with_copy(THIRD[:8])

    assert [copy.live for copy in copies(bench.tree)] == ["full swa", "", "full swa"]


@pytest.mark.parametrize(
    ("full", "swa", "dropped", "left"),
    [
        pytest.param(2, 24, ("full", "swa"), "", id="all for full pages"),
        pytest.param(32, 2, ("swa",), "full", id="its window for swa pages"),
    ],
)
def test_only_the_copied_window_is_dropped_for_swa_pages(full, swa, dropped, left):
    bench = short_of_host(full=full, swa=swa)
    bench.insert_with_copy(LONG[:8])
    [node] = bench.nodes()

    bench.insert_with_copy(OTHER[:8])

    assert [copy.live for copy in copies(bench.tree)] == [left, "full swa"]
    assert bench.log.of(CopyDropped) == [CopyDropped(node.id, dropped)]


@pytest.mark.parametrize(
    ("full", "swa", "held"),
    [
        pytest.param(3, 24, ["full swa", ""], id="the copy stays"),
        pytest.param(32, 3, ["full", "full swa"], id="only its window is dropped"),
    ],
)
def test_copy_of_the_parent_is_not_dropped_for_a_backup(full, swa, held):
    bench = short_of_host(full=full, swa=swa)
    bench.insert_with_copy(LONG[:8])

    bench.insert_with_copy(LONG[:16])

    assert [copy.live for copy in copies(bench.tree)] == held


@pytest.mark.parametrize(
    ("config", "held"),
    [
        pytest.param(HOSTED, ["full swa", "full swa", "", "full swa"], id="hybrid"),
        pytest.param(HOSTED_FULL_ONLY, ["full", "", "full"], id="full only"),
    ],
)
def test_no_copy_is_dropped_for_a_backup_that_does_not_fit_beside_its_parent(config, held):
    bench = HostBench(replace(config, host_full_pages=4))
    for tokens in (LONG[:12], OTHER[:4], LONG):
        bench.insert_with_copy(tokens)

    assert ([copy.live for copy in copies(bench.tree)], bench.log.of(CopyDropped)) == (held, [])


def test_no_copy_is_dropped_for_a_backup_that_does_not_fit_beside_a_load():
    """A load reads two of the four host pages, and the backup needs three."""
    bench = HostBench(replace(HOSTED_FULL_ONLY, host_full_pages=4))
    bench.insert_on_host(OTHER[:8])
    bench.insert_with_copy(LONG[:8])
    bench.load([*OTHER[:8], 1])
    bench.insert(THIRD[:12])

    bench.tier.back_up()

    assert ([copy.live for copy in copies(bench.tree)], bench.log.of(CopyDropped)) == (["full", "full", ""], [])


def test_copy_kept_from_a_larger_backup_is_dropped_for_a_smaller_one():
    """The copy of LONG is still the least recently used one."""
    bench = HostBench(replace(HOSTED_FULL_ONLY, host_full_pages=2))
    for tokens in (LONG[:8], OTHER[:12], THIRD[:4]):
        bench.insert_with_copy(tokens)

    assert [copy.live for copy in copies(bench.tree)] == ["", "", "full"]


def test_node_on_the_host_only_is_removed_with_its_copy():
    bench = short_of_host(full=2)
    bench.insert_on_host(LONG[:8])

    bench.insert_with_copy(OTHER[:8])

    assert node_spans(bench.tree) == [NodeSpan(0, 8, "full swa")]


def test_backup_whose_parent_lost_its_copy_is_freed():
    """The copy of [0, 8) is dropped while the backup of its child [8, 16) is in flight."""
    bench = short_of_host(full=4, config=SELECTIVE)
    bench.insert(LONG[:16])
    upper, lower = bench.nodes()[0], bench.nodes()[-1]
    bench.tier.found(upper)
    bench.tier.back_up()
    bench.settle()
    bench.tier.found(lower)
    bench.tier.back_up()
    bench.tier.flush()

    bench.settle()

    assert ([copy.live for copy in copies(bench.tree)], bench.host_free(), bench.log.of(CopyEnded)[-1]) == (
        ["", ""],
        {"host full": 4, "host swa": 24},
        CopyEnded(2, None),
    )


def test_unused_backup_is_freed_with_that_cause():
    bench = HostBench()
    bench.insert_with_copy(LONG[:4])
    bench.insert(LONG[:8])
    bench.tier.back_up()
    bench.tier.flush()

    bench.settle()

    owner = copy_job_owner(2, to_host=True)
    assert [freed.cause for freed in bench.log.of(Freed) if freed.owner == owner] == ["backup unused"] * 2


def test_flush_drops_every_copy_and_removes_nodes_on_the_host_only():
    bench = HostBench()
    bench.insert_with_copy(LONG)
    bench.insert_on_host(OTHER)
    bench.insert_with_copy(THIRD)

    bench.tier.flush()

    assert (copies(bench.tree), bench.host_free()) == (
        [NodeSpan(0, 12, ""), NodeSpan(12, 20, "")],
        {"host full": 32, "host swa": 24},
    )
