"""The sessions of clients: the prompts of turns that arrive before the turn before them has ended."""

from unittest.mock import Mock

import pytest

from swarden.harness.core.ops import OpenSession, Recipe, Turn
from swarden.harness.core.sessions import ClientSessions
from swarden.invariants.events import FinishReason
from swarden.invariants.reference import Reference

FIRST, SECOND = [1, 2, 3, 4], [5, 6]
OUTPUT = [7, 8]


def queued_turn(reason):
    """The prompt of a second turn that arrives during the first one, which ends for this reason."""
    reference, port = Reference(), Mock(queues_turns=True)
    port.sessions.open_session.return_value = 1
    sessions = ClientSessions(port, reference)
    sessions.open(OpenSession())
    for number, tokens in enumerate((FIRST, SECOND), start=1):
        op = Turn(recipe=Recipe(), tokens=tuple(tokens), max_new_tokens=2)
        session = sessions.session_of(op)
        assert session is not None
        submission = sessions.submission(session, op)
        reference.submitted(number, namespace=0, prompt=submission.tokens)
        sessions.sent(session, number, submission)
    reference.streamed(1, OUTPUT, reason)
    sessions.ended(1, reason)
    return reference.tokens_of(2)


@pytest.mark.parametrize("reason", [FinishReason.STOP, FinishReason.LENGTH])
def test_queued_turn_goes_on_after_the_turn_before_it_less_its_last_output(reason):
    assert list(queued_turn(reason)) == [*FIRST, *OUTPUT[:-1], *SECOND]


def test_queued_turn_behind_an_aborted_one_has_its_own_tokens_only():
    assert list(queued_turn(FinishReason.ABORT)) == SECOND
