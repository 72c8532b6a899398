"""One healthy decode step of a small two-pool engine, and functions that change it.

page size 4, window 6 (a tail of 8 tokens); full has 12 pages, swa 8, rows 2

n1 [0, 8)  tombstone in swa, locked in full ── n2 [8, 16) locked in both
n3 [0, 8)  another prefix, not locked: full 5 6, swa 3 4
r1 runs in row 1: shares [0, 16), owns full 7 8, swa 5 6, and the step computes its position 20
r2 waits
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from swarden.invariants.events import Completed, Launched, Owner, Paired, Read, Taken, Written
from swarden.invariants.invariant import Invariant
from swarden.invariants.limits import Limits
from swarden.invariants.reference import Expectation, Reference
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import (
    ComponentView,
    Counters,
    Fence,
    Holding,
    LaunchView,
    NodeView,
    PeerMap,
    PoolView,
    ReceiptView,
    RecordView,
    RequestView,
    Snapshot,
)
from swarden.invariants.violation import Found, Ref

PAGE, WINDOW, VOCABULARY = 4, 6, 64
R1, R2, TREE, PRESSURE = Owner("request", 1), Owner("request", 2), Owner("tree"), Owner("pressure")
PROMPT = tuple(range(100, 118))
OTHER_PROMPT = tuple(range(200, 208))
LIMITS = Limits(
    page_size=PAGE, max_running_requests=2, max_context_len=40, chunk_len=8, window_slack=1, ratio_floor=98_000
)
# An engine that launches before it has the last result: r1 computes position 20 in launch 7, then 21 in launch 8.
OVERLAPPED_LIMITS = LIMITS._replace(most_launches=2, lookahead_len=2, preemption_threshold=0, max_forward_retries=1)
UNITS_IN_FLIGHT = ((1, 2, 3, 4, 7, 8), (2, 5, 6))
COMPONENTS = (ComponentView("full", None, PAGE), ComponentView("swa", WINDOW, PAGE))


class Case(NamedTuple):
    """A transition, and all that one invariant finds in it; nothing if it is healthy."""

    invariant: Invariant
    name: str
    change: Transition
    evidence: tuple[Found | tuple[str, str], ...]


def broken(invariant: Invariant, name: str, change: Transition, *evidence: Found | tuple[str, str]) -> Case:
    assert evidence, f"{name}: a broken case has evidence"
    return Case(invariant, name, change, evidence)


def healthy(invariant: Invariant, change: Transition | None = None, name: str = "healthy") -> Case:
    return Case(invariant, name, HEALTHY if change is None else change, ())


def snapshot(*, committed: int) -> Snapshot:
    """The engine of the module's docstring when r1 has computed `committed` tokens, 20 or 21."""
    pages = -(-committed // PAGE)
    full, swa = (1, 2, 3, 4, 7, 8)[:pages], (0, 0, 1, 2, 5, 6)[:pages]
    nodes = (
        NodeView(1, 0, 0, 0, PROMPT[:8], ((1, 2), (0, 0)), (True, False), (1, 0), last_used=3),
        NodeView(2, 1, 0, 8, PROMPT[8:16], ((3, 4), (1, 2)), (True, True), (1, 1), last_used=3),
        NodeView(3, 0, 0, 0, OTHER_PROMPT, ((5, 6), (3, 4)), (True, True), (0, 0), last_used=1),
    )
    record = RecordView(R1, 1, 16, committed, committed, committed, (0, 0), (full, swa), full, receipt=1, node=2)
    free = [*range(len(full) + 3, 13)], [*range(len(swa) + 1, 9)]
    peers = [0, 0, 0, 1, 2, 3, 4, *swa[4:], *[0] * 12][:13]
    return Snapshot(
        step=committed,
        limits=LIMITS,
        components=COMPONENTS,
        pools=(
            PoolView("full", "page", 12, free[0], (), _holdings(nodes, 0, full[4:])),
            PoolView("swa", "page", 8, free[1], (), _holdings(nodes, 1, swa[4:])),
            PoolView("rows", "row", 2, [2], (), [Holding(R1, (1,), cached=False)]),
        ),
        peer_maps=(PeerMap("full", "swa", peers),),
        nodes=nodes,
        receipts=(ReceiptView(1, R1, 2, ((2, 1), (2,))),),
        records=(record,),
        requests=(RequestView(1, "running", 0, 18, committed - 17, 9), RequestView(2, "waiting", 0, 5, 0, 1)),
        counters=Counters(
            free={"full": len(free[0]), "swa": len(free[1])},
            evictable={"full": 2, "swa": 2},
            protected={"full": 4, "swa": 2},
            new_token_ratio=500_000,
        ),
        launches=(),
    )


def with_pass_in_flight(*, launch: int, committed: int, requests: Sequence[RequestView] | None) -> Snapshot:
    """The engine when r1 has `committed` tokens of KV and computes one more in a pass in flight."""
    landed = snapshot(committed=21)
    assert landed.records is not None, "the engine has a record"
    [record] = landed.records
    return replace(
        landed,
        limits=OVERLAPPED_LIMITS,
        records=(record._replace(committed_len=committed, launched_len=committed + 1, allocated_len=committed + 1),),
        requests=tuple(requests or ()),
        launches=(LaunchView(launch, ((1, committed, committed + 1),), (UNITS_IN_FLIGHT,)),),
    )


def with_pool(state: Snapshot, name: str, **changes: Any) -> tuple[PoolView, ...]:
    """The pools of a state, one of them changed."""
    return tuple(replace(pool, **changes) if pool.name == name else pool for pool in state.pools)


def _holdings(nodes: Sequence[NodeView], component: int, private: Sequence[int]) -> list[Holding]:
    cached = [
        Holding(Owner("tree", node.id), node.units[component], cached=True, locks=node.locks[component])
        for node in nodes
        if node.live[component]
    ]
    return [*cached, Holding(R1, private, cached=False)]


def reference(num_tokens: int) -> Reference:
    """The reference when r1's client has `num_tokens` tokens, prompt included."""
    known = Reference(VOCABULARY, (None, WINDOW))
    known.submitted(1, namespace=0, prompt=PROMPT)
    known.submitted(2, namespace=0, prompt=(1, 2, 3, 4, 5))
    expected = known.expectations[1]
    while len(expected.tokens) < num_tokens:
        expected.extend([expected.next_token(len(expected.tokens), windows=known.windows, vocabulary=VOCABULARY)])
    return known


def tags(start: int, end: int) -> "array[int]":
    """The tags of r1's slots for positions [start, end)."""
    expected: Expectation = reference(22).expectations[1]
    return expected.tags[start:end]


BEFORE, AFTER = snapshot(committed=20), snapshot(committed=21)
DECODE = (
    Taken("full", (8,), R1),
    Taken("swa", (6,), R1),
    Paired("full", "swa", (8,), (6,)),
    Launched(7, ((1, 20, 21),)),
    Written(7, 1, "full", 20, 21, (8,)),
    Read(7, 1, "full", 0, tags(0, 21)),
    Written(7, 1, "swa", 20, 21, (6,), component=1),
    Read(7, 1, "swa", 12, tags(12, 21), component=1),
    Completed(7),
)
HEALTHY = Transition(BEFORE, DECODE, AFTER, When.STEP, reference(22))


IN_FLIGHT_BEFORE = with_pass_in_flight(launch=7, committed=20, requests=BEFORE.requests)
STALE_LAUNCH = (LaunchView(7, ((1, 20, 21),), (UNITS_IN_FLIGHT,), given_up=(1,)),)
IN_FLIGHT_AFTER = with_pass_in_flight(launch=8, committed=21, requests=AFTER.requests)
COMPLETION_EVENTS = DECODE[4:]
OVERLAPPED_EVENTS = (Launched(8, ((1, 21, 22),)), *COMPLETION_EVENTS)
OVERLAPPED_STEP = Transition(IN_FLIGHT_BEFORE, OVERLAPPED_EVENTS, IN_FLIGHT_AFTER, When.STEP, reference(22))
FENCED = replace(
    AFTER, pools=with_pool(AFTER, "full", free=[10, 11, 12], fenced=[Fence(7, [9])]), launches=(LaunchView(7, (), ()),)
)


def after(**parts: Any) -> Transition:
    """The healthy step, with these parts of the state after changed."""
    return replace(HEALTHY, after=replace(AFTER, **parts))


def during(*events: Any, **parts: Any) -> Transition:
    """The healthy step, with these events and these parts of the state after instead."""
    return replace(HEALTHY, events=events, after=replace(AFTER, **parts))


def in_flight(*events: Any, before: Any = None, **parts: Any) -> Transition:
    """The overlapped step, with these events and these parts of the states before and after instead."""
    earlier = replace(IN_FLIGHT_BEFORE, **(before or {}))
    return replace(
        OVERLAPPED_STEP, before=earlier, events=events or OVERLAPPED_EVENTS, after=replace(IN_FLIGHT_AFTER, **parts)
    )


def idle(*events: Any, before: Snapshot = AFTER, after: Snapshot | None = None) -> Transition:
    """A step with these events from `before` to `after`, by default the same state."""
    return replace(HEALTHY, before=before, events=events, after=before if after is None else after)


def pools(name: str, **changes: Any) -> tuple[PoolView, ...]:
    """The pools after the healthy step, one of them changed."""
    return with_pool(AFTER, name, **changes)


def holding(name: str, owner: Owner, units: Sequence[int]) -> tuple[PoolView, ...]:
    """The pools after the healthy step, where `owner` also holds `units` of one."""
    return pools(name, holdings=[*AFTER.pool(name).holdings, Holding(owner, units, cached=False)])


def nodes(node: int, **changes: Any) -> tuple[NodeView, ...]:
    assert AFTER.nodes is not None
    return tuple(one._replace(**changes) if one.id == node else one for one in AFTER.nodes)


def records(**changes: Any) -> tuple[RecordView, ...]:
    assert AFTER.records is not None
    return (AFTER.records[0]._replace(**changes),)


def in_flight_record(**changes: Any) -> tuple[RecordView, ...]:
    """The record after the overlapped step, changed."""
    assert IN_FLIGHT_AFTER.records is not None
    return (IN_FLIGHT_AFTER.records[0]._replace(**changes),)


def receipts(**changes: Any) -> tuple[ReceiptView, ...]:
    assert AFTER.receipts is not None
    return (AFTER.receipts[0]._replace(**changes),)


def counters(**changes: Any) -> Counters:
    assert AFTER.counters is not None
    return AFTER.counters._replace(**changes)


def peers(changes: dict[int, int]) -> tuple[PeerMap, ...]:
    assert AFTER.peer_maps is not None
    [healthy_map] = AFTER.peer_maps
    return (healthy_map._replace(peers=[changes.get(unit, peer) for unit, peer in enumerate(healthy_map.peers)]),)


def page(pool: str, unit: int) -> Ref:
    """A page as the subject of a violation."""
    return Ref("page", unit, pool)
