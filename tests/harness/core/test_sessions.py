"""The sessions of clients: the prompts of turns that arrive before the turn before them has ended."""

from unittest.mock import Mock

import pytest

from swarden.harness.core.ops import OpenSession, Turn
from swarden.harness.core.sessions import ClientSessions
from swarden.invariants.events import FinishReason
from swarden.invariants.reference import Reference

PROMPTS = ([1, 2, 3, 4], [5, 6], [9])
FIRST, SECOND, THIRD = PROMPTS
OUTPUT = [7, 8]
STOP, LENGTH, ABORT, REJECTED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT, FinishReason.REJECTED


def last_prompt(num_turns, ends, aborted=0):
    """The prompt of the last of some turns that arrive together, after the `ends`: (turn, output, reason).

    The turn `aborted` is aborted before the next one is sent.
    """
    reference, port = Reference(), Mock(queues_turns=True)
    port.sessions.open_session.return_value = 1
    sessions = ClientSessions(port, reference)
    sessions.open(OpenSession())

    def send(number, tokens):
        op = Turn(tokens=tuple(tokens), max_new_tokens=2)
        session = sessions.session_of(op)
        assert session is not None
        submission = sessions.submission(session, op)
        reference.submitted(number, namespace=0, prompt=submission.tokens)
        sessions.turn_sent(session, number, submission)

    for number, tokens in enumerate(PROMPTS[:num_turns], start=1):
        send(number, tokens)
        if number == aborted:
            sessions.turn_aborted(number)
    for turn, output, reason in ends:
        reference.streamed(turn, output, reason)
        sessions.turn_ended(turn, reason)
    return list(reference.tokens_of(num_turns))


@pytest.mark.parametrize(
    ("num_turns", "ends", "prompt"),
    [
        pytest.param(2, [], SECOND, id="queued"),
        pytest.param(2, [(1, OUTPUT, STOP)], [*FIRST, 7, *SECOND], id="stopped"),
        pytest.param(2, [(1, OUTPUT, LENGTH)], [*FIRST, 7, *SECOND], id="at-its-length"),
        pytest.param(2, [(1, OUTPUT, ABORT)], SECOND, id="aborted"),
        pytest.param(3, [(1, OUTPUT, STOP)], THIRD, id="behind-another"),
        pytest.param(3, [(1, OUTPUT, STOP), (2, [3, 4], STOP)], [*FIRST, 7, *SECOND, 3, *THIRD], id="third"),
        pytest.param(3, [(2, [], REJECTED), (1, OUTPUT, STOP)], [*FIRST, 7, *THIRD], id="behind-a-rejected-one"),
    ],
)
def test_queued_turn_goes_on_after_the_turn_before_it_less_its_last_output(num_turns, ends, prompt):
    assert last_prompt(num_turns, ends) == prompt


def test_turn_behind_an_aborted_one_is_not_queued():
    """The engine reports the abort in its next step; the third turn is queued behind the second."""
    ends = [(1, [], ABORT), (2, OUTPUT, STOP)]

    assert last_prompt(3, ends, aborted=1) == [*SECOND, 7, *THIRD]


@pytest.mark.parametrize("aborted", [1, 2])
def test_turns_queued_in_an_aborted_session_end_with_it(aborted):
    """Of three turns the second is queued when one of the first two is aborted: the third begins anew."""
    reference, port = Reference(), Mock(queues_turns=True)
    port.sessions.open_session.return_value = 1
    sessions = ClientSessions(port, reference)
    sessions.open(OpenSession())
    session = sessions.session_of(Turn())
    assert session is not None
    for number in (1, 2):
        reference.submitted(number, namespace=0, prompt=(number,))
        sessions.turn_sent(session, number, sessions.submission(session, Turn(tokens=(number,))))

    sessions.turn_aborted(aborted)
    sessions.turn_sent(session, 3, sessions.submission(session, Turn(tokens=(3,))))

    assert (session.last_turn, session.queued) == (3, [])
    assert all(expected.is_aborted for expected in reference.expectations.values())
