"""The same invariants judge engines of another build: one pool for all layers, or slots instead of pages."""

from dataclasses import replace

import pytest

from invariants.base import Transition
from invariants.catalog import Tally, check
from invariants.events import Freed, Taken
from invariants.view import (
    ComponentView,
    Holding,
    Limits,
    Owner,
    PeerMap,
    PoolView,
    RequestView,
    Snapshot,
)

R1, R2, CACHE, BLOCKS_OF_R2 = Owner("request", 1), Owner("request", 2), Owner("tree"), (5, 6)
LIMITS = Limits(16, 8, 1024, 128, 0, 0)

# One queue of blocks serves two groups of layers.  A cached block that nobody reads stands in the free
# queue; the adapter lists it as cached, with the number of its readers as locks.
ONE_POOL = Snapshot(
    step=1,
    limits=LIMITS,
    components=(ComponentView("blocks", None), ComponentView("blocks", 32)),
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
    claims=None,
)

# Two pools of slots, a token each; the windowed slot of a token is found through a map by slot.
BY_SLOT = PeerMap("kv", "kv windowed", (0, 0, 0, 1, 0, 2, 3, 0, 0))
SLOTS = Snapshot(
    step=1,
    limits=LIMITS._replace(page_size=1),
    components=(ComponentView("kv", None), ComponentView("kv windowed", 3)),
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
    claims=None,
)


def found(before, after, *events):
    return [(one.invariant, f"{one.subject}: {one.detail}") for one in check(Transition(before, events, after), {})]


def with_pool(snapshot, name, **changes):
    books = tuple(replace(pool, **changes) if pool.name == name else pool for pool in snapshot.pools)
    return replace(snapshot, pools=books)


def with_peers(changes):
    changed = [changes.get(slot, peer) for slot, peer in enumerate(BY_SLOT.peers)]
    return replace(SLOTS, peer_maps=(BY_SLOT._replace(peers=changed),))


def test_an_engine_with_one_pool_for_all_layers_is_healthy():
    """An evictable block is taken as one that the cache gives up first."""
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
    ("changes", "events", "complaints"),
    [
        pytest.param(
            {"free": [7, 8, 9]},
            (),
            [
                ("each_unit_has_one_owner", "blocks block 10: owned by nobody"),
                (
                    "pools_conserve_their_units",
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
                (
                    "units_move_only_by_their_owner",
                    "blocks block 3: freed by request r1 (finished), yet it is owned by tree",
                ),
                ("each_unit_has_one_owner", "blocks block 3: owned by free and tree"),
                ("each_unit_has_one_owner", "blocks block 10: owned by nobody"),
            ],
            id="freed-while-cached",
        ),
        pytest.param(
            {},
            (Taken("blocks", (3,), R2), Freed("blocks", (3,), R2, "finished", 0)),
            [("units_move_only_by_their_owner", "blocks block 3: taken by request r2, yet it is owned by tree")],
            id="taken-while-cached",
        ),
    ],
)
def test_an_engine_with_one_pool_for_all_layers_is_judged(changes, events, complaints):
    assert found(ONE_POOL, with_pool(ONE_POOL, "blocks", **changes), *events) == complaints


def test_an_engine_that_maps_slots_is_healthy():
    assert found(SLOTS, SLOTS) == []


@pytest.mark.parametrize(
    ("after", "complaints"),
    [
        pytest.param(
            with_peers({7: 4}),
            [
                ("peers_are_one_to_one_and_live", "kv slot 7: its peer kv windowed slot 4 is free"),
                ("a_free_unit_has_no_peer", "kv slot 7: it is free, yet its peer is kv windowed slot 4"),
            ],
            id="stale-map",
        ),
        pytest.param(
            with_peers({4: 3}),
            [("peers_are_one_to_one_and_live", "kv windowed slot 3: the peer of both kv slot 4 and 6")],
            id="one-slot-for-two",
        ),
        pytest.param(
            with_peers({6: 0}),
            [
                (
                    "every_taken_follower_unit_is_a_peer",
                    "kv windowed slot 3: owned by request r1, yet the peer of no kv slot",
                )
            ],
            id="lost",
        ),
        pytest.param(
            with_peers({3: 2, 5: 1}),
            [
                (
                    "peers_share_their_owner",
                    "kv slot 3: owned by tree, its peer kv windowed slot 2 is not: it is owned by request r1",
                ),
                (
                    "peers_share_their_owner",
                    "kv slot 5: owned by request r1, its peer kv windowed slot 1 is not: it is owned by tree",
                ),
            ],
            id="exchanged",
        ),
    ],
)
def test_an_engine_that_maps_slots_is_judged(after, complaints):
    assert found(SLOTS, after) == complaints


def test_what_a_foreign_engine_does_not_give_is_counted():
    """No tree, no records, no claims: not applicable, which is not a pass."""
    tally: Tally = {}

    check(Transition(ONE_POOL, (), ONE_POOL), tally)

    assert {name for name, counts in tally.items() if counts.evaluated} == {
        "each_unit_has_one_owner",
        "pools_conserve_their_units",
        "the_impossible_is_rejected",
        "work_makes_progress",
    }
