"""Random traffic for an engine: a rule per op, and one rule that draws the op."""

from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine_under_test.config import EngineConfig
from harness.machines.base import Machine
from harness.machines.draws import configurations, new_token_counts, ordinals, rarely, recipes, stop_sets
from harness.ops import MAX_STEPS_PER_OP, Abort, AdvanceClock, Drain, Flush, Op, Pressure, Step, Submit

CLOCK_JUMPS_MS = (1, 10, 60, 1000)
PRESSURE_PAGES = (0, 1, 3, 10)


class Traffic(NamedTuple):
    """A way to load an engine: how often each kind of op comes, and how long outputs get."""

    kinds: tuple[str, ...]
    longest: int = 30


TRAFFICS = (
    Traffic(("submit",) * 5 + ("step",) * 5 + ("abort", "advance_clock", "flush")),
    Traffic(("submit",) * 6 + ("step",) * 5),
    Traffic(("submit",) * 4 + ("step",) * 7 + ("abort",), longest=90),  # retract storm
    Traffic(("submit",) * 5 + ("step",) * 4 + ("pressure",) * 2 + ("abort",), longest=60),
    Traffic(("submit",) * 6 + ("step",) * 4 + ("abort",) * 2 + ("advance_clock", "drain", "flush")),
)


@st.composite
def submissions(draw: st.DrawFn, longest: int = 30) -> Submit:
    """A request with a prompt from a recipe."""
    return Submit(
        recipe=draw(recipes()),
        max_new_tokens=draw(new_token_counts(longest=longest)),
        stop=draw(stop_sets()),
        namespace=draw(rarely(st.integers(1, 2))),
    )


class EngineTraffic(Machine):
    """A rule per op: Hypothesis switches some of them off in each run (swarm)."""

    machine = "engine"

    @initialize(config=configurations(), first=st.lists(submissions(), min_size=1, max_size=4))
    def configure(self, config: EngineConfig, first: list[Submit]) -> None:
        self.begin([config])
        for op in first:
            self.apply(op)

    @rule(op=submissions())
    def submit(self, op: Submit) -> None:
        self.apply(op)

    @rule(op=submissions(), request=ordinals())
    def submit_and_abort(self, op: Submit, request: int) -> None:
        self.apply(op)
        self.apply(Abort(request=request))

    @rule(count=st.integers(1, MAX_STEPS_PER_OP))
    def step(self, count: int) -> None:
        self.apply(Step(count=count))

    @rule(ms=st.sampled_from(CLOCK_JUMPS_MS))
    def advance_clock(self, ms: int) -> None:
        self.apply(AdvanceClock(ms=ms))

    @rule(pool=st.integers(0, 1), pages=st.sampled_from(PRESSURE_PAGES))
    def pressure(self, pool: int, pages: int) -> None:
        self.apply(Pressure(pool=pool, pages=pages))

    @rule(coin=st.integers(0, 3))
    def flush_or_drain(self, coin: int) -> None:
        self.apply(Drain() if coin == 3 else Flush())


@st.composite
def ops_of(draw: st.DrawFn, traffic: Traffic) -> Op:
    """An op of a kind that the traffic favours."""
    match draw(st.sampled_from(traffic.kinds)):
        case "submit":
            return draw(submissions(traffic.longest))
        case "abort":
            return Abort(request=draw(ordinals()))
        case "advance_clock":
            return AdvanceClock(ms=draw(st.sampled_from(CLOCK_JUMPS_MS)))
        case "flush":
            return Flush()
        case "drain":
            return Drain()
        case "pressure":
            return Pressure(pool=draw(st.integers(0, 1)), pages=draw(st.sampled_from(PRESSURE_PAGES)))
        case _:
            return Step(count=draw(st.integers(1, MAX_STEPS_PER_OP)))


class WeightedEngineTraffic(Machine):
    """One rule that draws an op as the run's traffic says, which holds for the whole run (no swarm)."""

    machine = "engine"
    traffic = TRAFFICS[0]

    @initialize(config=configurations(), traffic=st.sampled_from(TRAFFICS))
    def configure(self, config: EngineConfig, traffic: Traffic) -> None:
        self.traffic = traffic
        self.begin([config])

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply(data.draw(ops_of(self.traffic)))
