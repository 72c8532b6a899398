"""Resets of a scheduler by its own commands, and pauses that keep the requests or abort them."""

import pytest

from swarden.harness.core.ops import (
    OpenSession,
    Pause,
    PauseMode,
    Recipe,
    Reset,
    ResetCause,
    Resume,
    Step,
    Submit,
    Turn,
)
from swarden.invariants.events import CacheReset, Discarded, FinishReason, Launched
from tests.engines.some_runs import events_of, served

NEWEST = "0.5.23"
LONG = Submit(recipe=Recipe(stretch=9), max_new_tokens=12)
BEGUN = [LONG, *[Step()] * 4]
PAUSED = [*BEGUN, Pause(), *[Step()] * 2]
KEEPING = [*BEGUN, Pause(mode=PauseMode.KEEP), *[Step()] * 2]


@pytest.fixture
def run(on_release):
    """What 0.5.23 does with these ops, and then in 30 steps."""
    return lambda ops, **settings: on_release(NEWEST, served, f"sglang=={NEWEST}", settings, ops, 30)


def answers_of(result):
    return [event.is_done for event in events_of(result, CacheReset)]


def test_reset_is_refused_while_a_request_has_kv(run):
    result = run([*BEGUN, Reset(), *KEEPING[len(BEGUN) :], Reset(), Resume()])

    assert (answers_of(result), result.ends) == ([False, False], {1: FinishReason.LENGTH})


@pytest.mark.parametrize("settings", [{}, {"overlap": False}, {"draft_len": 3}, {"state_slots": 30, "overlap": False}])
@pytest.mark.parametrize("cause", ResetCause)
def test_retracted_request_goes_on_after_a_reset(run, cause, settings):
    """It is computed anew from its first token on, and gets the same tokens."""
    result = run([*PAUSED, Reset(cause=cause), Resume()], **settings)

    assert (answers_of(result), result.outputs) == ([True], run([LONG], **settings).outputs)
    starts = [start for event in events_of(result, Launched) for _, start, _ in event.entries]
    assert starts.count(0) == 2


def test_request_keeps_its_kv_and_its_pass_in_a_pause(run):
    result = run([*KEEPING, Resume()])

    starts = [start for event in events_of(result, Launched) for _, start, _ in event.entries]
    assert starts.count(0) == 1
    assert events_of(result, Discarded) == []
    assert result.outputs == run([LONG]).outputs


def test_pause_that_keeps_requests_can_retract_them_later(run):
    result = run([*KEEPING, Pause(), *[Step()] * 2, Reset(), Resume()])

    assert (answers_of(result), result.outputs) == ([True], run([LONG]).outputs)


def test_aborting_pause_ends_all_requests_and_keeps_new_ones_back(run):
    several = Submit(recipe=Recipe(path=(1,), stretch=40), max_new_tokens=3, sequences=2)

    result = run([LONG, several, *[Step()] * 2, Pause(mode=PauseMode.ABORT), *[Step()] * 4, LONG, Reset(), Resume()])

    assert (result.ends, answers_of(result)) == (dict.fromkeys((1, 2, 3), FinishReason.ABORT), [True])


def test_turn_after_a_reset_computes_its_session_anew(run):
    turn = Turn(recipe=Recipe(stretch=9), max_new_tokens=2)
    between = [OpenSession(), turn, *[Step()] * 8]

    result = run([*between, Reset(), turn], streaming_sessions=True)

    assert (answers_of(result), result.outputs) == ([True], run([*between, turn], streaming_sessions=True).outputs)


def test_memory_is_not_released_while_requests_are_served(run):
    assert answers_of(run([*BEGUN, Reset(cause=ResetCause.MEMORY), Reset(cause=ResetCause.WEIGHTS)])) == []
