"""Host pages for backups: which copies are dropped for a backup, and which stay."""

from dataclasses import replace

import pytest

from swarden.invariants.events import CopyDropped, CopyEnded
from tests.engine_under_test.builders import NodeSpan
from tests.engine_under_test.host.bench import HOSTED, HOSTED_FULL_ONLY, SELECTIVE, HostBench, copies

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))


def short_of_host(*, full: int = 32, swa: int = 24, config=HOSTED) -> HostBench:
    return HostBench(replace(config, host_full_pages=full, host_swa_pages=swa))


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
