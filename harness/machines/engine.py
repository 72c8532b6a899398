"""Random traffic for an engine: a rule per op, and one rule that draws the op."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from engine_under_test.config import EngineConfig
from harness.machines.base import Machine
from harness.machines.draws import (
    configurations,
    fault_sets,
    ordinals,
    rarely,
    recipes,
    step_counts,
    stop_sets,
    troubles,
)
from harness.ops import Abort, AdvanceClock, Drain, Flush, Op, Pause, Pressure, Resume, Step, Submit

CLOCK_JUMPS_MS = (1, 10, 60, 1000, 7_200_000)
PRESSURE_PAGES = (0, 1, 3, 10)


class Load(NamedTuple):
    """What the requests of a run are like: how long outputs get, and how important each is.

    `settings` are those without which the engine would never be in the trouble that the load is for.
    """

    outputs: tuple[int, ...]
    priorities: tuple[int, ...] = (0, 0, 0, 1, 2, -1)
    settings: Mapping[str, Any] = MappingProxyType({})

    def on(self, config: EngineConfig) -> EngineConfig:
        """The configuration with the settings of this load."""
        return replace(config, **self.settings)


RIVALRY = MappingProxyType({"preemption_threshold": 0, "chunk_len": None, "request_timeout_ms": None})
OVERBOOKED = MappingProxyType({"new_token_ratio": 0.01, "new_token_ratio_floor": 0.01, "request_timeout_ms": None})

# Mostly short: a run that is over soon leaves time for others, and meets most of what a long one does.
LOADS = (
    Load((1, 2, 4, 0, 9)),
    Load((8, 4, 16, 24), priorities=(0, 1, 2, 3), settings=RIVALRY),
    Load((12, 8, 4, 16), settings=OVERBOOKED),
    Load((15, 30, 1, 4, 60, 90)),
)

# A way to treat an engine: how often each kind of op comes.
TRAFFICS: tuple[tuple[str, ...], ...] = (
    ("submit",) * 5 + ("step",) * 5 + ("abort", "advance_clock", "flush", "trouble"),
    ("submit",) * 6 + ("step",) * 5,
    ("submit",) * 4 + ("step",) * 7 + ("abort",),
    ("submit",) * 5 + ("step",) * 4 + ("pressure",) * 2 + ("abort",),
    ("submit",) * 6 + ("step",) * 4 + ("abort",) * 2 + ("advance_clock", "drain", "flush"),
    ("submit",) * 6 + ("step",) * 5 + ("trouble",) * 4 + ("pressure",),
    ("submit",) * 6 + ("step",) * 4 + ("pause",) * 3 + ("pressure", "trouble", "abort"),
)


@st.composite
def submissions(draw: st.DrawFn, load: Load) -> Submit:
    """A request with a prompt from a recipe."""
    return Submit(
        recipe=draw(recipes()),
        max_new_tokens=draw(st.sampled_from(load.outputs)),
        stop=draw(stop_sets()),
        priority=draw(st.sampled_from(load.priorities)),
        namespace=draw(rarely(st.integers(1, 2))),
    )


@st.composite
def pauses(draw: st.DrawFn) -> tuple[Op, ...]:
    """A pause that ends after a while, mostly; the next one ends it otherwise."""
    steps = (Step(count=draw(st.integers(1, 3))),) * draw(st.integers(0, 1))
    ends = (Resume(),) * (draw(st.integers(0, 3)) < 3)
    return Pause(), *steps, *ends


class EngineTraffic(Machine):
    """A rule per op: Hypothesis switches some of them off in each run (swarm)."""

    machine = "engine"
    faults: tuple[str, ...] = ()
    load = LOADS[0]

    @initialize(config=configurations(), faults=fault_sets(), load=st.sampled_from(LOADS), data=st.data())
    def configure(self, config: EngineConfig, faults: tuple[str, ...], load: Load, data: st.DataObject) -> None:
        self.faults, self.load = faults, load
        self.begin([load.on(config)])
        self.apply_all(data.draw(st.lists(submissions(load), min_size=1, max_size=4)))

    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        self.apply(data.draw(submissions(self.load)))

    @rule(data=st.data(), request=ordinals())
    def submit_and_abort(self, data: st.DataObject, request: int) -> None:
        self.apply(data.draw(submissions(self.load)))
        self.apply(Abort(request=request))

    @rule(count=step_counts())
    def step(self, count: int) -> None:
        self.apply(Step(count=count))

    @rule(ms=st.sampled_from(CLOCK_JUMPS_MS))
    def advance_clock(self, ms: int) -> None:
        self.apply(AdvanceClock(ms=ms))

    @rule(pool=st.integers(0, 1), pages=st.sampled_from(PRESSURE_PAGES))
    def pressure(self, pool: int, pages: int) -> None:
        self.apply(Pressure(pool=pool, pages=pages))

    @rule(ops=pauses())
    def pause(self, ops: tuple[Op, ...]) -> None:
        self.apply_all(ops)

    @precondition(lambda self: self.faults)
    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(troubles(self.faults)))

    @rule(coin=st.integers(0, 3))
    def flush_or_drain(self, coin: int) -> None:
        self.apply(Drain() if coin == 3 else Flush())


@st.composite
def ops_of(draw: st.DrawFn, traffic: tuple[str, ...], load: Load, faults: tuple[str, ...]) -> tuple[Op, ...]:
    """An op of a kind that the traffic favours, or the few that belong together."""
    match draw(st.sampled_from(traffic)):
        case "submit":
            return (draw(submissions(load)),)
        case "abort":
            return (Abort(request=draw(ordinals())),)
        case "advance_clock":
            return (AdvanceClock(ms=draw(st.sampled_from(CLOCK_JUMPS_MS))),)
        case "flush":
            return (Flush(),)
        case "drain":
            return (Drain(),)
        case "pressure":
            return (Pressure(pool=draw(st.integers(0, 1)), pages=draw(st.sampled_from(PRESSURE_PAGES))),)
        case "pause":
            return draw(pauses())
        case "trouble":
            return draw(troubles(faults))
        case _:
            return (Step(count=draw(step_counts())),)


class WeightedEngineTraffic(Machine):
    """One rule that draws an op as the run's traffic says, which holds for the whole run (no swarm)."""

    machine = "engine"
    ops: st.SearchStrategy[tuple[Op, ...]] = st.nothing()

    @initialize(
        config=configurations(),
        faults=fault_sets(),
        traffic=st.sampled_from(TRAFFICS),
        load=st.sampled_from(LOADS),
    )
    def configure(self, config: EngineConfig, faults: tuple[str, ...], traffic: tuple[str, ...], load: Load) -> None:
        self.ops = ops_of(traffic, load, faults)
        self.begin([load.on(config)])

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(self.ops))
