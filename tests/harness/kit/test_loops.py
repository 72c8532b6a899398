"""An event loop with its own time: what runs when, and which exceptions reach its owner."""

import asyncio
from typing import Any

import pytest

from swarden.harness.kit import loops
from swarden.harness.kit.loops import OwnTimeLoop


async def failing():
    raise LookupError("of a task")


def fail():
    raise LookupError("of a callback")


def test_timers_run_in_the_order_of_their_times_and_at_them():
    loop, seen = OwnTimeLoop(), list[Any]()

    def note(delay):
        seen.append((delay, loop.time()))

    for delay in (3, 1, 2):
        loop.call_later(delay, note, delay)

    loop.run_for(2)

    assert seen == [(1, 1), (2, 2)]
    assert loop.time() == 2


def test_cancelled_timer_does_not_run():
    loop, seen = OwnTimeLoop(), list[Any]()
    loop.call_later(1, seen.append, "cancelled").cancel()
    loop.call_later(2, seen.append, "kept")

    loop.run_for(3)

    assert seen == ["kept"]


def test_coroutine_that_sleeps_goes_on_when_its_time_has_come():
    loop, seen = OwnTimeLoop(), list[Any]()

    async def sleep():
        await asyncio.sleep(5)
        seen.append(loop.time())

    loop.start(sleep)

    loop.run_for(4)
    assert seen == []
    loop.run_for(4)
    assert seen == [5]


def test_exception_of_a_started_task_is_raised():
    loop = OwnTimeLoop()
    loop.start(failing)

    with pytest.raises(LookupError, match="of a task"):
        loop.run_for(0)


def test_exception_of_a_callback_is_raised_after_what_was_ready_has_run():
    loop, seen = OwnTimeLoop(), list[Any]()
    loop.call_soon(fail)
    loop.call_soon(seen.append, "later")

    with pytest.raises(LookupError, match="of a callback"):
        loop.run_for(0)

    assert seen == ["later"]


def test_exception_of_a_task_that_no_other_task_awaits_is_raised():
    loop = OwnTimeLoop()
    loop.call_soon(loop.create_task, failing())

    with pytest.raises(LookupError, match="of a task"):
        loop.run_for(0)


def test_exception_of_a_function_that_makes_no_coroutine_is_raised():
    loop = OwnTimeLoop()
    loop.start(fail)

    with pytest.raises(LookupError, match="of a callback"):
        loop.run_for(0)


def test_loop_that_is_never_idle_is_refused_with_its_limit(monkeypatch):
    monkeypatch.setattr(loops, "MOST_ROUNDS", 10)
    loop = OwnTimeLoop()

    def again():
        loop.call_soon(again)

    again()

    with pytest.raises(RuntimeError, match="not idle after 10 rounds"):
        loop.run_for(0)
