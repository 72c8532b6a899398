"""Backups: what the host gets a copy of, when the tree has it, and what makes room for it."""

import pytest

from engine_under_test.events import Freed, TransferBegan, TransferEnded
from engine_under_test.host.transfers import transfer_owner
from tests.engine_under_test.builders import Stretch, locks, stretches
from tests.engine_under_test.host.bench import (
    HOSTED,
    HOSTED_FULL_ONLY,
    HOSTED_SWA_ONLY,
    HostBench,
    copies,
)

LONG, OTHER, THIRD = list(range(100, 120)), list(range(200, 220)), list(range(300, 320))
NOTHING_YET = [Stretch(0, 12, ""), Stretch(12, 20, "")]
ALL = [Stretch(0, 12, "full swa"), Stretch(12, 20, "full swa")]
FIRST_BACKUP = transfer_owner(1, to_host=True)


def under_way(tokens=LONG, config=HOSTED) -> HostBench:
    """A cache whose first backup has begun."""
    bench = HostBench(config)
    bench.cached(tokens)
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
def test_the_host_gets_a_copy_of_what_is_published(config, pools):
    bench = HostBench(config)

    bench.copied(LONG[:8])

    assert copies(bench.tree) == [Stretch(0, 8, pools)]


def test_a_copy_says_what_the_device_says():
    bench = HostBench()

    bench.copied(LONG[:8])

    [node] = bench.nodes()
    held = [
        bench.on_host.store.kv(pool.name)[pages].flatten().tolist()
        for pool, pages in zip(bench.on_host.pools, node.host.pages, strict=True)
    ]
    assert held == [LONG[:8], LONG[:8]]


def test_a_copy_is_there_when_it_is_acknowledged_and_not_before():
    bench = under_way()
    before = copies(bench.tree)

    bench.settle()

    assert (before, copies(bench.tree)) == (NOTHING_YET, ALL)


def test_a_node_is_copied_with_those_before_it_that_have_no_copy():
    bench = under_way()

    [began] = bench.heard.of(TransferBegan)
    assert (began.to_host, [(pool, len(here), len(there)) for pool, here, there in began.pages]) == (
        True,
        [("full", 5, 5), ("swa", 5, 5)],
    )


def test_in_a_window_alone_a_node_is_copied_by_itself():
    bench = under_way(config=HOSTED_SWA_ONLY)

    began = bench.heard.of(TransferBegan)
    assert [(pool, len(here)) for one in began for pool, here, _ in one.pages] == [("swa", 2), ("swa", 3)]


def test_until_it_is_acknowledged_nothing_of_it_can_be_evicted():
    bench = under_way()

    bench.cache.flush()

    assert (bench.device.evictable, stretches(bench.tree)) == ({"full": 0, "swa": 0}, ALL)


def test_when_it_is_acknowledged_nothing_is_locked_any_more():
    bench = under_way()

    bench.settle()

    assert (locks(bench.tree, "full"), locks(bench.tree, "swa")) == (
        {(0, 12): 0, (12, 20): 0},
        {(0, 12): 0, (12, 20): 0},
    )


def test_a_backup_that_fails_leaves_the_host_as_it_was():
    bench = under_way()
    bench.hand.fail(1)

    bench.tier.poll()

    assert (copies(bench.tree), bench.host_free(), bench.heard.of(TransferEnded)) == (
        NOTHING_YET,
        {"host full": 32, "host swa": 24},
        [TransferEnded(1, "the copy failed")],
    )


def test_what_was_not_copied_is_freed_with_the_reason():
    bench = under_way(LONG[:4])
    bench.hand.fail(1)

    bench.tier.poll()

    assert [freed for freed in bench.heard.of(Freed) if freed.owner == FIRST_BACKUP] == [
        Freed("host full", (32,), FIRST_BACKUP, "backup failed", 0),
        Freed("host swa", (24,), FIRST_BACKUP, "backup failed", 0),
    ]


def test_what_could_not_be_copied_is_copied_when_it_is_found_again():
    bench = under_way()
    bench.hand.fail(1)
    bench.tier.poll()

    bench.tier.found(bench.match([*LONG, 1]).node)
    bench.tier.back_up()
    bench.settle()

    assert copies(bench.tree) == ALL


def test_what_goes_on_from_a_backup_under_way_waits_for_it():
    bench = under_way(LONG[:8])
    bench.cached(LONG)
    bench.tier.back_up()
    waiting = list(bench.hand.begun)

    bench.settle()
    bench.tier.back_up()

    assert (waiting, list(bench.hand.begun)) == ([1], [2])


def test_what_is_under_way_is_not_begun_again():
    bench = under_way()

    bench.tier.published(bench.match([*LONG, 1]).node)
    bench.tier.back_up()

    assert list(bench.hand.begun) == [1]


def test_what_has_a_copy_is_not_copied_again():
    bench = HostBench()
    bench.copied(LONG)

    bench.copied(LONG)

    assert len(bench.heard.of(TransferBegan)) == 1


def test_what_has_left_the_tree_meanwhile_is_not_copied():
    bench = HostBench()
    bench.cached(LONG)
    bench.cache.flush()

    bench.tier.back_up()

    assert (bench.hand.begun, stretches(bench.tree)) == ({}, [])


def test_of_a_tombstone_the_copy_is_a_tombstone():
    bench = HostBench()

    bench.copied(LONG, slid=True)

    assert copies(bench.tree) == [Stretch(0, 12, "full"), Stretch(12, 20, "full swa")]


def test_where_the_window_came_back_the_host_gets_the_window_alone():
    bench = HostBench()
    bench.copied(LONG, slid=True)

    bench.copied(LONG[:8])

    began = bench.heard.of(TransferBegan)[-1]
    assert ([pool for pool, _, _ in began.pages], copies(bench.tree)[0]) == (["swa"], Stretch(0, 8, "full swa"))


def test_a_node_that_is_split_under_way_gets_its_copy_in_two():
    bench = under_way(LONG[:8])
    bench.cached([*LONG[:4], *OTHER[:4]])

    bench.settle()

    assert copies(bench.tree) == [Stretch(0, 4, "full swa"), Stretch(4, 8, "full swa"), Stretch(4, 8, "")]
