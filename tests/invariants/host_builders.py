"""Healthy steps of a small engine with a host tier, and ways to doctor them.

page 4, window 6 (so a tail of 8 tokens); full has 12 pages, swa 8, rows 2, host full 10, host swa 8

n1 [0, 8)  no swa; a copy of full, so host full 1 2 ── n2 [8, 16) has none; backup 1 is to make it, on 7 8 and 5 6
n3 [0, 8)  copies on host full 3 4, host swa 1 2 ── n4 [8, 16) on the host alone, on 5 6 and 3 4; load 2 brings it back
r1 runs as in builders.py; r2, whose 18 tokens begin with n3 and n4, waits, and then for load 2
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from invariants.events import (
    Copied,
    Given,
    Loaded,
    LoadPlanned,
    Locked,
    Matched,
    Paired,
    Stored,
    Taken,
    TransferBegan,
    TransferEnded,
    Unlocked,
)
from invariants.reference import Reference
from invariants.transition import Transition, When
from invariants.view import (
    Holding,
    NodeView,
    Owner,
    PoolView,
    ReceiptView,
    RecordView,
    RequestView,
    Snapshot,
    TransferView,
)
from tests.invariants.builders import DECODE, LIMITS, OTHER_PROMPT, PROMPT, R1, R2, TREE, reference, snapshot, swapped

BACKUP, LOAD = Owner("backup", 1), Owner("load", 2)
CONTINUED = range(208, 216)  # what n4 holds
ASKED = (*OTHER_PROMPT, *CONTINUED, 1, 2)
BROUGHT = {"full": (11, 12), "swa": (7, 8), "host full": (7, 8), "host swa": (5, 6)}  # what the transfers write
HOSTED = LIMITS._replace(least_load_len=8)
BACKUP_VIEW = TransferView(1, to_host=True, receipt=2, here=((3, 4), (1, 2)), there=((7, 8), (5, 6)))
LOAD_VIEW = TransferView(2, to_host=False, receipt=3, here=((11, 12), (7, 8)), there=((5, 6), (3, 4)))
BACKED_UP = TransferBegan(1, to_host=True, pages=(("full", (3, 4), (7, 8)), ("swa", (1, 2), (5, 6))))
FETCHED = TransferBegan(2, to_host=False, pages=(("full", (11, 12), (5, 6)), ("swa", (7, 8), (3, 4))))
PLANNED = LoadPlanned(2, 16, 2, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))


def shelved(*, committed: int = 21) -> Snapshot:
    """The engine of builders.py with its copies on the host, before anything is copied."""
    state = snapshot(committed=committed)
    first, second, third = state.nodes or ()
    below = NodeView(4, 3, 0, 8, CONTINUED, ((0, 0), (0, 0)), (False, False), (0, 0), last_used=1)
    kept = (
        first._replace(copies=((1, 2), ()), pins=(0, 0)),
        second._replace(copies=((), ()), pins=(0, 0)),
        third._replace(copies=((3, 4), (1, 2)), pins=(0, 0)),
        below._replace(copies=((5, 6), (3, 4)), pins=(0, 0)),
    )
    full, swa, rows = state.pools
    on_host = (
        PoolView("host full", "page", 10, range(7, 11), (), _copies(kept, 0)),
        PoolView("host swa", "page", 8, range(5, 9), (), _copies(kept, 1)),
    )
    running, _ = state.requests or ()
    return replace(
        state,
        limits=HOSTED,
        pools=(full, swa, *on_host, rows),
        nodes=kept,
        requests=(running, RequestView(2, "waiting", 0, len(ASKED), 0, 1)),
        transfers=(),
        host_pools=("host full", "host swa"),
    )


def copying(*, committed: int = 21) -> Snapshot:
    """The same while both transfers are under way, and r2 waits for the second with what is on the device."""
    state = shelved(committed=committed)
    first, second, third, below = state.nodes or ()
    kept = (
        first._replace(locks=(2, 0)),
        second._replace(locks=(2, 2)),
        third._replace(locks=(2, 1)),
        below._replace(locks=(1, 1), pins=(1, 1)),
    )
    pools = {pool.name: pool for pool in state.pools}
    free = {name: [unit for unit in pools[name].free if unit not in BROUGHT[name]] for name in BROUGHT}
    held = {
        "full": [*_cached(kept, 0), *_private(state, "full"), _to(LOAD, "full")],
        "swa": [*_cached(kept, 1), *_private(state, "swa"), _to(LOAD, "swa")],
        "host full": [*_copies(kept, 0), _to(BACKUP, "host full")],
        "host swa": [*_copies(kept, 1), _to(BACKUP, "host swa")],
        "rows": [Holding(R1, (1,), cached=False), Holding(R2, (2,), cached=False)],
    }
    assert state.claims is not None, "the engine makes claims"
    return replace(
        state,
        pools=tuple(replace(pool, free=free.get(pool.name, ()), holdings=held[pool.name]) for pool in state.pools),
        nodes=kept,
        receipts=(
            *(state.receipts or ()),
            ReceiptView(2, BACKUP, 2, ((2, 1), (2,))),
            ReceiptView(3, LOAD, 4, ((4, 3), (4,))),
            ReceiptView(4, R2, 3, ((3,), (3,))),
        ),
        records=(*(state.records or ()), RecordView(R2, 2, 8, 8, 8, 8, 0, ((5, 6), (3, 4)), (5, 6), receipt=4, node=3)),
        requests=((state.requests or ())[0], RequestView(2, "loading", 0, len(ASKED), 0, 1, awaits=2)),
        claims=state.claims._replace(
            free={"full": len(free["full"]), "swa": len(free["swa"])},
            evictable={"full": 0, "swa": 0},
            protected={"full": 6, "swa": 4},
        ),
        transfers=(BACKUP_VIEW, LOAD_VIEW),
    )


def landed() -> Snapshot:
    """The same when both transfers have ended well, and r2 has what came, and waits for its turn."""
    first, second, third, below = COPYING.nodes or ()
    kept = (
        first._replace(locks=(1, 0)),
        second._replace(locks=(1, 1), copies=((7, 8), (5, 6))),
        third._replace(locks=(1, 0)),
        below._replace(locks=(1, 1), pins=(0, 0), units=((11, 12), (7, 8)), live=(True, True)),
    )
    running, loading = COPYING.requests or ()
    record, _ = COPYING.records or ()
    assert COPYING.claims is not None, "the engine makes claims"
    assert COPYING.peer_maps is not None, "swa pages are peers"
    peers = [*COPYING.peer_maps[0].peers[:11], 7, 8]
    whole = ((5, 6, 11, 12), (3, 4, 7, 8))
    return replace(
        COPYING,
        pools=tuple(_with_holdings(pool, kept) for pool in COPYING.pools),
        peer_maps=(COPYING.peer_maps[0]._replace(peers=peers),),
        nodes=kept,
        receipts=((COPYING.receipts or ())[0], ReceiptView(5, R2, 4, ((4, 3), (4,)))),
        records=(record, RecordView(R2, 2, 16, 16, 16, 16, 0, whole, whole[0], receipt=5, node=4)),
        requests=(running, loading._replace(awaits=0)),
        claims=COPYING.claims._replace(evictable={"full": 0, "swa": 2}, protected={"full": 8, "swa": 4}),
        transfers=(),
    )


def _with_holdings(pool: PoolView, nodes: Sequence[NodeView]) -> PoolView:
    """A pool whose transfers have given what they wrote to the tree."""
    if pool.unit == "row":
        return pool
    cached = _copies if pool.name.startswith("host") else _cached
    return replace(pool, holdings=[*cached(nodes, int(pool.name.endswith("swa"))), *_private(COPYING, pool.name)])


def _private(state: Snapshot, pool: str) -> list[Holding]:
    """What r1 has taken of a pool."""
    return [one for one in state.pool(pool).holdings if one.owner == R1]


def _to(owner: Owner, pool: str) -> Holding:
    return Holding(owner, BROUGHT[pool], cached=False)


def _cached(nodes: Sequence[NodeView], component: int) -> list[Holding]:
    return [
        Holding(Owner("tree", node.id), node.units[component], cached=True, locks=node.locks[component])
        for node in nodes
        if node.live[component]
    ]


def _copies(nodes: Sequence[NodeView], component: int) -> list[Holding]:
    return [
        Holding(Owner("tree", node.id), node.copies[component], cached=True, locks=node.pins[component])
        for node in nodes
        if node.copies[component]
    ]


def asked() -> Reference:
    """What the clients of r1 and r2 know."""
    known = reference(22)
    known.submitted(2, namespace=0, prompt=ASKED)
    return known


SHELVED, COPYING = shelved(), copying()
RECEIPTS, RECORDS = COPYING.receipts or (), COPYING.records or ()  # while both transfers are under way
BEGIN = (
    Taken("host full", (7, 8), BACKUP),
    Taken("host swa", (5, 6), BACKUP),
    Locked(2, 2),
    BACKED_UP,
    Matched(2, 0, ASKED, 8, (5, 6)),
    Taken("rows", (2,), R2),
    Locked(4, 3),
    Locked(3, 4),
    Taken("full", (11, 12), LOAD),
    Taken("swa", (7, 8), LOAD),
    FETCHED,
    PLANNED,
)
LAND = (
    TransferEnded(1, None),
    Copied(1, "full", ()),
    Copied(1, "swa", ()),
    Given("host full", (7, 8), BACKUP, TREE),
    Given("host swa", (5, 6), BACKUP, TREE),
    Stored(2, 1, 0, 8, PROMPT[8:16], "full", on_host=True),
    Stored(2, 1, 0, 8, PROMPT[8:16], "swa", on_host=True),
    Unlocked(2, 2),
    TransferEnded(2, None),
    Copied(2, "full", ()),
    Copied(2, "swa", ()),
    Given("full", (11, 12), LOAD, TREE),
    Given("swa", (7, 8), LOAD, TREE),
    Paired("full", "swa", (11, 12), (7, 8)),
    Stored(4, 3, 0, 8, CONTINUED, "full", on_host=False),
    Stored(4, 3, 0, 8, CONTINUED, "swa", on_host=False),
    Unlocked(3, 4),
    Unlocked(4, 3),
    Locked(5, 4),
    Loaded(2, 16, (5, 6, 11, 12)),
)
UNDER_WAY = Transition(copying(committed=20), DECODE, COPYING, When.STEP, asked())  # r1 decodes meanwhile
BEGUN = Transition(SHELVED, BEGIN, COPYING, When.STEP, asked())
LANDED = Transition(COPYING, LAND, landed(), When.STEP, asked())


def while_copying(*events: Any, before: Snapshot = COPYING, **parts: Any) -> Transition:
    """A step with this in it, from the state in which both transfers are under way to the same, but for these parts."""
    return Transition(before, events, replace(COPYING, **parts), When.STEP, asked())


def beginning(*events: Any, **parts: Any) -> Transition:
    """A step with this in it, from the state before anything is copied to that, but for these parts."""
    return replace(BEGUN, events=events, after=replace(COPYING, **parts))


def on_the_shelf(*events: Any, before: Snapshot = SHELVED, **parts: Any) -> Transition:
    """A step with this in it, in which no copying begins, and which ends in these parts."""
    return Transition(before, events, replace(before, **parts), When.STEP, asked())


def with_node(state: Snapshot, node: int, **changes: Any) -> tuple[NodeView, ...]:
    """The nodes of a state, with changes in one."""
    return tuple(one._replace(**changes) if one.id == node else one for one in state.nodes or ())


def host_pools(name: str, **changes: Any) -> tuple[PoolView, ...]:
    """The pools while both transfers are under way, with changes in one."""
    return swapped(COPYING, name, **changes)
