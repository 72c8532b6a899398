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


def test_new_request_after_a_requeue_is_last():
    queue = queue_of(2, 1)
    list(queue)

    queue.add(request(3))

    assert ids(queue) == [1, 2, 3]


def test_removed_request_is_not_waiting():
    queue = queue_of(1, 2, 3)
    second = list(queue)[1]

    queue.remove(second)

    assert (ids(queue), second in queue, len(queue)) == ([1, 3], False, 2)


def test_queue_orders_by_priority_then_match_then_arrival():
    queue = WaitingQueue()
    for request_id, priority in ((1, 0), (2, 1), (3, 1), (4, 0), (5, 1)):
        queue.add(Request(request_id, 1, [1], SamplingParams(1), priority=priority))

    by_arrival = queue.in_order()
    by_match = queue.in_order(lambda request: {3: 8, 4: 8}.get(request.id, 0))

    assert (ids(by_arrival), ids(by_match)) == ([2, 3, 5, 1, 4], [3, 2, 5, 4, 1])
