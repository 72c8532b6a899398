"""What clients get: each new token once, the finish reason once, and rejections without the engine."""

import pytest

from swarden.harness.core.port import Streamed, Submission
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.invariants.events import Finished, FinishReason, Rejected

PROMPT = Submission(tokens=(1, 2, 3), max_new_tokens=4, stop=(), priority=0, namespace=0)


@pytest.fixture
def noticed():
    return []


@pytest.fixture
def clients(noticed):
    return Clients[ClientRequest](noticed.append)


def test_cumulative_answer_reaches_the_client_token_by_token(clients):
    request = clients.add(ClientRequest(clients.next_id(), object(), namespace=0, cached_len=2, num_retractions=1))

    for outputs in ([7], [7], [7, 8, 9]):
        clients.answer(request, request.new_of(outputs))

    assert clients.streamed() == [Streamed(1, (7,), None, 2, 1), Streamed(1, (8, 9), None, 2, 1)]
    assert clients.streamed() == []


def test_client_of_a_request_that_ended_gets_one_last_answer(clients, noticed):
    request = clients.add(ClientRequest(clients.next_id(), object(), namespace=0))
    clients.finish(request, FinishReason.ABORT)
    assert 1 in clients

    clients.answer(request, ())

    assert (1 in clients, bool(clients)) == (False, True)
    assert clients.streamed() == [Streamed(1, (), FinishReason.ABORT, 0, 0)]
    assert (bool(clients), noticed) == (False, [Finished(1, FinishReason.ABORT)])


def test_rejected_request_is_answered_and_never_live(clients, noticed):
    number = clients.next_id()

    clients.reject(number, PROMPT, "too long")

    assert (number in clients, bool(clients)) == (False, True)
    assert noticed == [Rejected(1, 3, 4, "too long"), Finished(1, FinishReason.REJECTED)]
    assert [output.finish_reason for output in clients.streamed()] == [FinishReason.REJECTED]
