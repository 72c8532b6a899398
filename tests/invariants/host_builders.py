"""Healthy steps of a small engine with a host tier, and functions that change them.

page size 4, window 6 (a tail of 8 tokens); full has 12 pages, swa 8, rows 2, host full 10, host swa 8

n1 [0, 8)  tombstone in swa; a copy on host full 1 2 ── n2 [8, 16) no copy; backup 1 makes one on 7 8 and 5 6
n3 [0, 8)  copies on host full 3 4, host swa 1 2 ── n4 [8, 16) only on the host, on 5 6 and 3 4; load 2 restores it
r1 runs as in builders.py; r2, whose 18 tokens start with n3 and n4, waits in the queue, and then for load 2
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import swarden.invariants.events as seen
from swarden.invariants.reference import Reference
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import (
    CopyJobView,
    Holding,
    NodeView,
    PoolView,
    ReceiptView,
    RecordView,
    RequestView,
    Snapshot,
)
from tests.invariants.builders import DECODE, LIMITS, OTHER_PROMPT, PROMPT, R1, R2, TREE, reference, snapshot, with_pool

BACKUP, LOAD = seen.Owner("backup", 1), seen.Owner("load", 2)
N4_TOKENS = range(208, 216)  # the tokens of n4
R2_PROMPT = (*OTHER_PROMPT, *N4_TOKENS, 1, 2)
WRITTEN_UNITS = {
    "full": (11, 12),
    "swa": (7, 8),
    "host full": (7, 8),
    "host swa": (5, 6),
}  # written by the backup and the load
HOST_LIMITS = LIMITS._replace(load_back_threshold=8)
BACKUP_VIEW = CopyJobView(1, to_host=True, receipt=2, here=((3, 4), (1, 2)), there=((7, 8), (5, 6)))
LOAD_VIEW = CopyJobView(2, to_host=False, receipt=3, here=((11, 12), (7, 8)), there=((5, 6), (3, 4)))
BACKUP_BEGAN = seen.CopyBegan(1, to_host=True, pages=(("full", (3, 4), (7, 8)), ("swa", (1, 2), (5, 6))))
LOAD_BEGAN = seen.CopyBegan(2, to_host=False, pages=(("full", (11, 12), (5, 6)), ("swa", (7, 8), (3, 4))))
PLANNED = seen.LoadPlanned(2, 16, 2, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))


def before_copying(*, committed: int = 21) -> Snapshot:
    """The engine of builders.py with copies on the host, before backup 1 and load 2 begin."""
    state = snapshot(committed=committed)
    first, second, third = state.nodes or ()
    below = NodeView(4, 3, 0, 8, N4_TOKENS, ((0, 0), (0, 0)), (False, False), (0, 0), last_used=1)
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
        limits=HOST_LIMITS,
        pools=(full, swa, *on_host, rows),
        nodes=kept,
        requests=(running, RequestView(2, "waiting", 0, len(R2_PROMPT), 0, 1)),
        copy_jobs=(),
        host_pools=("host full", "host swa"),
    )


def copying(*, committed: int = 21) -> Snapshot:
    """The same engine while both copies are in progress; r2 waits for the load and holds the prefix on the device."""
    state = before_copying(committed=committed)
    first, second, third, below = state.nodes or ()
    kept = (
        first._replace(locks=(2, 0)),
        second._replace(locks=(2, 2)),
        third._replace(locks=(2, 1), last_used=4),
        below._replace(locks=(1, 1), pins=(1, 1), last_used=4),
    )
    pools = {pool.name: pool for pool in state.pools}
    free = {name: [unit for unit in pools[name].free if unit not in WRITTEN_UNITS[name]] for name in WRITTEN_UNITS}
    held = {
        "full": [*_cached(kept, 0), *_private(state, "full"), _written_by(LOAD, "full")],
        "swa": [*_cached(kept, 1), *_private(state, "swa"), _written_by(LOAD, "swa")],
        "host full": [*_copies(kept, 0), _written_by(BACKUP, "host full")],
        "host swa": [*_copies(kept, 1), _written_by(BACKUP, "host swa")],
        "rows": [Holding(R1, (1,), cached=False), Holding(R2, (2,), cached=False)],
    }
    assert state.counters is not None, "the engine gives counters"
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
        records=(
            *(state.records or ()),
            RecordView(R2, 2, 8, 8, 8, 8, (0, 0), ((5, 6), (3, 4)), (5, 6), receipt=4, node=3),
        ),
        requests=((state.requests or ())[0], RequestView(2, "loading", 0, len(R2_PROMPT), 0, 1, awaits=2)),
        counters=state.counters._replace(
            free={"full": len(free["full"]), "swa": len(free["swa"])},
            evictable={"full": 0, "swa": 0},
            protected={"full": 6, "swa": 4},
        ),
        copy_jobs=(BACKUP_VIEW, LOAD_VIEW),
    )


def after_copying() -> Snapshot:
    """The same engine when both copies have ended, and r2 has the loaded prefix and is not computed yet."""
    first, second, third, below = COPYING.nodes or ()
    kept = (
        first._replace(locks=(1, 0)),
        second._replace(locks=(1, 1), copies=((7, 8), (5, 6))),
        third._replace(locks=(1, 0), last_used=5),
        below._replace(locks=(1, 1), pins=(0, 0), units=((11, 12), (7, 8)), live=(True, True), last_used=5),
    )
    running, loading = COPYING.requests or ()
    record, _ = COPYING.records or ()
    assert COPYING.counters is not None, "the engine gives counters"
    assert COPYING.peer_maps is not None, "swa pages are peers"
    peers = [*COPYING.peer_maps[0].peers[:11], 7, 8]
    whole = ((5, 6, 11, 12), (3, 4, 7, 8))
    return replace(
        COPYING,
        pools=tuple(_with_holdings(pool, kept) for pool in COPYING.pools),
        peer_maps=(COPYING.peer_maps[0]._replace(peers=peers),),
        nodes=kept,
        receipts=((COPYING.receipts or ())[0], ReceiptView(5, R2, 4, ((4, 3), (4,)))),
        records=(record, RecordView(R2, 2, 16, 16, 16, 16, (0, 0), whole, whole[0], receipt=5, node=4)),
        requests=(running, loading._replace(awaits=0)),
        counters=COPYING.counters._replace(evictable={"full": 0, "swa": 2}, protected={"full": 8, "swa": 4}),
        copy_jobs=(),
    )


def _with_holdings(pool: PoolView, nodes: Sequence[NodeView]) -> PoolView:
    """A pool in which the tree owns the units that the copies wrote."""
    if pool.unit == "row":
        return pool
    cached = _copies if pool.name.startswith("host") else _cached
    return replace(pool, holdings=[*cached(nodes, int(pool.name.endswith("swa"))), *_private(COPYING, pool.name)])


def _private(state: Snapshot, pool: str) -> list[Holding]:
    """The private units of r1."""
    return [holding for holding in state.pool(pool).holdings if holding.owner == R1]


def _written_by(owner: seen.Owner, pool: str) -> Holding:
    return Holding(owner, WRITTEN_UNITS[pool], cached=False)


def _cached(nodes: Sequence[NodeView], component: int) -> list[Holding]:
    return [
        Holding(seen.Owner("tree", node.id), node.units[component], cached=True, locks=node.locks[component])
        for node in nodes
        if node.live[component]
    ]


def _copies(nodes: Sequence[NodeView], component: int) -> list[Holding]:
    return [
        Holding(seen.Owner("tree", node.id), node.copies[component], cached=True, locks=node.pins[component])
        for node in nodes
        if node.copies[component]
    ]


def host_reference() -> Reference:
    """The reference for r1 and r2."""
    known = reference(22)
    known.submitted(2, namespace=0, prompt=R2_PROMPT)
    return known


BEFORE_COPYING, COPYING = before_copying(), copying()
RECEIPTS, RECORDS = COPYING.receipts or (), COPYING.records or ()  # while both copies are in progress
BEGIN_EVENTS = (
    seen.Taken("host full", (7, 8), BACKUP),
    seen.Taken("host swa", (5, 6), BACKUP),
    seen.Locked(2, 2),
    BACKUP_BEGAN,
    seen.Matched(2, 0, R2_PROMPT, 8, (5, 6)),
    seen.Taken("rows", (2,), R2),
    seen.Locked(4, 3),
    seen.Locked(3, 4),
    seen.Taken("full", (11, 12), LOAD),
    seen.Taken("swa", (7, 8), LOAD),
    LOAD_BEGAN,
    PLANNED,
)
END_EVENTS = (
    seen.CopyEnded(1, None),
    seen.Copied(1, "full", ()),
    seen.Copied(1, "swa", ()),
    seen.Given("host full", (7, 8), BACKUP, TREE),
    seen.Given("host swa", (5, 6), BACKUP, TREE),
    seen.Stored(2, 1, 0, 8, PROMPT[8:16], "full", on_host=True),
    seen.Stored(2, 1, 0, 8, PROMPT[8:16], "swa", on_host=True),
    seen.Unlocked(2, 2),
    seen.CopyEnded(2, None),
    seen.Copied(2, "full", ()),
    seen.Copied(2, "swa", ()),
    seen.Given("full", (11, 12), LOAD, TREE),
    seen.Given("swa", (7, 8), LOAD, TREE),
    seen.Paired("full", "swa", (11, 12), (7, 8)),
    seen.Stored(4, 3, 0, 8, N4_TOKENS, "full", on_host=False),
    seen.Stored(4, 3, 0, 8, N4_TOKENS, "swa", on_host=False),
    seen.Unlocked(3, 4),
    seen.Unlocked(4, 3),
    seen.Locked(5, 4),
    seen.Loaded(2, 16, (5, 6, 11, 12)),
)
COPYING_CONTINUES = Transition(
    copying(committed=20), DECODE, COPYING, When.STEP, host_reference()
)  # r1 decodes meanwhile
COPYING_BEGINS = Transition(BEFORE_COPYING, BEGIN_EVENTS, COPYING, When.STEP, host_reference())
COPYING_ENDS = Transition(COPYING, END_EVENTS, after_copying(), When.STEP, host_reference())


def while_copying(*events: Any, before: Snapshot = COPYING, **parts: Any) -> Transition:
    """A step with these events from the state with both copies in progress to the same, with these parts changed."""
    return Transition(before, events, replace(COPYING, **parts), When.STEP, host_reference())


def beginning(*events: Any, **parts: Any) -> Transition:
    """A step with these events in which both copies begin, with these parts of the state after changed."""
    return replace(COPYING_BEGINS, events=events, after=replace(COPYING, **parts))


def not_copying(*events: Any, before: Snapshot = BEFORE_COPYING, **parts: Any) -> Transition:
    """A step with these events in which no copy begins, with these parts of the state after changed."""
    return Transition(before, events, replace(before, **parts), When.STEP, host_reference())


def with_node(state: Snapshot, node: int, **changes: Any) -> tuple[NodeView, ...]:
    """The nodes of a state, one of them changed."""
    return tuple(each._replace(**changes) if each.id == node else each for each in state.nodes or ())


def host_pools(name: str, **changes: Any) -> tuple[PoolView, ...]:
    """The pools while both copies are in progress, one of them changed."""
    return with_pool(COPYING, name, **changes)
