"""Admissions that differ from the naive planner's, and free slots that are not used."""

from dataclasses import replace

from swarden.invariants.contracts.admission import (
    AdmissionCode,
    admission_matches_planner,
    reservations_match_planner,
    waiting_requests_take_free_places,
)
from swarden.invariants.events import Admitted, Launched, Owner, Parked
from swarden.invariants.limits import ARRIVAL, PRIORITY, Estimates
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import BEFORE, HEALTHY, LIMITS, broken, healthy, idle, with_pool

ESTIMATING = LIMITS._replace(estimates=Estimates(4096, 700_000, 600), waits_by=(PRIORITY, ARRIVAL))
EXPECTED_ADMISSION = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 2), ("swa", 3)))
EXCESSIVE_ADMISSION = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
DECODED = Launched(7, ((1, 20, 21),))
TRANSFER_RECORDS = tuple(record._replace(owner=Owner("transfer", 1)) for record in BEFORE.records or ())
REQUEST = Ref("request", 2)
NEEDED = {"start": 0, "end": 5, "firm": {"full": 2, "swa": 2}, "demand": {"full": 2, "swa": 3}}
WANT = {f"want_{name}": value for name, value in NEEDED.items()}
GOT = {f"got_{name}": value for name, value in NEEDED.items()}


def ample(*events, free=range(5, 40), rows=(2,)):
    """r2 waits in an engine with many free pages."""
    pools = [replace(pool, free=free) if pool.unit == "page" else replace(pool, free=rows) for pool in BEFORE.pools]
    return replace(HEALTHY, before=replace(BEFORE, pools=tuple(pools)), events=events)


def with_r3(state):
    """The same queue with r3 behind r2."""
    third = state.request_by_id[2]._replace(id=3)
    return replace(state, requests=(*(state.requests or ()), third))


def one_free_slot(*events):
    """r2 and r3 wait, and one slot is free."""
    change = ample(*events, DECODED)
    return replace(change, before=with_r3(change.before), after=with_r3(change.after))


def planned(*events, limits=None, **parts):
    """r1 runs and needs a page; r2 waits with 5 tokens and one further to compute, and needs 2 pages, 3 of swa."""
    assert BEFORE.counters is not None, "the engine gives counters"
    halved = BEFORE.counters._replace(exact_ratio=0.5)
    state = replace(BEFORE, counters=halved, limits=ESTIMATING._replace(**(limits or {})), **parts)
    return idle(*events, before=state)


def alone(*events, **parts):
    """r2 waits and no request runs; swa has no free page and two evictable ones, one less than r2's demand."""
    return planned(
        *events, pools=with_pool(BEFORE, "swa", free=[]), **{"requests": (BEFORE.requests or ())[1:]} | parts
    )


def other_reservation(end: int, firm: dict[str, int], demand: dict[str, int]) -> Found:
    got = {"got_start": 0, "got_end": end, "got_firm": firm, "got_demand": demand}
    return found(REQUEST, AdmissionCode.OTHER_RESERVATION, **WANT, **got)


CASES = [
    healthy(waiting_requests_take_free_places, ample(Parked(3, 8), DECODED), "a-request-is-parked"),
    broken(
        waiting_requests_take_free_places,
        "one-of-two-free-slots-not-used",
        one_free_slot(),
        found(REQUEST, AdmissionCode.PLACE_LEFT_EMPTY, taken=1, places=2),
    ),
    broken(
        reservations_match_planner,
        "estimate-too-high",
        planned(EXCESSIVE_ADMISSION),
        other_reservation(5, {"full": 2, "swa": 2}, {"full": 3, "swa": 3}),
    ),
    broken(
        admission_matches_planner,
        "fitting-request-not-admitted",
        planned(),
        found(REQUEST, AdmissionCode.KEPT_WAITING, **WANT),
    ),
    broken(
        admission_matches_planner,
        "admitted-with-too-few-free-pages",
        planned(EXPECTED_ADMISSION, pools=with_pool(BEFORE, "swa", free=[6])),
        found(REQUEST, AdmissionCode.DOES_NOT_FIT, **GOT, available={"full": 6, "swa": 2}),
    ),
    healthy(
        admission_matches_planner,
        alone(records=TRANSFER_RECORDS),
        "a-transfer-will-release-its-pages",
    ),
]
