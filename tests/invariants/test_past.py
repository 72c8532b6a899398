"""What a run has shown: the prefixes that were served, and since when sessions are idle."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Finished, FinishReason, Launched, Removed, Tombstoned
from swarden.invariants.past import MOST_SERVED, note, still_served
from swarden.invariants.reference import Past
from swarden.invariants.view import SessionView
from tests.invariants.builders import AFTER, BEFORE, DECODE, HEALTHY, idle, reference

COMPLETED = DECODE[-1]
ENDED = Finished(1, FinishReason.STOP)


def prefill(*events, start=8, end=18, **before):
    """r1 computes [start, end) of its prompt of 18 tokens in launch 7; its client has 22 tokens."""
    launched = Launched(7, ((1, start, end),))
    return replace(HEALTHY, before=replace(BEFORE, **before), events=(launched, COMPLETED, *events))


def noted(change, now_ms=0, **past):
    known = reference(22)
    known.now_ms, known.past = now_ms, Past(**past)
    note(replace(change, reference=known))
    return known.past


def test_whole_pages_of_a_computed_prompt_are_served():
    assert noted(prefill()).served == {1: [12, 16]}


def test_answer_of_an_ended_request_is_served():
    assert noted(idle(ENDED, before=BEFORE), served={1: [12]}).served == {1: [12, 20]}


def test_answer_of_an_aborted_request_is_not_served():
    assert noted(idle(Finished(1, FinishReason.ABORT), before=BEFORE)).served == {}


def test_turn_of_a_session_is_not_served():
    requests = tuple(request._replace(session=3) for request in BEFORE.requests or ())

    assert noted(idle(ENDED, before=replace(BEFORE, requests=requests))).served == {}


def test_pass_with_states_serves_its_last_page_boundary():
    full, swa = BEFORE.components
    components = (full, swa._replace(window=2, has_states=True))
    change = prefill()

    assert noted(replace(change, after=replace(AFTER, components=components))).served == {1: [16]}


def test_only_the_latest_requests_are_kept():
    served = {number: [4] for number in range(100, 100 + MOST_SERVED)}

    assert [*noted(idle(ENDED, before=BEFORE), served=served).served] == [*range(101, 100 + MOST_SERVED), 1]


@pytest.mark.parametrize(
    ("event", "left"),
    [
        pytest.param(Removed(2, "full", True), [4, 8], id="removed"),
        pytest.param(Tombstoned(1, "swa", False), [16, 20], id="tombstone"),
        pytest.param(Removed(3, "full", True), [4, 8, 12, 16, 20], id="of-another-prefix"),
    ],
)
def test_prefixes_behind_an_evicted_node_are_not_served(event, left):
    known = reference(22)
    known.past.served[1] = [4, 8, 12, 16, 20]

    assert still_served(replace(idle(event), reference=known)) == {1: left}


def test_session_is_idle_since_the_end_of_its_turn():
    sessions = SessionView(3, 0, 1, 0, False), SessionView(4, 0, 0, 8, False), SessionView(5, 0, 0, 0, False)
    change = idle(before=replace(AFTER, sessions=sessions))

    assert noted(change, now_ms=70, idle_since={3: 10, 4: 20}).idle_since == {3: 70, 4: 20, 5: 70}
