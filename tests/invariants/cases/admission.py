"""Admissions that differ from the naive planner's."""

from dataclasses import replace

from swarden.invariants.contracts.admission import AdmissionCode, admission_matches_planner, reservations_match_planner
from swarden.invariants.events import Admitted, Finished, Invited, LetGo, Owner, Taken
from swarden.invariants.limits import ARRIVAL, PRIORITY, Estimates
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import BEFORE, LIMITS, R1, broken, healthy, idle, with_pool

ESTIMATING = LIMITS._replace(estimates=Estimates(4096, 700_000, 600), waits_by=(PRIORITY, ARRIVAL))
EXPECTED_ADMISSION = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 2), ("swa", 3)))
EXCESSIVE_ADMISSION = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
DECODE_TAKES_PAGE = Taken("full", (8,), R1)
TRANSFER_RECORDS = tuple(record._replace(owner=Owner("transfer", 1)) for record in BEFORE.records or ())
REQUEST = Ref("request", 2)
NEEDED = {"start": 0, "end": 5, "firm": {"full": 2, "swa": 2}, "demand": {"full": 2, "swa": 3}}
WANT = {f"want_{name}": value for name, value in NEEDED.items()}
GOT = {f"got_{name}": value for name, value in NEEDED.items()}


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
    healthy(reservations_match_planner, planned(EXPECTED_ADMISSION)),
    broken(
        reservations_match_planner,
        "estimate-too-high",
        planned(EXCESSIVE_ADMISSION),
        other_reservation(5, {"full": 2, "swa": 2}, {"full": 3, "swa": 3}),
    ),
    broken(
        reservations_match_planner,
        "chunk-cut-without-reason",
        planned(EXPECTED_ADMISSION._replace(end=4, firm=(("full", 1), ("swa", 1))), limits={"chunk_len": None}),
        other_reservation(4, {"full": 1, "swa": 1}, {"full": 2, "swa": 3}),
    ),
    healthy(admission_matches_planner, planned(EXPECTED_ADMISSION)),
    healthy(admission_matches_planner, planned(pools=with_pool(BEFORE, "swa", free=[6])), "one-page-too-few"),
    healthy(admission_matches_planner, planned(pools=with_pool(BEFORE, "rows", free=[])), "no-free-row"),
    healthy(admission_matches_planner, planned(is_paused=True), "paused"),
    healthy(admission_matches_planner, planned(Finished(1, "timeout")), "unpredictable-after-other-events"),
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
        planned(DECODE_TAKES_PAGE, LetGo(3, "abort")),
        "unpredictable-after-a-transfer-is-released",
    ),
    healthy(admission_matches_planner, planned(DECODE_TAKES_PAGE, Invited(2, 0)), "unpredictable-after-an-invitation"),
    broken(
        admission_matches_planner,
        "without-messages-of-the-other-engine",
        planned(DECODE_TAKES_PAGE),
        found(REQUEST, AdmissionCode.KEPT_WAITING, **WANT),
    ),
    healthy(admission_matches_planner, alone(records=TRANSFER_RECORDS), "a-transfer-will-release-its-pages"),
    broken(
        admission_matches_planner,
        "no-request-holds-pages",
        alone(records=()),
        found(REQUEST, AdmissionCode.KEPT_WAITING, **WANT),
    ),
]
