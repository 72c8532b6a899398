"""Passes and queues that are not what they should be; and engines that stand still."""

from dataclasses import replace

from invariants.batches import (
    batches_are_well_formed,
    computation_goes_on_where_it_stopped,
    requests_are_in_one_place,
)
from invariants.events import Admitted, Completed, Launched, Retracted
from invariants.progress import the_ratio_is_in_range, work_makes_progress
from invariants.view import RequestView
from tests.invariants.builders import (
    AFTER,
    HEALTHY,
    PRESSURE,
    R2,
    after,
    broken,
    claims,
    during,
    healthy,
    holding,
    records,
)

RUNNING, WAITING = AFTER.requests or ()
ADMITTED = Admitted(2, 0, 5, (("full", 2),), (("full", 2),))


def launched(*entries):
    return during(Launched(7, entries))


CASES = [
    healthy(batches_are_well_formed),
    healthy(batches_are_well_formed, launched((1, 20, 21), (2, 0, 8)), "a-chunk-beside-a-decode"),
    broken(
        batches_are_well_formed,
        "empty-entry",
        launched((1, 20, 20)),
        ("request r1", "computes nothing in launch 7: [20, 20)"),
    ),
    broken(
        batches_are_well_formed,
        "twice",
        launched((1, 20, 21), (1, 21, 22)),
        ("launch 7", "computes request r1 twice"),
    ),
    broken(
        batches_are_well_formed,
        "too-much",
        launched((1, 0, 8), (2, 0, 5), (3, 4, 5)),
        ("launch 7", "computes 3 requests, at most 2 may run"),
        ("launch 7", "prefills 13 tokens, at most 8"),
    ),
    healthy(computation_goes_on_where_it_stopped),
    healthy(
        computation_goes_on_where_it_stopped,
        during(ADMITTED, Launched(7, ((2, 0, 5), (1, 20, 21))), Launched(8, ((2, 5, 6),))),
        "admitted-now-and-computed-twice",
    ),
    healthy(
        computation_goes_on_where_it_stopped,
        during(Retracted(1, 4, ()), Admitted(1, 16, 22, (), ()), Launched(7, ((1, 16, 22),)), Completed(7)),
        "retracted-and-admitted-again",
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "skips",
        launched((1, 21, 22)),
        ("request r1", "launch 7 computes [21, 22), committed_len was 20"),
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "not-as-admitted",
        during(ADMITTED, Launched(7, ((2, 0, 4),))),
        ("request r2", "launch 7 computes [0, 4), it was admitted for [0, 5)"),
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "never-admitted",
        launched((2, 0, 5)),
        ("request r2", "launch 7 computes [0, 5), yet it has no record and was not admitted"),
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "not-committed",
        during(Launched(7, ((1, 20, 22),)), Completed(7)),
        ("request r1", "launch 7 computes [20, 22), yet committed_len is 21 after it"),
    ),
    healthy(requests_are_in_one_place),
    broken(
        requests_are_in_one_place,
        "two-queues",
        after(requests=(RUNNING, WAITING, RUNNING._replace(place="chunked"))),
        ("request r1", "is running and chunked"),
    ),
    broken(
        requests_are_in_one_place,
        "runs-without-a-record",
        after(records=()),
        ("request r1", "is running, yet it has no record"),
    ),
    broken(
        requests_are_in_one_place,
        "waits-with-a-record",
        after(requests=(RUNNING._replace(place="waiting"), WAITING)),
        ("request r1", "is waiting, yet it has row 1"),
    ),
    broken(
        requests_are_in_one_place,
        "two-chunked",
        after(
            requests=(RUNNING._replace(place="chunked"), RequestView(2, "chunked", 0, 5, 0, 1)),
            records=(*records(), *records(owner=R2, row=2)),
        ),
        ("request r2", "is chunked, and so is request r1"),
    ),
    broken(
        requests_are_in_one_place,
        "lost",
        after(requests=(WAITING,)),
        ("request r1", "has row 1, yet it is in no queue"),
    ),
    healthy(the_ratio_is_in_range),
    broken(
        the_ratio_is_in_range,
        "below-its-floor",
        after(claims=claims(new_token_ratio=97_999)),
        ("new-token ratio", "97999 millionths, want 98000 to 1000000"),
    ),
    healthy(work_makes_progress, replace(HEALTHY, steps_without_forward=3)),
    broken(
        work_makes_progress,
        "stuck",
        replace(HEALTHY, steps_without_forward=4),
        ("engine", "4 steps without a pass, with work: request r1 running, request r2 waiting"),
    ),
]

UNDER_PRESSURE = replace(after(pools=holding("swa", PRESSURE, [8])), steps_without_forward=4)
