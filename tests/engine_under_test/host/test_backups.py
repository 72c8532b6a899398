"""Backups: the nodes that are copied, the moment when the tree gets the copy, and failures."""

import pytest

from swarden.engine_under_test.host.copy_jobs import copy_job_owner
from swarden.invariants.events import CopyBegan, CopyEnded, Freed
from tests.engine_under_test.builders import NodeSpan
from tests.engine_under_test.host.bench import HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, HostBench, copies

LONG = list(range(100, 120))
NO_COPIES = [NodeSpan(0, 12, ""), NodeSpan(12, 20, "")]
ALL = [NodeSpan(0, 12, "full swa"), NodeSpan(12, 20, "full swa")]


def backup_in_flight() -> HostBench:
    """A cache whose first backup is in flight."""
    bench = HostBench()
    bench.insert(LONG)
    bench.tier.back_up()
    return bench


@pytest.mark.parametrize(
    ("config", "pools"),
    [
        pytest.param(HOSTED, "full swa", id="hybrid"),
        pytest.param(HOSTED_FULL_ONLY, "full", id="full only"),
        pytest.param(HOSTED_SWA_ONLY, "swa", id="swa only"),
    ],
)
def test_published_node_is_copied_to_the_host(config, pools):
    bench = HostBench(config)

    bench.insert_with_copy(LONG[:8])

    [node] = bench.nodes()
    held = [
        bench.on_host.store.kv(pool.name)[pages].flatten().tolist()
        for pool, pages in zip(bench.on_host.pools, node.host.pages, strict=True)
    ]
    assert (copies(bench.tree), held) == ([NodeSpan(0, 8, pools)], [LONG[:8]] * len(config.pools))


def test_tree_gets_the_copy_when_it_is_acknowledged():
    bench = backup_in_flight()
    before = copies(bench.tree)

    bench.settle()

    assert (before, copies(bench.tree)) == (NO_COPIES, ALL)


def test_failed_backup_leaves_no_copy():
    bench = backup_in_flight()
    bench.store.fail(1)

    bench.tier.poll()

    owner = copy_job_owner(1, to_host=True)
    assert (copies(bench.tree), bench.host_free()) == (NO_COPIES, {"host full": 32, "host swa": 24})
    assert bench.log.of(CopyEnded) == [CopyEnded(1, "the copy failed")]
    assert {freed.cause for freed in bench.log.of(Freed) if freed.owner == owner} == {"backup failed"}


def test_node_of_a_failed_backup_is_copied_after_its_next_match():
    bench = backup_in_flight()
    bench.store.fail(1)
    bench.tier.poll()

    bench.tier.found(bench.match([*LONG, 1]).node)
    bench.tier.back_up()
    bench.settle()

    assert copies(bench.tree) == ALL


def test_backup_in_flight_is_not_started_again():
    bench = backup_in_flight()

    bench.tier.published(bench.match([*LONG, 1]).node)
    bench.tier.back_up()

    assert list(bench.store.begun) == [1]


def test_node_with_a_copy_is_not_copied_again():
    bench = HostBench()
    bench.insert_with_copy(LONG)

    bench.insert_with_copy(LONG)

    assert len(bench.log.of(CopyBegan)) == 1


def test_copy_of_a_tombstone_has_no_windowed_pages():
    bench = HostBench()

    bench.insert_with_copy(LONG, slid=True)

    assert copies(bench.tree) == [NodeSpan(0, 12, "full"), NodeSpan(12, 20, "full swa")]


def test_only_the_window_of_a_recovered_tombstone_is_copied():
    bench = HostBench()
    bench.insert_with_copy(LONG, slid=True)

    bench.insert_with_copy(LONG[:8])

    began = bench.log.of(CopyBegan)[-1]
    assert ([pool for pool, _, _ in began.pages], copies(bench.tree)[0]) == (["swa"], NodeSpan(0, 8, "full swa"))
