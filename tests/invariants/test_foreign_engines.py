"""The same invariants check engines of another design: one pool for all layers, or slots instead of pages."""

from dataclasses import replace

import pytest

from swarden.harness.report.wording import evidence_text, subject_text
from swarden.invariants.catalog import ALL, CONTRACTS, EvaluationCounts, Tally, catalog_of
from swarden.invariants.events import Freed, Launched, Owner, Taken
from swarden.invariants.limits import Limits
from swarden.invariants.transition import Transition
from swarden.invariants.view import (
    ComponentView,
    Counters,
    Holding,
    LaunchView,
    PeerMap,
    PoolView,
    RecordView,
    RequestView,
    Snapshot,
)

R1, R2, CACHE, BLOCKS_OF_R2 = Owner("request", 1), Owner("request", 2), Owner("tree"), (5, 6)
LIMITS = Limits(16, 8, 1024, 128, 0, 0)

# One pool of blocks serves two groups of layers.  A cached block without readers is in the engine's free queue; the
# adapter lists it as cached, with the number of its readers as locks.
ONE_POOL = Snapshot(
    step=1,
    limits=LIMITS,
    components=(ComponentView("blocks", None, 16), ComponentView("blocks", 32, 16)),
    pools=(
        PoolView(
            "blocks",
            "block",
            10,
            [7, 8, 9, 10],
            (),
            [
                Holding(CACHE, (1, 2), cached=True, locks=0),
                Holding(CACHE, (3,), cached=True, locks=2),
                Holding(R1, (4,), cached=False),
                Holding(R2, BLOCKS_OF_R2, cached=False),
            ],
        ),
    ),
    peer_maps=None,
    nodes=None,
    receipts=None,
    records=None,
    requests=(RequestView(1, "running", 0, 20, 3, 9), RequestView(2, "running", 0, 20, 3, 9)),
    counters=None,
)

# Two pools of slots, a token each; a map by slot has the windowed slot of each token.
BY_SLOT = PeerMap("kv", "kv windowed", (0, 0, 0, 1, 0, 2, 3, 0, 0))
SLOTS = Snapshot(
    step=1,
    limits=LIMITS._replace(page_size=1),
    components=(ComponentView("kv", None, 1), ComponentView("kv windowed", 3, 1)),
    pools=(
        PoolView(
            "kv",
            "slot",
            8,
            [7, 8],
            (),
            [Holding(CACHE, (1, 2, 3), cached=True, locks=1), Holding(R1, (4, 5, 6), cached=False)],
        ),
        PoolView(
            "kv windowed",
            "slot",
            6,
            [4, 5, 6],
            (),
            [Holding(CACHE, (1,), cached=True, locks=1), Holding(R1, (2, 3), cached=False)],
        ),
    ),
    peer_maps=(BY_SLOT,),
    nodes=None,
    receipts=None,
    records=None,
    requests=(RequestView(1, "running", 0, 3, 3, 9),),
    counters=None,
)


# The same engine while a pass is in flight: r2 has computed 44 tokens, r1 has its first 16 from the cache.  A table has
# the null block before the window.  A block that a pass still reads may be reused at once, because passes run in order.
# Its counter of free blocks counts the blocks of its queue without the cached ones.
TABLES = (
    RecordView(R1, 1, 16, 20, 21, 32, (0, 0), ((3, 4), (11, 12)), (3, 4), 0, 0),
    RecordView(R2, 2, 0, 44, 44, 48, (0, 16), ((5, 6, 8), (0, 13, 14)), (5, 6, 8), 0, 0),
)
ASYNC = replace(
    ONE_POOL,
    components=(ComponentView("blocks", None, 16), ComponentView("blocks", 12, 16)),
    limits=LIMITS._replace(most_launches=2, reuses_in_launch_order=True, lookahead_len=4),
    pools=(
        replace(
            ONE_POOL.pools[0],
            capacity=14,
            free=[7, 9, 10],
            holdings=[
                Holding(CACHE, (1, 2), cached=True, locks=0),
                Holding(CACHE, (3, 11), cached=True, locks=1),
                Holding(R1, (4, 12), cached=False),
                Holding(R2, (5, 6, 8, 13, 14), cached=False),
            ],
        ),
    ),
    records=TABLES,
    launches=(LaunchView(5, ((1, 20, 21),), (((3, 4), (11, 12)),)),),
    counters=Counters(free={"blocks": 3}, evictable={}, protected={}, new_token_ratio=0),
)

# Pages of four slots; the map is by slot, and the last page of a request is partly filled.
PAGE_OF_SLOTS = PeerMap("kv", "kv windowed", (*[0] * 8, 4, 5, 6, 7, 8, 9, 0, 0), slots=4)
PAGED_SLOTS = replace(
    SLOTS,
    limits=LIMITS._replace(page_size=4),
    components=tuple([component._replace(page_size=4) for component in SLOTS.components]),
    pools=(
        PoolView(
            "kv", "page", 3, [], (), [Holding(CACHE, (1, 2), cached=True, locks=1), Holding(R1, (3,), cached=False)]
        ),
        PoolView(
            "kv windowed", "page", 3, [3], (), [Holding(CACHE, (1,), cached=True), Holding(R1, (2,), cached=False)]
        ),
    ),
    peer_maps=(PAGE_OF_SLOTS,),
)

# These engines do not report when units become peers, and evict blocks while others are free.
CATALOG = catalog_of(CONTRACTS - {"pairing", "needed_evictions"})


def found(before, after, *events):
    return [
        (one.law, f"{subject_text(one.subject)}: {evidence_text(one)}")
        for one in CATALOG.check(Transition(before, events, after), Tally())
    ]


def with_pool(snapshot, name, **changes):
    pools = tuple(replace(pool, **changes) if pool.name == name else pool for pool in snapshot.pools)
    return replace(snapshot, pools=pools)


def with_peers(changes):
    changed = [changes.get(slot, peer) for slot, peer in enumerate(BY_SLOT.peers)]
    return replace(SLOTS, peer_maps=(BY_SLOT._replace(peers=changed),))


def test_engine_with_one_pool_for_all_layers_has_no_violation():
    """The engine takes an evictable block, which is reported as freed by the cache first."""
    taken = with_pool(
        ONE_POOL,
        "blocks",
        holdings=[
            Holding(CACHE, (1,), cached=True, locks=0),
            Holding(CACHE, (3,), cached=True, locks=2),
            Holding(R1, (4, 2), cached=False),
            Holding(R2, BLOCKS_OF_R2, cached=False),
        ],
    )

    assert found(ONE_POOL, taken, Freed("blocks", (2,), CACHE, "evicted", 0), Taken("blocks", (2,), R1)) == []


@pytest.mark.parametrize(
    ("changes", "events", "expected"),
    [
        pytest.param(
            {"free": [7, 8, 9]},
            (),
            [
                ("unit_has_one_owner", "block 10: no owner"),
                (
                    "pools_conserve_units",
                    "blocks: capacity 10 = free 3 + cached 3 (evictable 2, protected 1)"
                    " + uncached 3 (request r1 1, request r2 2): one too few",
                ),
            ],
            id="leak",
        ),
        pytest.param(
            {"free": [3, 7, 8, 9]},
            (Freed("blocks", (3,), R1, "finished", 0),),
            [
                ("units_move_only_by_their_owner", "block 3: freed by request r1 (finished), but its owner was tree"),
                ("unit_has_one_owner", "block 3: owned by free and tree"),
                ("unit_has_one_owner", "block 10: no owner"),
            ],
            id="freed-while-cached",
        ),
        pytest.param(
            {},
            (Taken("blocks", (3,), R2), Freed("blocks", (3,), R2, "finished", 0)),
            [("units_move_only_by_their_owner", "block 3: taken by request r2, but its owner was tree")],
            id="taken-while-cached",
        ),
    ],
)
def test_violations_of_an_engine_with_one_pool_for_all_layers_are_found(changes, events, expected):
    assert found(ONE_POOL, with_pool(ONE_POOL, "blocks", **changes), *events) == expected


def test_engine_that_maps_slots_has_no_violation():
    assert found(SLOTS, SLOTS) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(
            with_peers({7: 4}),
            [
                ("peers_are_unique_and_live", "kv slot 7: its peer kv windowed slot 4 is free"),
                ("free_units_have_no_peer", "kv slot 7: free, but its peer is kv windowed slot 4"),
            ],
            id="stale-map",
        ),
        pytest.param(
            with_peers({4: 3}),
            [("peers_are_unique_and_live", "kv windowed slot 3: the peer of both kv slot 4 and kv slot 6")],
            id="one-peer-of-two-slots",
        ),
        pytest.param(
            with_peers({6: 0}),
            [
                (
                    "held_follower_units_are_peers",
                    "kv windowed slot 3: owned by request r1, but the peer of no unit of kv",
                )
            ],
            id="lost",
        ),
        pytest.param(
            with_peers({3: 2, 5: 1}),
            [
                (
                    "peers_share_their_owner",
                    "kv slot 3: owned by tree, but its peer kv windowed slot 2 is owned by request r1",
                ),
                (
                    "peers_share_their_owner",
                    "kv slot 5: owned by request r1, but its peer kv windowed slot 1 is owned by tree",
                ),
            ],
            id="exchanged",
        ),
    ],
)
def test_violations_of_an_engine_that_maps_slots_are_found(after, expected):
    assert found(SLOTS, after) == expected


def test_engine_that_reuses_blocks_in_the_order_of_its_passes_has_no_violation():
    """A window slides while a pass reads it: the null block replaces the block, which another request may take."""
    slid = TABLES[1]._replace(frontiers=(0, 32), units=((5, 6, 8), (0, 0, 14)))
    grown = TABLES[0]._replace(launched_len=22)
    after = replace(
        ASYNC,
        records=(grown, slid),
        launches=(*(ASYNC.launches or ()), LaunchView(6, ((1, 21, 22),), (((3, 4), (11, 12)),))),
    )

    assert found(ASYNC, after, Launched(6, ((1, 21, 22),))) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"records": (TABLES[0]._replace(units=((3, 4), (2, 12))), TABLES[1])},
            [
                ("cached_units_count_their_readers", "block 2: counts 0 readers, but 1 tables name it"),
                ("cached_units_count_their_readers", "block 11: counts 1 readers, but 0 tables name it"),
            ],
            id="reader-not-counted",
        ),
        pytest.param(
            {"counters": Counters(free={"blocks": 4}, evictable={}, protected={}, new_token_ratio=0)},
            [("free_counters_match_pools", "blocks: the engine counts 4 free units, there are 3")],
            id="free-counter",
        ),
        pytest.param(
            {"pools": (replace(ASYNC.pools[0], free=[3, 7, 9, 10]),)},
            [
                ("unit_has_one_owner", "block 3: owned by free and tree"),
                (
                    "pools_conserve_units",
                    "blocks: capacity 14 = free 4 + cached 4 (evictable 2, protected 2)"
                    " + uncached 7 (request r1 2, request r2 5): one too many",
                ),
                ("free_counters_match_pools", "blocks: the engine counts 3 free units, there are 4"),
            ],
            id="in-the-free-queue-while-read",
        ),
        pytest.param(
            {"records": (TABLES[0], TABLES[1]._replace(units=((5, 6, 8), (0, 0, 14))))},
            [("private_pages_match_frontier", "request r2: no blocks page for positions [16, 32)")],
            id="null-block-inside-the-window",
        ),
        pytest.param(
            {"records": (TABLES[0], TABLES[1]._replace(units=((5, 6, 8), (0, 6, 14))))},
            [
                (
                    "unit_stands_in_one_table_place",
                    "block 6: in the tables of request r2 and request r2, in components 0, 1, at page indices 1, 1",
                )
            ],
            id="one-block-for-two-groups",
        ),
    ],
)
def test_violations_of_an_engine_that_counts_references_are_found(changes, expected):
    assert found(ASYNC, replace(ASYNC, **changes)) == expected


def with_two_windows(frontiers):
    """The engine with a third group of layers, with a larger window; r2 is its only request."""
    units = ((5, 6, 8), (0, 0, 14), (0, 13, 4))
    holdings = [Holding(R2, (4, 5, 6, 8, 13, 14), cached=False)]
    return replace(
        ASYNC,
        components=(*ASYNC.components, ComponentView("blocks", 28, 16)),
        pools=(replace(ASYNC.pools[0], free=[1, 2, 3, 7, 9, 10, 11, 12], holdings=holdings),),
        counters=None,
        launches=(),
        requests=(RequestView(2, "running", 0, 20, 3, 9),),
        records=(TABLES[1]._replace(frontiers=frontiers, units=units),),
    )


def test_each_window_has_its_own_frontier():
    healthy, late, early = map(with_two_windows, ((0, 32, 16), (0, 32, 32), (0, 16, 16)))

    assert found(healthy, healthy) == []
    assert [law for law, _ in found(healthy, late)] == ["frontiers_spare_the_window", "private_pages_match_frontier"]
    assert found(healthy, early) == [
        ("private_pages_match_frontier", "request r2: no blocks page for positions [16, 32)")
    ]


def test_free_of_the_null_block_is_found():
    evidence = "block 0: freed by request r2, but ids run from 1 to 14"

    assert found(ASYNC, ASYNC, Freed("blocks", (0,), R2, "slid", 0)) == [("padding_unit_is_never_moved", evidence)]


def test_engine_with_pages_of_mapped_slots_has_no_violation():
    assert found(PAGED_SLOTS, PAGED_SLOTS) == []


def test_page_whose_slots_have_peers_in_two_pages_is_found():
    strayed = (*PAGE_OF_SLOTS.peers[:12], 8, 13, 0, 0)

    assert found(PAGED_SLOTS, replace(PAGED_SLOTS, peer_maps=(PAGE_OF_SLOTS._replace(peers=strayed),))) == [
        ("peers_are_unique_and_live", "kv page 3: its peer kv windowed page 3 is free"),
        ("held_follower_units_are_peers", "kv windowed page 2: owned by request r1, but the peer of no unit of kv"),
        ("peers_share_their_owner", "kv page 3: owned by request r1, but its peer kv windowed page 3 is owned by free"),
        (
            "slot_peers_keep_their_offset",
            "kv page 3: the peers of its slots are 8, 13, 0, 0, not all in kv windowed page 3 at the same offset",
        ),
    ]


def test_laws_of_missing_parts_are_not_evaluated():
    """Without tree, records and launches their laws are not applicable, which is not a pass."""
    tally = Tally()

    ALL.check(Transition(ONE_POOL, (), ONE_POOL), tally)

    missing = {"nodes", "records", "receipts", "launches"}
    assert tally["unit_has_one_owner"] == EvaluationCounts(evaluated=1)
    counts = [tally.get(law.name, EvaluationCounts()) for law in ALL.invariants if law.needs & missing]
    assert not any(count.evaluated for count in counts)
    assert any(count.not_applicable for count in counts)
