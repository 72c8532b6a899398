"""Promises that were not kept, queues that were not, and refusals without need."""

from dataclasses import replace

from invariants.admission import (
    admitted_work_never_runs_out,
    free_places_are_filled,
    nobody_is_passed_over,
    only_the_impossible_is_rejected,
    reservations_cover_what_is_taken,
    the_impossible_is_rejected,
    what_is_promised_is_what_is_needed,
    who_is_next_is_admitted_if_it_fits,
)
from invariants.events import (
    Admitted,
    Finished,
    Freed,
    Invited,
    Launched,
    LetGo,
    LoadPlanned,
    Parked,
    RanOut,
    Refused,
    Rejected,
    Taken,
    TransferEnded,
)
from invariants.limits import ARRIVAL, PRIORITY, Estimates
from invariants.view import Owner, RequestView
from tests.invariants.builders import (
    AFTER,
    BEFORE,
    HEALTHY,
    LIMITS,
    R1,
    R2,
    after,
    broken,
    during,
    healthy,
    idle,
    pools,
    swapped,
)
from tests.invariants.host_builders import BACKED_UP, LOAD, PLANNED, while_copying

ESTIMATING = LIMITS._replace(estimates=Estimates(4096, 700_000, 600), waits_by=(PRIORITY, ARRIVAL))
AS_NEEDED = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 2), ("swa", 3)))
ADMITTED = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
DECODES = Taken("full", (8,), R1)
HELD_FOR_ANOTHER_ENGINE = tuple(record._replace(owner=Owner("transfer", 1)) for record in BEFORE.records or ())


def arriving(prompt_len, max_new_tokens):
    known = AFTER.requests or ()
    return after(requests=(*known, RequestView(3, "waiting", 0, prompt_len, 0, max_new_tokens)))


def queued(*events, waits_by=(PRIORITY, ARRIVAL)):
    """r2 of priority 0 waits, and r3 and r4 of priority 1."""
    running, waiting = AFTER.requests or ()
    queue = [waiting._replace(id=number, priority=priority) for number, priority in ((2, 0), (3, 1), (4, 1))]
    state = replace(AFTER, requests=(running, *queue), limits=LIMITS._replace(waits_by=waits_by))
    return idle(*events, before=state)


def roomy(*events, free=range(5, 40), rows=(2,)):
    """r2 waits for a place in an engine with plenty of pages."""
    books = [replace(pool, free=free) if pool.unit == "page" else replace(pool, free=rows) for pool in BEFORE.pools]
    return replace(HEALTHY, before=replace(BEFORE, pools=tuple(books)), events=events)


def one_more(state):
    """Behind those who wait there is r3."""
    third = state.request_by_id[2]._replace(id=3)
    return replace(state, requests=(*(state.requests or ()), third))


def beside_a_load(*events):
    """r2 and r3 wait, and one place is free."""
    change = roomy(*events, Launched(7, ((1, 20, 21),)))
    return replace(change, before=one_more(change.before), after=one_more(change.after))


def planning(*events, limits=None, **parts):
    """r1 runs and needs a page; r2, who waits with 5 tokens to compute and one to come, needs 2, and 3 of swa."""
    assert BEFORE.claims is not None, "the engine makes claims"
    halved = BEFORE.claims._replace(exact_ratio=0.5)
    state = replace(BEFORE, claims=halved, limits=ESTIMATING._replace(**(limits or {})), **parts)
    return idle(*events, before=state)


def alone(*events, **parts):
    """r2 waits where nobody runs, and two pages of swa can be had, one less than it may come to need."""
    return planning(*events, pools=swapped(BEFORE, "swa", free=[]), **{"requests": (BEFORE.requests or ())[1:]} | parts)


def looking_ahead(*events, **parts):
    return during(*events, limits=LIMITS._replace(lookahead_len=4), **parts)


CASES = [
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
    healthy(admitted_work_never_runs_out),
    healthy(admitted_work_never_runs_out, during(RanOut(1, "swa", 2, 2)), "a-fault-that-refuses"),
    broken(
        admitted_work_never_runs_out,
        "ran-out",
        during(ADMITTED, RanOut(2, "swa", 2, 1)),
        ("request r2", "promised 2 of swa, 1 were free"),
    ),
    healthy(admitted_work_never_runs_out, while_copying(PLANNED, Refused("swa", LOAD, 2, 2)), "a-fault-refuses-a-load"),
    healthy(
        admitted_work_never_runs_out,
        while_copying(PLANNED, BACKED_UP, Refused("swa", LOAD, 2, 1), RanOut(1, "swa", 2, 1)),
        "a-backup-is-stuck",
    ),
    broken(
        admitted_work_never_runs_out,
        "a-load-was-refused",
        while_copying(PLANNED, Refused("swa", LOAD, 2, 1), Refused("full", R1, 1, 0)),
        ("load l2", "promised 2 of swa, 1 were free"),
    ),
    broken(
        admitted_work_never_runs_out,
        "a-backup-was-under-way-before",
        while_copying(PLANNED, RanOut(1, "swa", 2, 1)),
        ("request r1", "promised 2 of swa, 1 were free"),
    ),
    broken(
        admitted_work_never_runs_out,
        "a-backup-has-ended",
        while_copying(PLANNED, BACKED_UP, TransferEnded(1, None), RanOut(1, "swa", 2, 1)),
        ("request r1", "promised 2 of swa, 1 were free"),
    ),
    healthy(
        admitted_work_never_runs_out,
        while_copying(BACKED_UP, RanOut(1, "swa", 2, 1), TransferEnded(1, None), transfers=()),
        "a-backup-ended-too-late",
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
    healthy(only_the_impossible_is_rejected, looking_ahead(Rejected(2, 30, 7, "row")), "with-its-lookahead"),
    broken(
        the_impossible_is_rejected,
        "lookahead-beyond-the-row",
        looking_ahead(requests=(RequestView(3, "waiting", 0, 30, 0, 7),)),
        ("request r3", "is waiting, yet 30 + 7 + 4 tokens are more than max_context_len 40"),
    ),
    healthy(nobody_is_passed_over, queued(*[Admitted(one, 0, 5, (), ()) for one in (3, 4, 2)])),
    healthy(nobody_is_passed_over, queued(Finished(3, "timeout"), Admitted(4, 0, 5, (), ())), "gone-before"),
    healthy(nobody_is_passed_over, queued(Admitted(1, 16, 22, (), ())), "the-next-chunk-of-one-who-has-begun"),
    healthy(
        nobody_is_passed_over,
        queued(LoadPlanned(3, 4, 1, (), ()), Admitted(4, 0, 5, (), ()), LoadPlanned(2, 4, 2, (), ())),
        "with-loads-before-them",
    ),
    broken(
        nobody_is_passed_over,
        "by-one-who-loads",
        queued(LoadPlanned(2, 4, 1, (), ())),
        ("request r2", "admitted with priority 0, yet request r3 of priority 1 waits before it"),
    ),
    healthy(
        nobody_is_passed_over,
        queued(Admitted(4, 0, 5, (), ()), waits_by=(PRIORITY,)),
        "equals-in-any-order",
    ),
    broken(
        nobody_is_passed_over,
        "a-more-important-one",
        queued(Admitted(2, 0, 5, (), ())),
        ("request r2", "admitted with priority 0, yet request r3 of priority 1 waits before it"),
    ),
    broken(
        nobody_is_passed_over,
        "an-earlier-one",
        queued(Admitted(4, 0, 5, (), ())),
        ("request r4", "admitted with priority 1, yet request r3 of priority 1 waits before it"),
    ),
    healthy(free_places_are_filled, roomy(Admitted(2, 0, 5, (), ()), Launched(7, ((1, 20, 21),)))),
    healthy(free_places_are_filled, roomy(Launched(7, ((1, 20, 21), (3, 0, 7)))), "no-token-to-spare"),
    healthy(free_places_are_filled, roomy(Parked(3, 8), Launched(7, ((1, 20, 21),))), "a-chunk-stands-first"),
    healthy(free_places_are_filled, roomy(Launched(7, ((1, 20, 21),)), free=range(5, 10)), "not-room-for-all"),
    healthy(free_places_are_filled, roomy(Launched(7, ((1, 20, 21),)), rows=[]), "no-place"),
    healthy(free_places_are_filled, beside_a_load(LoadPlanned(2, 8, 2, (), ())), "who-waits-for-a-load-takes-a-place"),
    broken(
        free_places_are_filled,
        "one-is-left-empty-beside-those-who-wait",
        beside_a_load(),
        ("request r2", "waits, yet it fits, and 1 of 2 places are taken"),
    ),
    broken(
        free_places_are_filled,
        "one-is-left-empty",
        roomy(Launched(7, ((1, 20, 21),))),
        ("request r2", "waits, yet it fits, and 1 of 2 places are taken"),
    ),
    healthy(what_is_promised_is_what_is_needed, planning(AS_NEEDED)),
    broken(
        what_is_promised_is_what_is_needed,
        "too-many-tokens-foreseen",
        planning(ADMITTED),
        (
            "request r2",
            "admitted for [0, 5) with 2 to 3 of full, 2 to 3 of swa, "
            "yet it needs [0, 5) with 2 to 2 of full, 2 to 3 of swa",
        ),
    ),
    broken(
        what_is_promised_is_what_is_needed,
        "cut-without-a-limit",
        planning(AS_NEEDED._replace(end=4, firm=(("full", 1), ("swa", 1))), limits={"chunk_len": None}),
        (
            "request r2",
            "admitted for [0, 4) with 1 to 2 of full, 1 to 3 of swa, "
            "yet it needs [0, 5) with 2 to 2 of full, 2 to 3 of swa",
        ),
    ),
    healthy(who_is_next_is_admitted_if_it_fits, planning(AS_NEEDED)),
    healthy(who_is_next_is_admitted_if_it_fits, planning(pools=swapped(BEFORE, "swa", free=[6])), "a-page-short"),
    healthy(who_is_next_is_admitted_if_it_fits, planning(pools=swapped(BEFORE, "rows", free=[])), "no-row"),
    healthy(who_is_next_is_admitted_if_it_fits, planning(is_paused=True), "in-a-pause"),
    healthy(
        who_is_next_is_admitted_if_it_fits,
        planning(Finished(1, "timeout")),
        "what-came-free-before-is-not-followed",
    ),
    broken(
        who_is_next_is_admitted_if_it_fits,
        "nobody-was-asked",
        planning(),
        ("request r2", "waits, yet there is room for [0, 5) with 2 to 2 of full, 2 to 3 of swa"),
    ),
    broken(
        who_is_next_is_admitted_if_it_fits,
        "too-little-was-free",
        planning(AS_NEEDED, pools=swapped(BEFORE, "swa", free=[6])),
        ("request r2", "admitted for [0, 5) with 2 to 2 of full, 2 to 3 of swa, yet it does not fit"),
    ),
    healthy(
        who_is_next_is_admitted_if_it_fits,
        planning(DECODES, LetGo(3, "abort")),
        "somebody-was-let-go-of-in-the-step",
    ),
    healthy(who_is_next_is_admitted_if_it_fits, planning(DECODES, Invited(2, 0)), "invited-in-the-step"),
    broken(
        who_is_next_is_admitted_if_it_fits,
        "nothing-came-from-another-engine",
        planning(DECODES),
        ("request r2", "waits, yet there is room for [0, 5) with 2 to 2 of full, 2 to 3 of swa"),
    ),
    healthy(
        who_is_next_is_admitted_if_it_fits,
        alone(records=HELD_FOR_ANOTHER_ENGINE),
        "what-is-held-for-another-engine-will-be-had",
    ),
    broken(
        who_is_next_is_admitted_if_it_fits,
        "nobody-holds-anything",
        alone(records=()),
        ("request r2", "waits, yet there is room for [0, 5) with 2 to 2 of full, 2 to 3 of swa"),
    ),
]
