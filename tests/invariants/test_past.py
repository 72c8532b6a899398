"""What a run has shown: the prefixes that were served, and since when sessions are idle."""

from dataclasses import replace

import pytest

from swarden.invariants.events import (
    Admitted,
    Finished,
    FinishReason,
    Freed,
    Given,
    Launched,
    Removed,
    Tombstoned,
    Written,
)
from swarden.invariants.limits import Ends, Replays
from swarden.invariants.past import MOST_SERVED, note, still_served
from swarden.invariants.reference import Computed, Past, SessionUse
from swarden.invariants.view import Holding, PoolView, RequestView, SessionView
from tests.invariants.builders import AFTER, BEFORE, DECODE, HEALTHY, LIMITS, R1, TREE, idle, reference

COMPLETED = DECODE[-1]
ENDED = Finished(1, FinishReason.STOP)


def prefill(*events, start=8, end=18, **before):
    """r1 computes [start, end) of its prompt of 18 tokens in launch 7; its client has 22 tokens."""
    launched = Launched(7, ((1, start, end),))
    return replace(HEALTHY, before=replace(BEFORE, **before), events=(launched, COMPLETED, *events))


def noted(change, now_ms=0, ends=Ends.PAGES, **past):
    known, limits = reference(22), LIMITS._replace(replays=Replays(ends))
    known.now_ms, known.past = now_ms, Past(**past)
    note(replace(change, after=replace(change.after, limits=limits), reference=known))
    return known.past


def evicted(pool, *units):
    return Freed(pool, units, TREE, "evicted", 0)


def test_whole_pages_of_a_computed_prompt_are_served():
    assert noted(prefill()).served == {1: [12, 16]}


def test_answer_of_an_ended_request_is_served():
    assert noted(idle(ENDED, before=BEFORE), served={1: [12]}).served == {1: [12, 20]}


def test_answer_of_an_aborted_request_is_not_served():
    assert noted(idle(Finished(1, FinishReason.ABORT), before=BEFORE)).served == {}


def test_turn_of_a_session_is_not_served():
    requests = tuple(request._replace(session=3) for request in BEFORE.requests or ())

    assert noted(idle(ENDED, before=replace(BEFORE, requests=requests))).served == {}


def test_engine_that_keeps_the_ends_of_passes_serves_the_last_page_boundary():
    assert noted(prefill(), ends=Ends.PASSES).served == {1: [16]}


@pytest.mark.parametrize(
    ("events", "num_outputs", "ends", "second", "served"),
    [
        pytest.param((), 0, Ends.PROMPT, 8, {1: [16]}, id="end-of-the-prompt"),
        pytest.param((), 0, Ends.PAGES, 8, {1: [8, 12, 16]}, id="blocks-that-were-computed"),
        pytest.param((), 3, Ends.PROMPT, 8, {}, id="resumed-behind-outputs"),
        pytest.param((evicted("full", 8),), 0, Ends.PROMPT, 0, {1: [16]}, id="evicted-in-the-same-step"),
    ],
)
def test_blocks_of_a_computed_prompt_are_noted(events, num_outputs, ends, second, served):
    """An engine without nodes, in which r1 computes [8, 18)."""
    computes = Admitted(1, 8, 18, (), ()), Written(7, 1, "full", 8, 16, (7, 8))
    requests = tuple(request._replace(num_outputs=num_outputs) for request in BEFORE.requests or ())
    change = prefill(*computes, *events, nodes=None, requests=requests)
    past = noted(replace(change, after=replace(AFTER, nodes=None, records=())), ends=ends)

    assert past.served == served
    assert past.computed == {1: Computed(8, {(0, 2): 7, (0, 3): second})}


def test_only_the_latest_requests_are_kept():
    served = {number: [4] for number in range(100, 100 + MOST_SERVED)}

    assert [*noted(idle(ENDED, before=BEFORE), served=served).served] == [*range(101, 100 + MOST_SERVED), 1]


@pytest.mark.parametrize(
    ("event", "left"),
    [
        pytest.param(Removed(2, "full", True), [4, 8], id="removed"),
        pytest.param(Tombstoned(1, "swa", False), [16, 20], id="tombstone"),
        pytest.param(Removed(3, "full", True), [4, 8, 12, 16, 20], id="of-another-prefix"),
        pytest.param(evicted("full", 3), [4, 8], id="page-lost"),
        pytest.param(evicted("swa", 1), [4, 8, 20], id="page-of-a-window-lost"),
        pytest.param(evicted("full", 5), [4, 8, 12, 16, 20], id="page-of-another-prefix-lost"),
    ],
)
def test_prefixes_behind_an_evicted_node_are_not_served(event, left):
    known, is_reported = reference(22), not isinstance(event, Freed)
    known.past.served[1] = [4, 8, 12, 16, 20]
    after = replace(AFTER, unreported=frozenset(() if is_reported else ("Removed",)))

    assert still_served(replace(idle(event, after=after), reference=known)) == {1: left}


def test_session_is_idle_since_the_end_of_its_turn():
    sessions = SessionView(3, 0, 1, 0, False), SessionView(4, 0, 0, 8, False), SessionView(5, 0, 0, 0, False)
    change = idle(before=replace(AFTER, sessions=sessions))

    assert noted(change, now_ms=70, sessions={3: SessionUse(1, 5, 10), 4: SessionUse(9, 5, 20)}).sessions == {
        3: SessionUse(1, 5, 70),
        4: SessionUse(9, 5, 20),
        5: SessionUse(0, 70, 70),
    }


def test_waiting_request_is_passed_over_by_a_later_one_that_begins():
    waiting = tuple([RequestView(number, "waiting", 0, 8, 0, 9) for number in (2, 3, 5)])
    change = idle(Launched(7, ((3, 0, 8),)), before=replace(BEFORE, requests=waiting[:2]))
    change = replace(change, after=replace(AFTER, requests=waiting[::2]))

    assert noted(change, waiting={2: 1, 3: 0}).waiting == {2: 2, 5: 0}


def test_unit_is_idle_since_its_last_reader_or_move():
    pool = PoolView("full", "page", 9, (), (), [Holding(TREE, (1, 2, 4), True), Holding(TREE, (3,), True, 1)])
    limits = LIMITS._replace(evicts_longest_idle=True)
    change = idle(Given("full", (4,), R1, TREE), after=replace(AFTER, pools=(pool,), limits=limits))
    change.reference.past.idle = {("full", unit): 5 for unit in (1, 3, 4)}
    change.reference.past.moment = 7

    note(change)

    past = change.reference.past
    assert past.idle == {("full", 1): 5, ("full", 2): 8, ("full", 4): 8}
    assert (past.used, past.asked) == ({("full", 4): 8}, {1: 8, 2: 8})


def test_prefix_of_the_first_pass_of_a_waiting_request_is_used():
    limits, waiting = LIMITS._replace(evicts_longest_idle=True), RequestView(1, "waiting", 0, 18, 0, 9)
    before = replace(BEFORE, requests=(waiting, RequestView(2, "running", 0, 5, 0, 1)))
    change = idle(Launched(7, ((1, 12, 18), (2, 4, 5))), before=before, after=replace(AFTER, limits=limits))

    change.reference.past = Past()

    note(change)

    assert {unit for pool, unit in change.reference.past.used if pool == "full"} == {1, 2, 3}
