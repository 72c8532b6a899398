"""Passes that are not what they should be, and results that are not taken as they are."""

from invariants.batches import (
    a_pass_prefills_within_its_budget,
    batches_are_well_formed,
    computation_goes_on_where_it_stopped,
    what_is_committed_has_landed,
)
from invariants.events import (
    Admitted,
    Completed,
    Failed,
    Late,
    Launched,
    Loaded,
    Preempted,
    Retracted,
    TakenOver,
    Verified,
)
from tests.invariants.builders import FLYING, STALE, broken, during, flying_record, healthy, idle, in_flight, records
from tests.invariants.cases.handover import GOES_ON, HAS_ROOM
from tests.invariants.host_builders import LANDED, while_copying

GUESSED_RIGHT = Verified(7, 1, 1, (30, 9))
ADMITTED = Admitted(2, 0, 5, (("full", 2),), (("full", 2),))


LOADED = Loaded(2, 16, (5, 6, 11, 12))
BEHIND_IT = (Admitted(2, 16, 18, (("full", 1),), (("full", 1),)), Launched(7, ((2, 16, 18), (1, 21, 22))))


def taken_over(*events, length=22):
    """All 22 tokens of r2 have come from another engine; so many are said to have."""
    return idle(TakenOver(2, length, (3,)), *events, before=HAS_ROOM, after=GOES_ON)


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
        ("request r1", "launch 7 computes [21, 22), launched_len was 20"),
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
    healthy(computation_goes_on_where_it_stopped, FLYING, "behind-a-pass-in-flight"),
    healthy(
        computation_goes_on_where_it_stopped,
        in_flight(Failed(7, "lost"), Completed(7), Admitted(1, 16, 22, (), ()), Launched(8, ((1, 16, 22),))),
        "failed-and-admitted-again",
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "from-what-is-committed",
        in_flight(Launched(8, ((1, 20, 21),))),
        ("request r1", "launch 8 computes [20, 21), launched_len was 21"),
    ),
    healthy(
        computation_goes_on_where_it_stopped,
        in_flight(GUESSED_RIGHT, Completed(7), Launched(8, ((1, 22, 23),))),
        "behind-a-draft-that-was-accepted",
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "behind-a-draft-that-is-not-judged",
        in_flight(Launched(8, ((1, 22, 23),)), GUESSED_RIGHT, Completed(7)),
        ("request r1", "launch 8 computes [22, 23), launched_len was 21"),
    ),
    healthy(
        what_is_committed_has_landed,
        in_flight(GUESSED_RIGHT, Completed(7), records=flying_record(committed_len=22)),
        "with-a-draft-that-was-accepted",
    ),
    healthy(what_is_committed_has_landed),
    healthy(what_is_committed_has_landed, FLYING, "of-the-pass-before"),
    healthy(
        what_is_committed_has_landed,
        during(Retracted(1, 4, ()), Admitted(1, 16, 22, (), ()), records=records(committed_len=16)),
        "begun-anew",
    ),
    healthy(
        what_is_committed_has_landed,
        during(
            Preempted(1, 4, 2),
            Admitted(1, 16, 22, (), ()),
            Launched(7, ((1, 16, 22),)),
            Completed(7),
            records=records(committed_len=22),
        ),
        "begun-anew-and-landed",
    ),
    broken(
        what_is_committed_has_landed,
        "not-committed",
        during(Launched(7, ((1, 20, 22),)), Completed(7)),
        ("request r1", "committed_len is 21, what counts ends at 22"),
    ),
    broken(
        what_is_committed_has_landed,
        "in-flight-still",
        in_flight(Launched(8, ((1, 21, 22),)), Late(7)),
        ("request r1", "committed_len is 21, what counts ends at 20"),
    ),
    broken(
        what_is_committed_has_landed,
        "failed",
        in_flight(Failed(7, "lost"), Completed(7), Admitted(1, 16, 21, (), ())),
        ("request r1", "committed_len is 21, what counts ends at 16"),
    ),
    broken(
        what_is_committed_has_landed,
        "of-a-record-that-is-gone",
        in_flight(Admitted(1, 16, 21, (), ()), Completed(7), before={"launches": STALE}),
        ("request r1", "committed_len is 21, what counts ends at 20"),
    ),
    healthy(a_pass_prefills_within_its_budget, during(ADMITTED, Launched(7, ((2, 0, 5), (1, 20, 21))))),
    broken(
        a_pass_prefills_within_its_budget,
        "beside-a-decode",
        during(ADMITTED._replace(end=8), Launched(7, ((2, 0, 8), (1, 20, 21)))),
        ("launch 7", "prefills, and computes 9 tokens, at most 8"),
    ),
    broken(
        batches_are_well_formed,
        "nobody",
        launched(),
        ("launch 7", "computes nothing"),
    ),
    healthy(computation_goes_on_where_it_stopped, while_copying(LOADED, *BEHIND_IT), "behind-what-was-loaded"),
    broken(
        computation_goes_on_where_it_stopped,
        "over-what-was-loaded",
        while_copying(LOADED, Admitted(2, 8, 16, (), ()), Launched(7, ((2, 8, 16),))),
        ("request r2", "launch 7 computes [8, 16), launched_len was 16"),
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "behind-what-is-being-loaded",
        while_copying(*BEHIND_IT),
        ("request r2", "launch 7 computes [16, 18), launched_len was 8"),
    ),
    healthy(what_is_committed_has_landed, LANDED, "what-was-loaded"),
    broken(
        what_is_committed_has_landed,
        "not-what-was-loaded",
        while_copying(LOADED),
        ("request r2", "committed_len is 8, what counts ends at 16"),
    ),
    healthy(
        computation_goes_on_where_it_stopped,
        taken_over(Launched(7, ((1, 21, 22), (2, 22, 23)))),
        "behind-what-was-taken-over",
    ),
    broken(
        computation_goes_on_where_it_stopped,
        "over-what-was-taken-over",
        taken_over(Launched(7, ((1, 21, 22), (2, 8, 22)))),
        ("request r2", "launch 7 computes [8, 22), launched_len was 22"),
    ),
    healthy(what_is_committed_has_landed, taken_over(), "what-was-taken-over"),
    broken(
        what_is_committed_has_landed,
        "not-what-was-taken-over",
        taken_over(length=21),
        ("request r2", "committed_len is 22, what counts ends at 21"),
    ),
]
