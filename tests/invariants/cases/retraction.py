"""Retractions without need, of the wrong request, or after which others do not run."""

from dataclasses import replace

from swarden.invariants.contracts.retraction import (
    RetractionCode,
    retraction_is_necessary,
    retraction_lets_others_run,
    retraction_takes_least_done_request,
)
from swarden.invariants.events import Completed, CopyBegan, Evicted, Freed, Launched, Locked, Retracted, TakenOver
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import BEFORE, HEALTHY, LIMITS, R1, R2, broken, during, healthy, idle

REQUEST = Ref("request", 1)
RETRACTED = Retracted(1, 4, (("swa", 1),))
COPYING = (CopyBegan(1, to_host=True, pages=()), Evicted((("swa", 1),), (("swa", 0),), ()))
DECODED = Launched(7, ((1, 20, 21),))
LOSS = {"priority": 0, "num_outputs": 3, "prompt_len": 18}  # of r1


def short(*events, idle_nodes=False, frontier=0, lookahead=0) -> Transition:
    """r1, at a page boundary, needs a page of each pool; r9 also runs, and its windowed frontier is `frontier`."""
    record = (BEFORE.records or ())[0]
    others = record._replace(owner=record.owner._replace(id=9), row=2, protected_len=0, frontiers=(0, frontier))
    kept = (BEFORE.nodes or ())[: 3 if idle_nodes else 2]
    pools = tuple(replace(pool, free=()) if pool.name == "swa" else pool for pool in BEFORE.pools)
    full = replace(
        BEFORE, records=(record, others), nodes=kept, pools=pools, limits=LIMITS._replace(lookahead_len=lookahead)
    )
    return replace(HEALTHY, before=full, events=events, after=replace(full, records=(others,)))


def ranked(*events, **changes) -> Transition:
    """r1 runs, and so does r3, a changed copy of r1."""
    running = (BEFORE.requests or ())[0]
    limits = LIMITS._replace(retracts_least_done=True)
    before = replace(BEFORE, requests=(running, running._replace(id=3, **changes)), limits=limits)
    return idle(*events, before=before)


def other_loses_less(retracted: int, least: int, loss: dict[str, int]) -> Found:
    """The violation that `least` loses less than the retracted request; one of them is r1, with LOSS."""
    mine, others = (LOSS, loss) if retracted == 1 else (loss, LOSS)
    values = {f"least_{name}": value for name, value in others.items()} | mine
    return found(Ref("request", retracted), RetractionCode.OTHER_LOSES_LESS, least=Ref("request", least), **values)


def enough_is_free(retracted: int, need: dict[str, int], free: dict[str, int]) -> Found:
    return found(Ref("request", retracted), RetractionCode.ENOUGH_IS_FREE, need=need, free=free)


CASES = [
    healthy(
        retraction_takes_least_done_request,
        ranked(Retracted(1, 3, ()), Retracted(3, 4, ()), num_outputs=4),
        "two-retractions-in-order",
    ),
    broken(
        retraction_takes_least_done_request,
        "earlier-request-retracted",
        ranked(Retracted(1, 3, ())),
        other_loses_less(1, 3, LOSS),
    ),
    healthy(retraction_lets_others_run, during(Retracted(9, 4, ()), *COPYING), "waits-for-a-backup"),
    broken(
        retraction_lets_others_run,
        "other-request-not-computed",
        during(Retracted(9, 4, ())),
        found(REQUEST, RetractionCode.NOT_COMPUTED),
    ),
    broken(
        retraction_lets_others_run,
        "other-request-computed-before-only",
        during(DECODED, Retracted(9, 4, ())),
        found(REQUEST, RetractionCode.NOT_COMPUTED),
    ),
    broken(
        retraction_is_necessary,
        "evictable-node-left",
        short(RETRACTED, idle_nodes=True, frontier=12),
        found(REQUEST, RetractionCode.EVICTABLE_NODE_KEPT, pool="swa", node=Ref("node", 3)),
    ),
    broken(
        retraction_is_necessary,
        "pages-out-of-the-window-left",
        short(RETRACTED, frontier=8),
        found(REQUEST, RetractionCode.DEAD_PAGES_KEPT, pool="swa", holder=Ref("request", 9), dead_below=12, frontier=8),
    ),
    broken(
        retraction_is_necessary,
        "enough-was-free",
        short(Freed("swa", (8,), R2, "slid", 0), RETRACTED, frontier=12),
        enough_is_free(1, {"full": 1, "swa": 1}, {"full": 5, "swa": 1}),
    ),
    healthy(
        retraction_is_necessary, short(Locked(5, 3), RETRACTED, idle_nodes=True, frontier=12), "locked-in-this-step"
    ),
    broken(
        retraction_is_necessary,
        "pass-in-flight-holds-enough",
        short(Launched(8, ()), Freed("swa", (5,), R1, "slid", 8), RETRACTED, frontier=12),
        found(REQUEST, RetractionCode.PASSES_HOLD_ENOUGH, pool="swa", count=1),
    ),
    healthy(
        retraction_is_necessary,
        short(Launched(8, ()), Freed("swa", (5,), R1, "slid", 8), Completed(8), RETRACTED, frontier=12, lookahead=4),
        "lookahead-needs-more",
    ),
    broken(
        retraction_is_necessary,
        "transferred-request-needs-no-page",
        short(TakenOver(2, 18, ()), RETRACTED, Retracted(9, 4, (("swa", 1),)), frontier=12),
        enough_is_free(9, {"full": 0, "swa": 0}, {"full": 5, "swa": 0}),
    ),
]
