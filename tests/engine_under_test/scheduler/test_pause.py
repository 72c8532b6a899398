"""A pause frees all KV at once and launches nothing; after it all requests are recomputed."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Paused, Resumed
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, Serving

LONG, SHORT = list(range(100, 140)), list(range(200, 205))
OVERLAPPED = replace(HYBRID, overlap=True)

STATES = [
    pytest.param(0, id="all wait"),
    pytest.param(1, id="one runs"),
    pytest.param(2, id="a prompt has begun"),
    pytest.param(6, id="all run"),
]


def two_requests(config, *, steps: int) -> Serving:
    serving = Serving(config)
    for prompt in (SHORT, LONG):
        serving.submit(prompt, max_new_tokens=12)
    serving.step(steps)
    return serving


@pytest.mark.parametrize("steps", STATES)
@ALL_POOLS
def test_pause_frees_everything_at_once(config, steps):
    serving = two_requests(config, steps=steps)

    serving.engine.pause()

    assert ([request.id for request in serving.engine.scheduler.waiting], serving.flush_frees_all()) == ([1, 2], True)


@pytest.mark.parametrize("steps", STATES)
@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
def test_all_requests_are_served_after_a_pause(overlap, steps):
    serving = two_requests(replace(HYBRID, overlap=overlap), steps=steps)
    serving.engine.pause()
    serving.step(2)
    serving.engine.resume()

    serving.run()

    assert [received.tokens for received in serving.received.values()] == [
        serving.expected(prompt, max_new_tokens=12) for prompt in (SHORT, LONG)
    ]


@pytest.mark.parametrize("steps", [1, 2, 6], ids=["one runs", "a prompt has begun", "all run"])
def test_pages_read_by_a_pass_in_flight_are_freed_after_it(steps):
    serving = two_requests(OVERLAPPED, steps=steps)
    serving.engine.pause()
    waiting = serving.fenced()["rows"]

    serving.step()

    assert (list(waiting), serving.fenced()["rows"], serving.flush_frees_all()) == ([steps], {}, True)


def test_a_second_pause_and_a_second_resume_change_nothing():
    serving = two_requests(HYBRID, steps=2)

    for call in (serving.engine.pause, serving.engine.pause, serving.engine.resume, serving.engine.resume):
        call()

    assert (len(serving.log.of(Paused)), len(serving.log.of(Resumed))) == (1, 1)
