"""The outbox: each request is sent once a step, ended requests last."""

from swarden.engine_under_test.ports import Computed
from swarden.engine_under_test.request import Ending, Output, Request
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.queues import Outbox
from swarden.invariants.events import FinishReason


def request_with_token(number: int) -> Request:
    request = Request(number, 1, [5], SamplingParams(4))
    request.receive(Computed([10 + number]))
    return request


def outbox_of(*requests: Request) -> Outbox:
    outbox = Outbox(None)
    for request in requests:
        outbox.note_tokens(request)
    return outbox


def test_ended_request_is_sent_last_with_tokens_and_reason():
    first, second = request_with_token(1), request_with_token(2)
    outbox = outbox_of(first, second)
    outbox.note_end(first, Ending(FinishReason.STOP))

    sent = outbox.send()

    assert sent == [Output(2, (12,), None, 0, 0), Output(1, (11,), "stop", 0, 0)]


def test_ended_request_without_tokens_is_sent():
    outbox = Outbox(None)
    outbox.note_end(Request(3, 1, [5], SamplingParams(4)), Ending(FinishReason.ABORT))

    assert outbox.send() == [Output(3, (), "abort", 0, 0)]
