"""An engine as its clients see it: pauses, faults, clients who hang up, and what is asked of its progress."""

import pytest

from engine_under_test.config import EngineConfig
from harness.core.faults import FaultPlan
from harness.core.ops import AdvanceClock, Flush, Heal, Inject, Pause, Pressure, Recipe, Resume, Step, Submit
from harness.core.system import EngineSystem
from harness.engines.own.adapter import SwardenEngine
from invariants.events import Fired, Late, Launched, Refused

CONFIG = EngineConfig(page_size=4, full_pages=32, swa_pages=8, sliding_window=8, max_running_requests=4)
OVERLAP = EngineConfig(page_size=4, full_pages=32, overlap=True)
REQUEST = Submit(recipe=Recipe(path=(0, 1, 2)), max_new_tokens=6)


class PlainEngine(SwardenEngine):
    """An engine that knows no pause and runs on nothing that could fail."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.faults = FaultPlan(["client.gone"])

    def pause(self) -> bool:
        return False


def after(*ops, config=CONFIG):
    """A system to which this was done."""
    system = EngineSystem(SwardenEngine(config))
    for op in ops:
        do(system, op)
    return system


def do(system, op):
    """Do an op, and take the events as the driver does; the op's result."""
    worked = system.do(op)
    system.take_events()
    return worked


def events(system, op, kind):
    system.do(op)
    return [event for event in system.take_events() if isinstance(event, kind)]


def ends(system, *, steps):
    """How requests ended within so many steps, by request."""
    ended = {}
    for _ in range(steps):
        do(system, Step())
        ended.update({one.request_id: one.finish_reason for one in system.streamed if one.finish_reason})
    return ended


def test_a_paused_engine_launches_nothing_until_it_is_resumed():
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
def test_an_op_that_finds_nothing_to_do_is_a_noop(before, op):
    assert do(after(*before), op) is False


@pytest.mark.parametrize("op", [Pause(), Inject(fault="pool.refuses"), Heal(fault="pool.refuses")], ids=repr)
def test_what_an_engine_does_not_have_is_a_noop(op):
    assert EngineSystem(PlainEngine(CONFIG)).do(op) is False


@pytest.mark.parametrize("heal", [Heal(), Heal(fault="pool.refuses")], ids=["all", "one"])
def test_a_healed_fault_does_not_fire(heal):
    system = after(REQUEST, Inject(fault="pool.refuses", count=9))

    assert do(system, heal)
    assert events(system, Step(), Fired) == []


def test_a_fault_that_fires_is_told_before_what_comes_of_it():
    system = after(REQUEST, Inject(fault="pool.refuses", skip=1))

    told = events(system, Step(), (Fired, Refused))

    assert [type(event) for event in told] == [Fired, Refused]
    assert (told[0].fault, told[1].pool) == ("pool.refuses", "swa")


def test_a_neighbour_takes_its_pages_whatever_the_engine_is_refused():
    system = after(Inject(fault="pool.refuses"))

    assert events(system, Pressure(pages=3), Fired) == []


def test_the_request_of_a_client_who_hung_up_is_aborted():
    system = after(REQUEST, REQUEST, Inject(fault="client.gone"))

    assert ends(system, steps=12) == {1: "abort", 2: "length"}


def test_nobody_hangs_up_on_a_request_that_has_ended():
    system = after(Submit(max_new_tokens=1), Inject(fault="client.gone"))

    assert ends(system, steps=2) == {1: "length"}


def test_healing_ends_every_trouble():
    system = after(REQUEST, Step(), Pause(), Inject(fault="forward.fails", count=9), Pressure(pages=30))

    system.heal()

    assert ends(system, steps=10) == {1: "length"}


@pytest.mark.parametrize(
    ("trouble", "idle"),
    [
        pytest.param(Pause(), 0, id="a pause that was asked for"),
        pytest.param(Inject(fault="pool.refuses", count=99), 0, id="a fault that fires"),
        pytest.param(Inject(fault="pool.refuses", skip=99), 0, id="a fault that does not fire"),
        pytest.param(Pressure(pages=32), 3, id="want of pages"),
    ],
)
def test_only_steps_that_nothing_excuses_count_as_idle(trouble, idle):
    system = after(trouble, REQUEST, *[Step()] * 3)

    assert system.steps_without_forward == idle


def test_what_was_excused_does_not_excuse_what_comes_after():
    system = after(Pressure(pages=32), REQUEST, Step(), Step(), Pause(), Step(), Resume(), Step())

    assert system.steps_without_forward == 3


def test_a_late_pass_is_excused_while_its_fault_fires():
    system = after(REQUEST, Step(), Inject(fault="forward.late", count=3), config=OVERLAP)

    late = [events(system, Step(), Late) for _ in range(4)]

    assert [len(each) for each in late] == [1, 1, 1, 0]
    assert system.steps_without_forward == 0


def test_hours_pass_at_once():
    config = EngineConfig(page_size=4, full_pages=32, request_timeout_ms=100)

    assert ends(after(REQUEST, Step(), AdvanceClock(ms=7_200_000), Flush(), config=config), steps=1) == {1: "timeout"}
