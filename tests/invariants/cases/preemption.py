"""Preemptions that are missing, useless, or of the wrong request."""

from dataclasses import replace

from swarden.invariants.contracts.preemption import (
    PreemptionCode,
    preemption_matches_planner,
    preemptor_is_admitted_at_once,
)
from swarden.invariants.events import Admitted, Completed, Launched, LoadPlanned, Preempted
from swarden.invariants.limits import PRIORITY, Estimates
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import BEFORE, HEALTHY, LIMITS, broken, healthy, idle, with_pool

ADMITTED = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))
LOADING = LoadPlanned(2, 4, 1, (), ())
PREEMPTED = Preempted(1, 3, 2)
DECODED = Launched(7, ((1, 20, 21),))
VICTIM, PREEMPTOR = Ref("request", 1), Ref("request", 2)


def preempting(*events, threshold=0) -> Transition:
    """r2 of priority 5 waits, r1 and r9 run."""
    running, waiting = BEFORE.requests or ()
    ranks = (running._replace(priority=2), waiting._replace(priority=5), running._replace(id=9, priority=2))
    limits = LIMITS._replace(preemption_threshold=threshold)
    before = replace(BEFORE, requests=ranks, limits=limits)
    return replace(HEALTHY, before=before, events=events, after=before)


def lacking_a_row(*events, running=None, waiting=None, limits=None, **pools) -> Transition:
    """r1 of priority 2 runs in the last row; r2 of priority 5 waits, and the pools have its pages."""
    first, second = BEFORE.requests or ()
    assert BEFORE.counters is not None, "the engine gives counters"
    state = replace(
        BEFORE,
        requests=(first._replace(priority=2, **(running or {})), second._replace(**{"priority": 5, **(waiting or {})})),
        limits=LIMITS._replace(
            preemption_threshold=0, estimates=Estimates(4096, 700_000, 600), waits_by=(PRIORITY,)
        )._replace(**(limits or {})),
        counters=BEFORE.counters._replace(exact_ratio=0.5),
    )
    for name, free in {"rows": (), **pools}.items():
        state = replace(state, pools=with_pool(state, name, free=free))
    return idle(*events, before=state)


def preempting_beside_another(priority: int, *, gives_pages: bool = True, **lacking) -> Transition:
    """r1 yields its row and its pages; r9 of this priority runs on, which may have no page of its own."""
    before = lacking_a_row(**lacking).before
    [first, *others], [record, *records] = before.requests or (), before.records or ()
    its = record._replace(owner=record.owner._replace(id=9), row=2)
    if not gives_pages:
        its = its._replace(units=tuple((0,) * len(units) for units in record.units))
    requests = (first, first._replace(id=9, priority=priority), *others)
    return idle(PREEMPTED, before=replace(before, requests=requests, records=(record, its, *records)))


CASES = [
    *[
        healthy(preemption_matches_planner, change, name)
        for name, change in {
            "as-important": lacking_a_row(waiting={"priority": 2}),
            "a-row-is-free": lacking_a_row(rows=(2,)),
            "pages-are-lacking-even-then": lacking_a_row(full=(), waiting={"max_new_tokens": 80}),
            "not-by-more-than-the-threshold": lacking_a_row(limits={"preemption_threshold": 3}),
            "its-last-token-is-in-flight": lacking_a_row(running={"max_new_tokens": 3}),
            "no-token-to-prefill": lacking_a_row(limits={"mixes_batches": True, "chunk_len": 1}),
            "a-prompt-has-begun": lacking_a_row(running={"place": "chunked"}),
            "as-important-as-another": preempting_beside_another(2),
            "in-place-of-a-more-important-one": preempting_beside_another(3),
            "in-place-of-one-without-pages": preempting_beside_another(
                1, gives_pages=False, rows=(2,), full=(), waiting={"max_new_tokens": 36}
            ),
            "results-were-waited-for": lacking_a_row(Completed(7), Launched(8, ())),
        }.items()
    ],
    *[
        broken(
            preemption_matches_planner,
            f"no-request-is-preempted{name}",
            change,
            found(PREEMPTOR, PreemptionCode.NOT_PREEMPTED, lesser=(VICTIM,)),
        )
        for name, change in {
            "": lacking_a_row(DECODED),
            "-in-a-mixed-batch": lacking_a_row(DECODED, limits={"mixes_batches": True, "chunk_len": 5}),
            "-for-a-row-and-pages": lacking_a_row(DECODED, swa=(6,)),
            "-for-pages": lacking_a_row(DECODED, rows=(2,), full=(), waiting={"max_new_tokens": 20}),
        }.items()
    ],
    broken(
        preemption_matches_planner,
        "in-place-of-a-less-important-one",
        preempting_beside_another(1, rows=(2,), full=(), waiting={"max_new_tokens": 36}),
        found(VICTIM, PreemptionCode.LESS_IMPORTANT_SPARED, spared=Ref("request", 9)),
    ),
    broken(
        preemptor_is_admitted_at_once,
        "preemptor-admitted-before",
        preempting(ADMITTED, PREEMPTED),
        found(VICTIM, PreemptionCode.PREEMPTOR_NOT_ADMITTED, by=PREEMPTOR),
    ),
    broken(
        preemptor_is_admitted_at_once,
        "for-a-running-request",
        preempting(Preempted(1, 3, 9), ADMITTED),
        found(VICTIM, PreemptionCode.PREEMPTOR_NOT_WAITING, by=Ref("request", 9)),
    ),
]
