"""Requests that finish or are retracted and keep units, and a request that is lost."""

from dataclasses import replace

from swarden.invariants.events import Finished, FinishReason, Retracted
from swarden.invariants.laws.lifecycle.releases import (
    ReleaseCode,
    finished_requests_hold_nothing,
    requests_survive_failed_passes,
    retracted_requests_hold_nothing,
)
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import AFTER, R1, broken, during, healthy
from tests.invariants.cases.retries import failing

REQUEST = Ref("request", 1)
RETRACTED, FINISHED = Retracted(1, 4, (("swa", 1),)), Finished(1, FinishReason.STOP)
NOTHING_OF_R1 = {
    "records": (),
    "pools": tuple(
        replace(pool, holdings=[holding for holding in pool.holdings if holding.owner != R1]) for pool in AFTER.pools
    ),
}
BOTH_WAIT = {"requests": tuple(request._replace(place="waiting") for request in AFTER.requests or ())}


def keeps_record(after: str) -> Found:
    return found(REQUEST, ReleaseCode.KEEPS_RECORD, row=1, after=after)


def keeps_units(pool: str, *units: int, after: str) -> Found:
    return found(REQUEST, ReleaseCode.KEEPS_UNITS, pool=pool, units=units, after=after)


CASES = [
    healthy(
        retracted_requests_hold_nothing,
        during(RETRACTED, unreported=frozenset({"Admitted", "LoadPlanned"})),
        "runs-again-without-a-reported-admission",
    ),
    broken(
        retracted_requests_hold_nothing,
        "keeps-everything",
        during(RETRACTED),
        keeps_record("Retracted"),
        keeps_units("full", 7, 8, after="Retracted"),
        keeps_units("swa", 5, 6, after="Retracted"),
        keeps_units("rows", 1, after="Retracted"),
    ),
    broken(
        retracted_requests_hold_nothing,
        "waits-with-units-without-reported-admissions",
        during(RETRACTED, unreported=frozenset({"Admitted", "LoadPlanned"}), pools=NOTHING_OF_R1["pools"], **BOTH_WAIT),
        keeps_record("Retracted"),
    ),
    broken(
        finished_requests_hold_nothing,
        "still-running",
        during(FINISHED, **NOTHING_OF_R1),
        found(REQUEST, ReleaseCode.STILL_QUEUED, reason=FinishReason.STOP, place="running"),
    ),
    broken(requests_survive_failed_passes, "lost", failing(after=None), found(REQUEST, ReleaseCode.VANISHED, launch=7)),
]
