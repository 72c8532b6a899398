"""An engine as its clients see it: pauses, faults, disconnects, and the count of idle steps."""

import msgspec
import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.ops import (
    Abort,
    AdvanceClock,
    Flush,
    Heal,
    Inject,
    Pause,
    Pressure,
    Recipe,
    Resume,
    Step,
    Submit,
)
from swarden.harness.core.progress import IdleSteps
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.invariants.events import Finished, FinishReason, Fired, Launched, Refused

CONFIG = EngineConfig(page_size=4, full_pages=32, swa_pages=8, sliding_window=8, max_running_requests=4)
REQUEST = Submit(recipe=Recipe(path=(0, 1, 2)), max_new_tokens=6)


class PlainEngine(SwardenEngine):
    """An engine without pauses, whose only fault is a client that disconnects."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.faults = FaultPlan(["client.gone"])

    def pause(self) -> bool:
        return False


def after(*ops, config=CONFIG):
    """A system after these ops."""
    system = EngineSystem(SwardenEngine(config))
    for op in ops:
        do(system, op)
    return system


def do(system, op):
    """Execute an op and take the events, as the driver does. Returns the result of the op."""
    worked = system.do(op)
    system.take_events()
    return worked


def events(system, op, kind):
    system.do(op)
    return [event for event in system.take_events() if isinstance(event, kind)]


def ends(system, *, steps):
    """The finish reasons of the requests that end within `steps` steps, by request."""
    ended = {}
    for _ in range(steps):
        do(system, Step())
        ended.update({one.request_id: one.finish_reason for one in system.streamed if one.finish_reason})
    return ended


def test_paused_engine_launches_no_pass_until_it_is_resumed():
    system = after(REQUEST, Step(), Pause())

    paused = events(system, Step(), Launched)
    do(system, Resume())

    assert (paused, len(events(system, Step(), Launched))) == ([], 1)


@pytest.mark.parametrize(
    ("before", "op"),
    [
        pytest.param([Pause()], Pause(), id="paused already"),
        pytest.param([], Resume(), id="not paused"),
        pytest.param([], Inject(), id="no fault named"),
        pytest.param([], Inject(fault="pool.refuses", count=0), id="a fault that never fires"),
        pytest.param([], Heal(), id="nothing armed"),
        pytest.param([Inject(fault="client.gone")], Heal(fault="pool.refuses"), id="another fault armed"),
    ],
)
def test_op_without_effect_is_a_noop(before, op):
    assert do(after(*before), op) is False


@pytest.mark.parametrize("op", [Pause(), Inject(fault="pool.refuses"), Heal(fault="pool.refuses")], ids=repr)
def test_op_that_the_engine_does_not_support_is_a_noop(op):
    assert EngineSystem(PlainEngine(CONFIG)).do(op) is False


@pytest.mark.parametrize("heal", [Heal(), Heal(fault="pool.refuses")], ids=["all", "one"])
def test_healed_fault_does_not_fire(heal):
    system = after(REQUEST, Inject(fault="pool.refuses", count=9))

    assert do(system, heal)
    assert events(system, Step(), Fired) == []


def test_event_of_a_fault_comes_before_the_events_of_its_effects():
    system = after(REQUEST, Inject(fault="pool.refuses", skip=1))

    emitted = events(system, Step(), (Fired, Refused))

    assert [type(event) for event in emitted] == [Fired, Refused]
    assert (emitted[0].fault, emitted[1].pool) == ("pool.refuses", "swa")


def test_request_of_a_disconnected_client_is_aborted():
    system = after(REQUEST, REQUEST, Inject(fault="client.gone"))

    assert ends(system, steps=12) == {1: "abort", 2: "length"}


def test_heal_ends_faults_pressure_and_pause():
    system = after(REQUEST, Step(), Pause(), Inject(fault="forward.fails", count=9), Pressure(pages=30))

    system.heal()

    assert ends(system, steps=10) == {1: "length"}


@pytest.mark.parametrize(
    ("trouble", "idle"),
    [
        pytest.param(Pause(), 0, id="pause"),
        pytest.param(Inject(fault="pool.refuses", count=99), 0, id="a fault that fires"),
        pytest.param(Inject(fault="pool.refuses", skip=99), 0, id="a fault that does not fire"),
        pytest.param(Pressure(pages=32), 3, id="too few free pages"),
    ],
)
def test_only_unexcused_steps_are_counted_as_idle(trouble, idle):
    system = after(trouble, REQUEST, *[Step()] * 3)

    assert system.steps_without_forward == idle


@pytest.mark.parametrize(
    ("reason", "idle"), [(FinishReason.TRANSFER_FAILED, 0), (FinishReason.ABORT, 4), (FinishReason.TIMEOUT, 4)]
)
def test_step_is_not_idle_if_the_engine_ends_a_request(reason, idle):
    """A client or the clock could end the requests of an engine that does nothing."""
    steps = IdleSteps()

    for _ in range(4):
        steps.note([Finished(1, reason)])

    assert steps.count == idle


def test_clock_advances_by_hours_in_one_op():
    config = EngineConfig(page_size=4, full_pages=32, request_timeout_ms=100)

    assert ends(after(REQUEST, Step(), AdvanceClock(ms=7_200_000), Flush(), config=config), steps=1) == {1: "timeout"}


def test_engine_that_does_not_fork_answers_a_request_once():
    system = after(msgspec.structs.replace(REQUEST, sequences=3))

    assert ends(system, steps=20) == {1: "length"}


class ForkingEngine(SwardenEngine):
    """Answers each sequence as a request of its own."""

    forks = True

    def submit(self, submission):
        first = super().submit(submission)
        for _ in range(1, submission.sequences):
            super().submit(submission)
        return first


def test_client_aborts_all_sequences_of_its_request():
    system = EngineSystem(ForkingEngine(CONFIG))
    for op in (msgspec.structs.replace(REQUEST, sequences=2), REQUEST, Step(), Abort(request=1)):
        do(system, op)

    assert ends(system, steps=20) == {1: "abort", 2: "abort", 3: "length"}
