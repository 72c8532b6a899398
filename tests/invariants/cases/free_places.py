"""Free slots that are not used."""

from dataclasses import replace

from swarden.invariants.contracts.free_places import FreePlaceCode, waiting_requests_take_free_places
from swarden.invariants.events import Admitted, Launched, LoadPlanned, Parked
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import BEFORE, HEALTHY, broken, healthy

DECODED = Launched(7, ((1, 20, 21),))
REQUEST = Ref("request", 2)


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


CASES = [
    healthy(waiting_requests_take_free_places, ample(Admitted(2, 0, 5, (), ()), DECODED)),
    healthy(waiting_requests_take_free_places, ample(Launched(7, ((1, 20, 21), (3, 0, 7)))), "chunk-budget-used-up"),
    healthy(waiting_requests_take_free_places, ample(Parked(3, 8), DECODED), "a-request-is-parked"),
    healthy(waiting_requests_take_free_places, ample(DECODED, free=range(5, 10)), "too-few-pages-for-all"),
    healthy(waiting_requests_take_free_places, ample(DECODED, rows=[]), "no-free-slot"),
    healthy(
        waiting_requests_take_free_places, one_free_slot(Launched(8, ((2, 0, 3),))), "launched-request-takes-the-slot"
    ),
    healthy(
        waiting_requests_take_free_places, one_free_slot(LoadPlanned(2, 8, 2, (), ())), "loading-request-takes-the-slot"
    ),
    broken(
        waiting_requests_take_free_places,
        "one-of-two-free-slots-not-used",
        one_free_slot(),
        found(REQUEST, FreePlaceCode.PLACE_LEFT_EMPTY, taken=1, places=2),
    ),
    broken(
        waiting_requests_take_free_places,
        "free-slot-not-used",
        ample(DECODED),
        found(REQUEST, FreePlaceCode.PLACE_LEFT_EMPTY, taken=1, places=2),
    ),
]
