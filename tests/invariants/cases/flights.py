"""Passes out of order, and units that are not kept for passes in flight."""

from dataclasses import replace

from swarden.invariants.events import HANDOVER_KIND, Completed, Discarded, Failed, Launched, Loaded, Owner, Retracted
from swarden.invariants.laws.lifecycle.flights import (
    FlightCode,
    discarded_results_are_stale,
    fenced_units_wait_for_their_launch,
    launch_ref,
    passes_complete_in_order,
    units_in_flight_are_pinned,
)
from swarden.invariants.limits import BOTH
from swarden.invariants.view import Fence, Holding
from swarden.invariants.violation import Ref, found, request_ref
from tests.invariants.builders import (
    AFTER,
    FENCED,
    IN_FLIGHT_AFTER,
    OVERLAPPED_STEP,
    R1,
    R2,
    STALE_LAUNCH,
    broken,
    healthy,
    idle,
    in_flight,
    receipts,
    with_pool,
)

LOCKED_BY_FENCE = replace(FENCED, receipts=(*(AFTER.receipts or ()), *receipts(id=2, holder=Owner("fence", 7))))
LAUNCHED = Launched(8, ((1, 21, 22),))
PRIVATE_OF_R1 = {"full": (7, 8), "swa": (5, 6)}
R1_RELEASED = {"records": (), "requests": (), "receipts": receipts(holder=Owner("fence", 8))}
STALE_8 = (STALE_LAUNCH[0]._replace(launch=8),)
SAVE_OF_R1 = Owner(HANDOVER_KIND, 1)
DELIVERED = (STALE_LAUNCH[0]._replace(delivered=(1,)),)  # r1 gets the token of launch 7 even if it is preempted


def without_r1(fence):
    """The pools without r1, with its private pages and its row fenced for launch `fence`."""
    return tuple(
        replace(
            pool,
            holdings=[holding for holding in pool.holdings if holding.owner != R1],
            fenced=[Fence(fence, PRIVATE_OF_R1.get(pool.name, (1,)))],
        )
        for pool in IN_FLIGHT_AFTER.pools
    )


def ended_with_pages_of(owner, role=BOTH):
    """Launch 8 is in flight for r1, which has ended; this owner has its private pages."""
    pools = tuple(
        replace(pool, holdings=[one._replace(owner=owner) if one.owner == R1 else one for one in pool.holdings])
        for pool in IN_FLIGHT_AFTER.pools
    )
    limits = IN_FLIGHT_AFTER.limits._replace(role=role)
    return in_flight(pools=pools, limits=limits, launches=STALE_8, **R1_RELEASED)


def with_pages_lost(name, units, **changes):
    """Launch 8 is in flight while r1 no longer owns `units` of one pool."""
    [of_r1] = [one for one in IN_FLIGHT_AFTER.pool(name).holdings if one.owner == R1]
    left = [unit for unit in of_r1.units if unit not in units]
    others = [one for one in IN_FLIGHT_AFTER.pool(name).holdings if one.owner != R1]
    more = changes.pop("holdings", [])
    return in_flight(
        pools=with_pool(IN_FLIGHT_AFTER, name, holdings=[*others, of_r1._replace(units=left), *more], **changes)
    )


def not_kept_for_r1(pool, unit, code, **values):
    """The violation that a page that launch 8 reads for r1 is not kept for the launch."""
    return found(Ref("page", unit, pool), code, launch=launch_ref(8), request=request_ref(1), **values)


CASES = [
    broken(
        passes_complete_in_order,
        "too-many",
        in_flight(LAUNCHED, Launched(9, ((1, 22, 23),)), Completed(7), Completed(8), Completed(9), launches=()),
        found(launch_ref(9), FlightCode.TOO_MANY_IN_FLIGHT, in_flight=(launch_ref(7), launch_ref(8)), most=2),
    ),
    broken(
        passes_complete_in_order,
        "completed-out-of-order",
        in_flight(LAUNCHED, Completed(8), launches=OVERLAPPED_STEP.before.launches),
        found(launch_ref(8), FlightCode.NOT_THE_OLDEST, event="Completed", oldest=launch_ref(7)),
    ),
    broken(
        passes_complete_in_order,
        "completed-twice",
        in_flight(LAUNCHED, Completed(7), Completed(7)),
        found(launch_ref(7), FlightCode.NOT_IN_FLIGHT, event="Completed"),
    ),
    broken(
        passes_complete_in_order,
        "launch-number-reused",
        in_flight(Completed(7), Launched(8, ()), Launched(8, ()), launches=()),
        found(launch_ref(8), FlightCode.LAUNCHED_OUT_OF_ORDER, last=launch_ref(8)),
        found(Ref("engine"), FlightCode.IN_FLIGHT_DIFFERS, found=(), wanted=(launch_ref(8), launch_ref(8))),
    ),
    broken(
        passes_complete_in_order,
        "failed-and-never-completed",
        in_flight(Failed(7, "lost"), launches=OVERLAPPED_STEP.before.launches),
        found(launch_ref(7), FlightCode.FAILED_NOT_COMPLETED),
    ),
    healthy(
        discarded_results_are_stale,
        in_flight(Retracted(1, 3, ()), Completed(7), Discarded(7, 1)),
        "request-retracted-since",
    ),
    healthy(
        discarded_results_are_stale, in_flight(Loaded(1, 16, (7,)), Completed(7), Discarded(7, 1)), "load-failed-since"
    ),
    broken(
        discarded_results_are_stale,
        "valid-result",
        in_flight(LAUNCHED, Completed(7), Discarded(7, 1)),
        found(request_ref(1), FlightCode.VALID_RESULT_DISCARDED, launch=launch_ref(7), start=20, end=21),
    ),
    broken(
        discarded_results_are_stale,
        "deliverable-result-of-a-retracted-request",
        in_flight(Retracted(1, 3, ()), Completed(7), Discarded(7, 1), before={"launches": DELIVERED}),
        found(request_ref(1), FlightCode.VALID_RESULT_DISCARDED, launch=launch_ref(7), start=20, end=21),
    ),
    broken(
        discarded_results_are_stale,
        "result-of-another-pass",
        in_flight(LAUNCHED, Completed(7), Discarded(8, 1), before={"launches": STALE_LAUNCH}),
        found(request_ref(1), FlightCode.DISCARDED_NOT_COMPLETED, launch=launch_ref(8)),
    ),
    broken(
        fenced_units_wait_for_their_launch,
        "released-early",
        idle(Completed(6), before=LOCKED_BY_FENCE, after=AFTER),
        found(Ref("page", 9, "full"), FlightCode.LEFT_FENCE_EARLY, launch=launch_ref(7)),
        found(Ref("receipt", 2), FlightCode.UNLOCKED_EARLY, launch=launch_ref(7)),
    ),
    healthy(units_in_flight_are_pinned, ended_with_pages_of(SAVE_OF_R1), "kept-for-a-save-of-its-kv"),
    broken(
        units_in_flight_are_pinned,
        "free",
        with_pages_lost("swa", [5], free=[5, 7, 8]),
        not_kept_for_r1("swa", 5, FlightCode.USED_AFTER_FREE),
    ),
    broken(
        units_in_flight_are_pinned,
        "leaked",
        with_pages_lost("swa", [5]),
        not_kept_for_r1("swa", 5, FlightCode.USED_WHILE_UNOWNED),
    ),
    broken(
        units_in_flight_are_pinned,
        "owned-by-another-request",
        with_pages_lost("full", [8], holdings=[Holding(R2, (8,), cached=False)]),
        not_kept_for_r1("full", 8, FlightCode.USED_AFTER_CHANGE_OF_OWNER, owner=R2),
    ),
    broken(
        units_in_flight_are_pinned,
        "fenced-for-an-earlier-pass",
        with_pages_lost("full", [8], fenced=[Fence(7, [8])]),
        not_kept_for_r1("full", 8, FlightCode.FENCED_FOR_EARLIER_LAUNCH, waits_for=launch_ref(7)),
    ),
    broken(
        units_in_flight_are_pinned,
        "cached-without-a-lock",
        in_flight(
            pools=without_r1(fence=8),
            launches=STALE_8,
            **{**R1_RELEASED, "receipts": receipts(holder=Owner("fence", 7))},
        ),
        *(
            not_kept_for_r1(pool, page, FlightCode.USED_WITHOUT_LOCK, owner=Owner("tree", node))
            for pool, page, node in (("full", 1, 1), ("full", 2, 1), ("full", 3, 2), ("full", 4, 2), ("swa", 2, 2))
        ),
    ),
    broken(
        units_in_flight_are_pinned,
        "in-a-new-record-of-the-request",
        in_flight(launches=STALE_8),
        *(
            not_kept_for_r1(pool, page, FlightCode.USED_IN_ANOTHER_RECORD, owner=R1)
            for pool, page in (("full", 7), ("full", 8), ("swa", 5), ("swa", 6))
        ),
    ),
]
