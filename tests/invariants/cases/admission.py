"""Promises that were not kept, refusals and retractions without need."""

from dataclasses import replace

from invariants.admission import (
    admitted_work_never_runs_out,
    finished_requests_hold_nothing,
    only_the_impossible_is_rejected,
    only_who_cannot_go_on_runs_out_of_memory,
    reservations_cover_what_is_taken,
    retracted_requests_hold_nothing,
    retraction_is_necessary,
    the_impossible_is_rejected,
)
from invariants.events import Admitted, Finished, Freed, Locked, RanOut, Rejected, Retracted, Taken
from invariants.view import Owner, RequestView
from tests.invariants.builders import (
    AFTER,
    BEFORE,
    HEALTHY,
    R1,
    R2,
    after,
    broken,
    during,
    healthy,
    holding,
    idle,
    pools,
)

ADMITTED = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
RETRACTED = Retracted(1, 4, (("swa", 1),))
NOTHING_OF_R1 = {
    "records": (),
    "pools": tuple(
        replace(pool, holdings=[holding for holding in pool.holdings if holding.owner != R1]) for pool in AFTER.pools
    ),
}


def arriving(prompt_len, max_new_tokens):
    known = AFTER.requests or ()
    return after(requests=(*known, RequestView(3, "waiting", 0, prompt_len, 0, max_new_tokens)))


def short(*events, idle_nodes=False, frontier=0, free=(), requests=BEFORE.requests):
    """r1, at a page boundary, needs a page of each pool; r9 runs too and keeps its tail or not."""
    record = (BEFORE.records or ())[0]
    others = record._replace(owner=record.owner._replace(id=9), row=2, protected_len=0, frontier=frontier)
    every = BEFORE.nodes or ()
    kept = every if idle_nodes else every[:2]
    books = tuple(replace(pool, free=free) if pool.name == "swa" else pool for pool in BEFORE.pools)
    full = replace(BEFORE, records=(record, others), nodes=kept, pools=books, requests=requests)
    return replace(HEALTHY, before=full, events=events, after=replace(full, records=(others,)))


CASES = [
    healthy(admitted_work_never_runs_out),
    healthy(admitted_work_never_runs_out, during(RanOut(1, "swa", 2, 2)), "a-fault-that-refuses"),
    broken(
        admitted_work_never_runs_out,
        "ran-out",
        during(ADMITTED, RanOut(2, "swa", 2, 1)),
        ("request r2", "promised 2 of swa, 1 were free"),
    ),
    healthy(
        reservations_cover_what_is_taken,
        during(
            Taken("rows", (2,), R2),
            ADMITTED,
            Taken("full", (9, 10), R2),
            Freed("full", (10, 9), R2, "rolled back", 0),
            Taken("full", (9, 10), R2),
            Taken("swa", (7, 8), R2),
            Taken("full", (11, 12), R1),
        ),
    ),
    broken(
        reservations_cover_what_is_taken,
        "takes-more",
        during(ADMITTED, Taken("full", (9, 10), R2), Taken("swa", (6, 7, 8), R2)),
        ("request r2", "took 1 of swa more than were reserved"),
    ),
    healthy(only_the_impossible_is_rejected, during(Rejected(2, 36, 5, "row"), Rejected(3, 0, 1, "empty"))),
    broken(
        only_the_impossible_is_rejected,
        "window-taken-for-a-limit",
        during(Rejected(2, 36, 4, "the prompt needs 10 swa pages of 8")),
        (
            "request r2",
            "rejected (the prompt needs 10 swa pages of 8), yet prompt_len 36, max_new_tokens 4 fits an empty engine",
        ),
    ),
    healthy(the_impossible_is_rejected, arriving(36, 4)),
    broken(
        the_impossible_is_rejected,
        "row-too-short",
        arriving(36, 5),
        ("request r3", "is waiting, yet 36 + 5 tokens are more than max_context_len 40"),
    ),
    broken(
        the_impossible_is_rejected,
        "pool-too-small",
        after(
            requests=(RequestView(3, "waiting", 0, 36, 0, 1),),
            pools=pools("full", capacity=9),
        ),
        ("request r3", "is waiting, yet its prompt needs 10 pages of full, which has 9"),
    ),
    broken(
        the_impossible_is_rejected,
        "empty",
        arriving(0, 5),
        ("request r3", "is waiting, yet its prompt is empty"),
    ),
    healthy(retraction_is_necessary, short(RETRACTED, frontier=12)),
    broken(
        retraction_is_necessary,
        "idle-cache-was-left",
        short(RETRACTED, idle_nodes=True, frontier=12),
        ("request r1", "retracted for swa, yet node n3 could be evicted"),
    ),
    broken(
        retraction_is_necessary,
        "dead-window-was-left",
        short(RETRACTED, frontier=8),
        ("request r1", "retracted for swa, yet request r9 kept its pages up to 12, frontier 8"),
    ),
    broken(
        retraction_is_necessary,
        "enough-was-free",
        short(Freed("swa", (8,), R2, "slid", 0), RETRACTED, frontier=12),
        ("request r1", "retracted, yet the next decode step needs 1 pages and full has 5 free, swa has 1 free"),
    ),
    broken(
        retraction_is_necessary,
        "one-was-enough",
        short(RETRACTED, Retracted(9, 4, (("swa", 1),)), frontier=12),
        ("request r9", "retracted, yet the next decode step needs 0 pages and full has 5 free, swa has 0 free"),
    ),
    healthy(
        retraction_is_necessary,
        short(Locked(5, 3), RETRACTED, idle_nodes=True, frontier=12),
        "locked-in-this-step",
    ),
    healthy(retracted_requests_hold_nothing, during(RETRACTED, **NOTHING_OF_R1)),
    healthy(
        retracted_requests_hold_nothing,
        during(RETRACTED, Admitted(1, 16, 22, (("full", 2),), (("full", 2),))),
        "admitted-again",
    ),
    broken(
        retracted_requests_hold_nothing,
        "keeps-everything",
        during(RETRACTED),
        ("request r1", "retracted, yet it has a record in row 1"),
        ("request r1", "retracted, yet it owns full pages [7, 8]"),
        ("request r1", "retracted, yet it owns swa pages [5, 6]"),
        ("request r1", "retracted, yet it owns rows rows [1]"),
    ),
    healthy(finished_requests_hold_nothing, during(Finished(1, "stop"), requests=(), **NOTHING_OF_R1)),
    healthy(
        only_who_cannot_go_on_runs_out_of_memory,
        idle(
            Finished(1, "out of memory: no page"),
            before=replace(AFTER, pools=holding("swa", Owner("pressure"), range(4, 9))),
        ),
        "a-neighbour-has-the-rest",
    ),
    broken(
        only_who_cannot_go_on_runs_out_of_memory,
        "there-was-room",
        during(Finished(1, "out of memory: no page"), requests=(), **NOTHING_OF_R1),
        ("request r1", "ended (out of memory: no page) at 20 tokens"),
    ),
    broken(
        finished_requests_hold_nothing,
        "still-running",
        during(Finished(1, "stop"), **NOTHING_OF_R1),
        ("request r1", "finished (stop), yet it is running"),
    ),
    broken(
        finished_requests_hold_nothing,
        "keeps-its-row",
        during(Finished(1, "stop"), requests=(), records=(), pools=NOTHING_OF_R1["pools"][:2] + AFTER.pools[2:]),
        ("request r1", "finished, yet it owns rows rows [1]"),
    ),
]
