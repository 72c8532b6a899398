"""The waiting queue keeps the order of arrival, also of requeued requests."""

import pytest

from swarden.engine_under_test.request import Request
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.queues import WaitingQueue


def queue_of(*ids: int) -> WaitingQueue:
    queue = WaitingQueue()
    for request_id in ids:
        queue.add(request(request_id))
    return queue


def request(request_id: int) -> Request:
    return Request(request_id, 1, [request_id], SamplingParams(1))


def ids(requests) -> list[int]:
    return [request.id for request in requests]


@pytest.mark.parametrize("added", [(1, 2, 3), (3, 1, 2), (2, 3, 1)], ids=str)
def test_queue_is_in_order_of_arrival(added):
    assert ids(queue_of(*added)) == [1, 2, 3]


def test_removed_request_is_not_waiting():
    queue = queue_of(1, 2, 3)
    second = list(queue)[1]

    queue.remove(second)

    assert (ids(queue), second in queue, len(queue)) == ([1, 3], False, 2)
