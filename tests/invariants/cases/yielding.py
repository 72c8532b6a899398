"""Retractions and preemptions without need, and what is left of who gave way."""

from dataclasses import replace

from invariants.events import (
    Admitted,
    Completed,
    Evicted,
    Failed,
    Finished,
    Freed,
    Launched,
    LoadPlanned,
    Locked,
    Preempted,
    RanOut,
    Retracted,
    TakenOver,
    TransferBegan,
)
from invariants.limits import PRIORITY, Estimates
from invariants.view import Owner
from invariants.yielding import (
    a_retraction_lets_the_others_go_on,
    failed_passes_are_retried_or_given_up,
    finished_requests_hold_nothing,
    only_who_cannot_go_on_runs_out_of_memory,
    preemption_serves_the_more_important,
    retracted_requests_hold_nothing,
    retraction_is_necessary,
    who_has_least_to_lose_is_retracted,
    who_is_first_gets_the_place_of_the_less_important,
)
from tests.invariants.builders import (
    AFTER,
    BEFORE,
    HEALTHY,
    LIMITS,
    R1,
    R2,
    STALE,
    broken,
    during,
    healthy,
    holding,
    idle,
    in_flight,
    swapped,
)

ADMITTED = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
LOADING = LoadPlanned(2, 4, 1, (), ())
PREEMPTED = Preempted(1, 3, 2)
LOST = Finished(1, "forward failed 1 times: lost")
RETRACTED = Retracted(1, 4, (("swa", 1),))
COPYING = (TransferBegan(1, to_host=True, pages=()), Evicted((("swa", 1),), (("swa", 0),), ()))
DECODED = Launched(7, ((1, 20, 21),))
NOTHING_OF_R1 = {
    "records": (),
    "pools": tuple(
        replace(pool, holdings=[holding for holding in pool.holdings if holding.owner != R1]) for pool in AFTER.pools
    ),
}


def short(*events, idle_nodes=False, frontier=0, lookahead=0):
    """r1, at a page boundary, needs a page of each pool; r9 runs too and keeps its tail or not."""
    record = (BEFORE.records or ())[0]
    others = record._replace(owner=record.owner._replace(id=9), row=2, protected_len=0, frontier=frontier)
    kept = (BEFORE.nodes or ())[: 3 if idle_nodes else 2]
    books = tuple(replace(pool, free=()) if pool.name == "swa" else pool for pool in BEFORE.pools)
    full = replace(
        BEFORE, records=(record, others), nodes=kept, pools=books, limits=LIMITS._replace(lookahead_len=lookahead)
    )
    return replace(HEALTHY, before=full, events=events, after=replace(full, records=(others,)))


def preempting(*events, threshold=0, other_priority=2):
    """r1 of priority 2 and r9, who has more pages, run, r2 of priority 5 waits; r9 goes on."""
    running, waiting = BEFORE.requests or ()
    record = (BEFORE.records or ())[0]
    ranks = (
        running._replace(priority=2),
        waiting._replace(priority=5),
        running._replace(id=9, priority=other_priority),
    )
    other = record._replace(owner=record.owner._replace(id=9), row=2, protected_len=0)
    small = record._replace(units=tuple(pages[-1:] for pages in record.units))
    limits = LIMITS._replace(preemption_threshold=threshold)
    before = replace(BEFORE, requests=ranks, records=(small, other), limits=limits)
    return replace(HEALTHY, before=before, events=events, after=replace(before, records=(other,)))


def rivalling(*events, priority=5, running=None, limits=None, **pools):
    """r1 of priority 2 runs in the last row; r2 of priority 5 waits and has room for its pages."""
    first, second = BEFORE.requests or ()
    assert BEFORE.claims is not None, "the engine makes claims"
    state = replace(
        BEFORE,
        requests=(first._replace(priority=2, **(running or {})), second._replace(priority=priority)),
        limits=LIMITS._replace(
            preemption_threshold=0, estimates=Estimates(4096, 700_000, 600), waits_by=(PRIORITY,)
        )._replace(**(limits or {})),
        claims=BEFORE.claims._replace(exact_ratio=0.5),
    )
    for name, free in {"rows": (), **pools}.items():
        state = replace(state, pools=swapped(state, name, free=free))
    return idle(*events, before=state)


def failing(*events, before=0, after=0):
    """Launch 7, with r1, fails; `before` it and `after` it so many passes are counted, None: r1 is gone."""
    running, waiting = BEFORE.requests or ()
    later = [] if after is None else [running._replace(place="waiting", num_failures=after)]
    return in_flight(
        Failed(7, "lost"),
        *events,
        Completed(7),
        before={"requests": (running._replace(num_failures=before), waiting)},
        requests=(*later, waiting),
    )


def ranked(*events, **changes):
    """r1 runs, and so does r3, which is like it but for the changes."""
    running = (BEFORE.requests or ())[0]
    limits = LIMITS._replace(retracts_least_done=True)
    before = replace(BEFORE, requests=(running, running._replace(id=3, **changes)), limits=limits)
    return idle(*events, before=before)


LOSS = "priority 0, 3 outputs, prompt_len 18"  # r1's

CASES = [
    healthy(who_has_least_to_lose_is_retracted, ranked(Retracted(3, 3, ()))),
    healthy(
        who_has_least_to_lose_is_retracted,
        ranked(Retracted(1, 3, ()), Retracted(3, 4, ()), num_outputs=4),
        "one-after-the-other",
    ),
    broken(
        who_has_least_to_lose_is_retracted,
        "the-earlier-one",
        ranked(Retracted(1, 3, ())),
        ("request r1", f"retracted, yet request r3 has less to lose: {LOSS} and {LOSS}"),
    ),
    broken(
        who_has_least_to_lose_is_retracted,
        "the-more-important-one",
        ranked(Retracted(3, 3, ()), num_outputs=0, prompt_len=30, priority=1),
        ("request r3", f"retracted, yet request r1 has less to lose: priority 1, 0 outputs, prompt_len 30 and {LOSS}"),
    ),
    broken(
        who_has_least_to_lose_is_retracted,
        "the-shorter-prompt",
        ranked(Retracted(3, 3, ()), prompt_len=17),
        ("request r3", f"retracted, yet request r1 has less to lose: priority 0, 3 outputs, prompt_len 17 and {LOSS}"),
    ),
    healthy(a_retraction_lets_the_others_go_on, during(Retracted(9, 4, ()), DECODED)),
    healthy(a_retraction_lets_the_others_go_on, during(RETRACTED, requests=()), "nobody-is-left"),
    healthy(a_retraction_lets_the_others_go_on, during(Retracted(9, 4, ()), *COPYING), "waits-for-a-copy"),
    broken(
        a_retraction_lets_the_others_go_on,
        "nobody-is-decoded",
        during(Retracted(9, 4, ())),
        ("request r1", "runs on, yet no pass since the retraction computes anything for it"),
    ),
    broken(
        a_retraction_lets_the_others_go_on,
        "decoded-before-it",
        during(DECODED, Retracted(9, 4, ())),
        ("request r1", "runs on, yet no pass since the retraction computes anything for it"),
    ),
    healthy(who_is_first_gets_the_place_of_the_less_important, rivalling(PREEMPTED)),
    healthy(who_is_first_gets_the_place_of_the_less_important, rivalling(priority=2), "as-important"),
    healthy(who_is_first_gets_the_place_of_the_less_important, rivalling(rows=(2,)), "a-row-is-free"),
    healthy(who_is_first_gets_the_place_of_the_less_important, rivalling(swa=(6,)), "a-page-is-lacking-too"),
    *[
        healthy(who_is_first_gets_the_place_of_the_less_important, change, name)
        for name, change in {
            "not-by-more-than-the-threshold": rivalling(limits={"preemption_threshold": 3}),
            "its-last-token-is-in-flight": rivalling(running={"max_new_tokens": 3}),
            "no-token-to-prefill": rivalling(limits={"mixes_batches": True, "chunk_len": 1}),
            "a-prompt-has-begun": rivalling(running={"place": "chunked"}),
            "results-were-waited-for": rivalling(Completed(7), Launched(8, ())),
        }.items()
    ],
    broken(
        who_is_first_gets_the_place_of_the_less_important,
        "nobody-gives-way",
        rivalling(DECODED),
        ("request r2", "waits for a row alone, yet request r1 of less importance goes on"),
    ),
    broken(
        who_is_first_gets_the_place_of_the_less_important,
        "nobody-gives-way-in-a-mixed-batch",
        rivalling(DECODED, limits={"mixes_batches": True, "chunk_len": 5}),
        ("request r2", "waits for a row alone, yet request r1 of less importance goes on"),
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
        ("request r1", "retracted, yet the next decode step needs 1 of full with 5 free, 1 of swa with 1 free"),
    ),
    broken(
        retraction_is_necessary,
        "one-was-enough",
        short(RETRACTED, Retracted(9, 4, (("swa", 1),)), frontier=12),
        ("request r9", "retracted, yet the next decode step needs 0 of full with 5 free, 0 of swa with 0 free"),
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
    healthy(retracted_requests_hold_nothing, during(RETRACTED, LOADING._replace(request_id=1)), "loads-again"),
    broken(
        retracted_requests_hold_nothing,
        "keeps-everything",
        during(RETRACTED),
        ("request r1", "retracted, yet it has a record in row 1"),
        ("request r1", "retracted, yet it owns full pages 7, 8"),
        ("request r1", "retracted, yet it owns swa pages 5, 6"),
        ("request r1", "retracted, yet it owns rows row 1"),
    ),
    healthy(finished_requests_hold_nothing, during(Finished(1, "stop"), requests=(), **NOTHING_OF_R1)),
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
        ("request r1", "finished, yet it owns rows row 1"),
    ),
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
        retraction_is_necessary,
        "a-pass-in-flight-gives-enough",
        short(Launched(8, ()), Freed("swa", (5,), R1, "slid", 8), RETRACTED, frontier=12),
        ("request r1", "retracted for swa, yet 1 wait for passes in flight"),
    ),
    healthy(
        retraction_is_necessary,
        short(Launched(8, ()), Freed("swa", (5,), R1, "slid", 8), Completed(8), RETRACTED, frontier=12, lookahead=4),
        "the-lookahead-needs-more",
    ),
    healthy(preemption_serves_the_more_important, preempting(PREEMPTED, ADMITTED)),
    healthy(preemption_serves_the_more_important, preempting(PREEMPTED, LOADING), "for-one-who-loads"),
    broken(
        preemption_serves_the_more_important,
        "nobody-may-be",
        preempting(PREEMPTED, ADMITTED, threshold=None),
        ("request r1", "preempted for request r2, yet nobody may be preempted"),
    ),
    broken(
        preemption_serves_the_more_important,
        "at-the-threshold",
        preempting(PREEMPTED, ADMITTED, threshold=3),
        ("request r1", "preempted for request r2, yet its priority is 2, that of the other 5, the threshold 3"),
    ),
    broken(
        preemption_serves_the_more_important,
        "in-vain",
        preempting(ADMITTED, PREEMPTED),
        ("request r1", "preempted for request r2, yet that was not admitted"),
    ),
    broken(
        preemption_serves_the_more_important,
        "for-one-who-had-his-load",
        preempting(LOADING, PREEMPTED),
        ("request r1", "preempted for request r2, yet that was not admitted"),
    ),
    broken(
        preemption_serves_the_more_important,
        "for-one-who-runs",
        preempting(Preempted(1, 3, 9), ADMITTED),
        ("request r1", "preempted for request r9, yet that does not wait"),
    ),
    broken(
        preemption_serves_the_more_important,
        "one-who-waits",
        preempting(Preempted(2, 0, 2), ADMITTED),
        ("request r2", "preempted for request r2, yet it did not run"),
    ),
    broken(
        preemption_serves_the_more_important,
        "a-less-important-one-goes-on",
        preempting(PREEMPTED, ADMITTED, other_priority=1),
        ("request r1", "preempted for request r2, yet request r9 is less important and goes on"),
    ),
    broken(
        retracted_requests_hold_nothing,
        "preempted-and-put-back",
        during(Preempted(1, 4, 2), RanOut(2, "full", 1, 1), pools=NOTHING_OF_R1["pools"]),
        ("request r1", "preempted, yet it has a record in row 1"),
    ),
    broken(
        retracted_requests_hold_nothing,
        "of-a-pass-that-failed",
        in_flight(Failed(7, "lost"), Completed(7), pools=NOTHING_OF_R1["pools"]),
        ("request r1", "put back, yet it has a record in row 1"),
    ),
    healthy(failed_passes_are_retried_or_given_up, failing(after=1)),
    healthy(failed_passes_are_retried_or_given_up, failing(LOST, before=1, after=None), "given-up"),
    healthy(
        failed_passes_are_retried_or_given_up,
        in_flight(Failed(7, "lost"), Completed(7), before={"launches": STALE}),
        "of-one-that-had-left",
    ),
    broken(
        failed_passes_are_retried_or_given_up,
        "retried-for-ever",
        failing(before=1, after=2),
        ("request r1", "2 passes with it have failed, at most 1 may, yet it is waiting"),
    ),
    broken(
        failed_passes_are_retried_or_given_up,
        "not-counted",
        failing(after=0),
        ("request r1", "1 passes with it have failed, 0 are counted"),
    ),
    broken(
        failed_passes_are_retried_or_given_up,
        "lost",
        failing(after=None),
        ("request r1", "1 passes with it have failed, and it is gone without an end"),
    ),
    broken(
        failed_passes_are_retried_or_given_up,
        "given-up-too-early",
        failing(LOST, after=None),
        ("request r1", "ended (forward failed 1 times: lost), yet 1 passes with it have failed, and 1 may"),
    ),
    healthy(
        only_who_cannot_go_on_runs_out_of_memory,
        idle(Finished(1, "out of memory: no page"), before=replace(AFTER, limits=LIMITS._replace(lookahead_len=17))),
        "the-lookahead-does-not-fit",
    ),
    healthy(
        retraction_is_necessary,
        short(TakenOver(2, 20, ()), RETRACTED, Retracted(9, 4, (("swa", 1),)), frontier=12),
        "who-was-taken-over-needs-a-page",
    ),
    broken(
        retraction_is_necessary,
        "who-was-taken-over-needs-no-page",
        short(TakenOver(2, 18, ()), RETRACTED, Retracted(9, 4, (("swa", 1),)), frontier=12),
        ("request r9", "retracted, yet the next decode step needs 0 of full with 5 free, 0 of swa with 0 free"),
    ),
    healthy(
        who_has_least_to_lose_is_retracted,
        ranked(Retracted(1, 3, ()), place="linked"),
        "who-is-with-another-engine-has-nothing-here",
    ),
    broken(
        who_has_least_to_lose_is_retracted,
        "not-who-was-taken-over",
        ranked(TakenOver(3, 20, ()), Retracted(1, 3, ()), place="linked"),
        ("request r1", f"retracted, yet request r3 has less to lose: {LOSS} and {LOSS}"),
    ),
]
