"""Resets of a scheduler by its own commands, and pauses that keep the requests or abort them."""

import pytest

from swarden.harness.core.ops import (
    Flush,
    Heal,
    Inject,
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
from swarden.harness.engines.sglang.parts.host_tier import HOST_SLOW
from swarden.invariants.events import CacheReset, CopiedIn, Discarded, FinishReason, Launched
from tests.engines.sglang.conftest import config_of, driver_of, laws_that_fail, port_of
from tests.engines.some_runs import events_of, served

NEWEST = "0.5.23"
WITH_HOST = {"sliding_window": None, "host_ratio": 1.0}
PROMPT = Submit(tokens=tuple(range(1, 33)), max_new_tokens=2)
LONG = Submit(recipe=Recipe(stretch=9), max_new_tokens=12)
BEGUN = [LONG, *[Step()] * 4]
PAUSED = [*BEGUN, Pause(), *[Step()] * 2]
KEEPING = [*BEGUN, Pause(mode=PauseMode.KEEP), *[Step()] * 2]


@pytest.fixture
def run(on_release):
    """What 0.5.23 does with these ops, and then in 30 steps."""
    return lambda ops, **settings: on_release(NEWEST, served, f"sglang=={NEWEST}", settings, ops, 30)


@pytest.fixture
def run_with_host(on_release, release):
    """What a release with full attention and a host does with these ops, and then in 30 steps."""
    return lambda ops: on_release(release, served, f"sglang=={release}", WITH_HOST, ops, 30)


def laws_of_a_reset_without_looks_at_copies():
    """The laws that fail if an idle scheduler never asks whether its copies have ended."""
    driver = driver_of(NEWEST, config_of(**WITH_HOST))
    port_of(driver).memory.tree.check_hicache_events = lambda: None
    return laws_that_fail(driver, (PROMPT, *[Step()] * 8, Reset()))


def answers_of(result):
    return [event.is_done for event in events_of(result, CacheReset)]


def starts_of(result, request):
    return [start for event in events_of(result, Launched) for number, start, _ in event.entries if number == request]


def test_reset_is_refused_while_a_request_has_kv(run):
    result = run([*BEGUN, Reset(), *KEEPING[len(BEGUN) :], Reset(), Resume()])

    assert (answers_of(result), result.ends) == ([False, False], {1: FinishReason.LENGTH})


@pytest.mark.parametrize("settings", [{}, {"overlap": False}, {"draft_len": 3}, {"state_slots": 30, "overlap": False}])
@pytest.mark.parametrize("cause", ResetCause)
def test_retracted_request_goes_on_after_a_reset(run, cause, settings):
    """It is computed anew from its first token on, and gets the same tokens."""
    result = run([*PAUSED, Reset(cause=cause), Resume()], **settings)

    assert (answers_of(result), result.outputs) == ([True], run([LONG], **settings).outputs)
    assert starts_of(result, 1).count(0) == 2


def test_request_keeps_its_kv_and_its_pass_in_a_pause(run):
    result = run([*KEEPING, Resume()])

    assert starts_of(result, 1).count(0) == 1
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


def test_prefix_that_was_loaded_from_the_host_is_lost_by_a_reset_in_both_places(run_with_host):
    loaded = [PROMPT, *[Step()] * 9, Flush(), PROMPT, *[Step()] * 9]

    result = run_with_host([*loaded, Reset(), PROMPT])

    assert len(events_of(result, CopiedIn)) == 1
    assert (answers_of(result), starts_of(result, 3)[:4]) == ([True], [0, 8, 16, 24])
    assert result.outputs[3] == result.outputs[1]


def test_idle_scheduler_that_never_asks_for_the_end_of_its_copies_cannot_be_reset(on_release):
    assert on_release(NEWEST, laws_of_a_reset_without_looks_at_copies) == {"idle_engine_can_be_reset"}


def test_reset_is_refused_while_a_copy_to_the_host_is_in_flight(run_with_host):
    slow = [Inject(fault=HOST_SLOW, count=1000), PROMPT, *[Step()] * 9, Reset()]

    result = run_with_host([*slow, Heal(), *[Step()] * 3, Reset(), PROMPT])

    events = events_of(result, CacheReset)
    assert [(event.is_done, event.is_copying) for event in events] == [(False, True), (True, False)]
    assert starts_of(result, 2)[0] == 0
