"""Reservations of a decode engine that are too large, too late or out of order."""

from dataclasses import replace
from typing import Any

from swarden.invariants.contracts.decode_reservations import (
    DecodeReservationsCode,
    decode_reserves_only_missing_pages,
    empty_decode_engine_reserves_at_once,
    reservations_follow_arrival_order,
)
from swarden.invariants.events import Owner, Refused
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Fence, LaunchView, RecordView, RequestView
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import AFTER, R1, broken, healthy, holding, idle
from tests.invariants.cases.handover import R2_LINKED, R2_WAITS, R3_LINKED, RECORDS, RESERVED, RUNNING, T2, taking

RESERVED_FOR_R3 = RESERVED._replace(request_id=3)


def linked(*events: Any, gone: tuple[int, ...] = (), reserved: RecordView | None = None, **changes: Any) -> Transition:
    """r2 and r3 wait for pages; r2 may have `reserved` ones, the requests in `gone` end, and r2 or r3 is changed."""
    before = replace(
        R2_WAITS,
        requests=(RUNNING, R2_LINKED, R3_LINKED._replace(**changes)),
        records=(*RECORDS, *([] if reserved is None else [reserved])),
    )
    left = tuple(request for request in before.requests or () if request.id not in gone)
    return idle(*events, before=before, after=replace(before, requests=left))


def empty(
    *events: Any, when: When = When.STEP, left: tuple[RequestView, ...] = (R2_LINKED,), **before: Any
) -> Transition:
    """r2 waits for pages of an empty engine; `before` changes the state, `left` are the requests after."""
    pools = tuple(replace(pool, holdings=[held for held in pool.holdings if held.owner != R1]) for pool in AFTER.pools)
    state = replace(R2_WAITS, **{"records": (), "requests": (R2_LINKED,), "pools": pools} | before)
    return replace(idle(*events, before=state, after=replace(state, requests=left)), when=when)


NOT_EMPTY = {
    "between-steps": empty(when=When.OP),
    "in-a-pause": empty(is_paused=True),
    "record": empty(records=RECORDS),
    "pass-in-flight": empty(launches=(LaunchView(7, (), ()),)),
    "fence": empty(pools=(replace(AFTER.pools[0], fenced=[Fence(7, [7, 8])]), *AFTER.pools[1:])),
    "pages-held-from-outside": empty(pools=holding("swa", Owner("pressure"), (7, 8))),
}
STILL_WAITS = found(request_ref(2), DecodeReservationsCode.EMPTY_ENGINE_WAITS)

CASES = [
    broken(
        decode_reserves_only_missing_pages,
        "windowed-pages-for-the-whole-prompt",
        taking(prefix_len=8, full=4, swa=4),
        found(request_ref(2), DecodeReservationsCode.TOO_MANY, pool="swa", taken=4, missing=2, length=22),
    ),
    healthy(empty_decode_engine_reserves_at_once, empty(Refused("full", T2, 4, 4)), "no-memory-for-free-pages"),
    broken(empty_decode_engine_reserves_at_once, "no-reservation", empty(), STILL_WAITS),
    healthy(reservations_follow_arrival_order, linked(RESERVED_FOR_R3, num_outputs=1), "set-aside-request-first"),
    broken(
        reservations_follow_arrival_order,
        "overtaken",
        linked(RESERVED_FOR_R3),
        found(request_ref(2), DecodeReservationsCode.OVERTAKEN, by=request_ref(3)),
    ),
]
