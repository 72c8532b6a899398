"""Priorities: the order of admission, and preemption for a request of higher priority."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Discarded, Preempted
from tests.engine_under_test.builders import HYBRID, Serving

SHORT, OTHER = list(range(200, 205)), list(range(300, 317))
ONE_ROW = replace(HYBRID, max_running_requests=1, preemption_threshold=0)


def rivals(config=ONE_ROW, *, running: int = 0, waiting: int) -> Serving:
    """Request 1 has two output tokens when the other request arrives."""
    serving = Serving(config)
    serving.submit(SHORT, priority=running, max_new_tokens=9)
    serving.step(2)
    serving.submit(OTHER[:9], priority=waiting, max_new_tokens=3)
    serving.step()
    return serving


def test_running_request_yields_to_higher_priority_and_is_served_later():
    serving = rivals(waiting=1)
    preempted, computed = serving.log.of(Preempted), serving.passes[-1]

    serving.run()

    assert (preempted, computed) == ([Preempted(1, 2, 2)], ((2, 0, 9),))
    assert (serving.tokens(1), serving.received[1].num_retractions, serving.tokens(2)) == (
        serving.expected(SHORT, max_new_tokens=9),
        1,
        serving.expected(OTHER[:9], max_new_tokens=3),
    )


@pytest.mark.parametrize(
    ("threshold", "running", "waiting", "preempted"),
    [
        pytest.param(None, 0, 9, [], id="preemption is off"),
        pytest.param(0, 0, 0, [], id="equal priority"),
        pytest.param(0, 1, 0, [], id="lower priority"),
        pytest.param(0, 0, 1, [1], id="higher priority"),
        pytest.param(2, 0, 2, [], id="exactly the threshold"),
        pytest.param(2, 0, 3, [1], id="more than the threshold"),
        pytest.param(2, -1, 2, [1], id="more than the threshold above one below zero"),
    ],
)
def test_preemption_needs_a_priority_above_the_threshold(threshold, running, waiting, preempted):
    serving = rivals(replace(ONE_ROW, preemption_threshold=threshold), running=running, waiting=waiting)

    assert [event.request_id for event in serving.log.of(Preempted)] == preempted


def test_no_preemption_when_both_requests_fit():
    serving = rivals(replace(ONE_ROW, max_running_requests=2), waiting=1)

    assert (serving.log.of(Preempted), serving.passes[-1]) == ([], ((2, 0, 9),))


def test_preemption_waits_for_passes_in_flight():
    serving = Serving(replace(ONE_ROW, overlap=True))
    serving.submit(SHORT, max_new_tokens=9)
    serving.step(2)
    serving.submit(OTHER[:9], priority=1, max_new_tokens=3)

    serving.step()

    assert (serving.log.of(Preempted), serving.passes[-1], serving.log.of(Discarded)) == (
        [Preempted(1, 2, 2)],
        ((2, 0, 9),),
        [],
    )


def test_a_preemption_waits_for_a_late_pass():
    serving = Serving(replace(ONE_ROW, overlap=True))
    serving.submit(SHORT, max_new_tokens=9)
    serving.step(2)
    serving.submit(OTHER[:9], priority=1, max_new_tokens=3)
    serving.faults.arm("forward.late", count=2)
    serving.step()
    before = serving.log.of(Preempted)

    serving.step(2)

    assert (before, [event.request_id for event in serving.log.of(Preempted)]) == ([], [1])
