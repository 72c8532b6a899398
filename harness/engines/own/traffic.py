"""Random traffic for our engine: a machine with a rule per kind of op, and one with a single weighted rule."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.ops import (
    Abort,
    Accept,
    AdvanceClock,
    Drain,
    Flush,
    Op,
    Pressure,
    Step,
)
from swarden.harness.engines.own.configurations import configurations, with_drafts, with_sessions, with_states
from swarden.harness.engines.own.faults import WITHIN_AN_ENGINE
from swarden.harness.engines.own.loads import LOADS, LoadProfile, Traffic
from swarden.harness.engines.own.scenes import first_acceptances, outlasts, returns, rewinds
from swarden.harness.search.draws import (
    PRESSURE_PAGES,
    acceptances,
    fault_sets,
    options,
    ordinals,
    step_counts,
    troubles,
)
from swarden.harness.search.machine import Machine
from swarden.harness.search.scenes import TIMEOUT_MS, contests, crowds, delays, pauses, submissions, talks

CLOCK_JUMPS_MS = (1, TIMEOUT_MS, 60, 40, 1000, 7_200_000)
HOST_RATIOS = (0, 0, 2, 0.5)  # host pages per device page; mostly no host
CONFIGURATIONS = with_states(with_drafts(with_sessions(configurations(host_ratios=HOST_RATIOS))))

TRAFFICS: tuple[Traffic, ...] = (
    ("submit",) * 5 + ("step",) * 5 + ("abort", "advance_clock", "delay", "flush", "trouble"),
    ("submit",) * 6 + ("step",) * 5 + ("crowd",),
    ("submit",) * 2 + ("step",) * 5 + ("crowd",) * 3 + ("abort",),
    ("submit",) * 5 + ("step",) * 4 + ("pressure",) * 2 + ("abort", "contest"),
    ("submit",) * 6 + ("step",) * 4 + ("abort",) * 2 + ("advance_clock", "delay", "drain", "flush"),
    ("submit",) * 6 + ("step",) * 5 + ("trouble",) * 4 + ("pressure", "crowd"),
    ("submit",) * 6 + ("step",) * 4 + ("pause",) * 3 + ("pressure", "trouble", "abort", "crowd"),
    ("submit",) * 2 + ("step",) * 3 + ("contest",) * 4 + ("abort", "pause"),
    ("submit",) * 3 + ("step",) * 3 + ("return",) * 4 + ("abort", "trouble", "pressure"),
    ("submit",) * 2 + ("step",) * 3 + ("talk",) * 8 + ("abort", "trouble", "pressure", "flush"),
)


class EngineTraffic(Machine):
    """A rule per kind of op; Hypothesis disables some rules in each run (swarm testing)."""

    machine = "engine"
    has_scenes = True
    faults: tuple[str, ...] = ()
    load = LOADS[0]
    has_drafts = False

    @initialize(
        config=CONFIGURATIONS,
        faults=fault_sets(WITHIN_AN_ENGINE),
        load=st.sampled_from(LOADS),
        data=st.data(),
    )
    def configure(self, config: EngineConfig, faults: tuple[str, ...], load: LoadProfile, data: st.DataObject) -> None:
        self.begin([load.on(config)])
        (config,) = self.configs
        self.faults, self.load, self.has_drafts = faults, load, bool(config.draft_tokens)
        self.apply_all(data.draw(first_acceptances(config)))
        self.apply_all(data.draw(st.lists(submissions(load), min_size=1, max_size=4)))

    @rule(data=st.data(), count=st.integers(0, 2))
    def submit(self, data: st.DataObject, count: int) -> None:
        self.apply(data.draw(submissions(self.load)))
        self.step_some(count)

    @rule(data=st.data(), request=ordinals(), count=st.integers(0, 2))
    def submit_and_abort(self, data: st.DataObject, request: int, count: int) -> None:
        self.apply(data.draw(submissions(self.load)))
        self.step_some(count)
        self.apply(Abort(request=request))

    @rule(data=st.data())
    def crowd(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(crowds(self.load)))

    @rule(data=st.data())
    def contest(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(contests(self.load)))

    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(returns(self.load, self.configs[0], self.faults)))

    @rule(data=st.data())
    def outlast(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(outlasts(self.configs[0])))

    @rule(data=st.data())
    def talk(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(talks(self.load)))

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(rewinds(self.load, self.configs[0])))

    @precondition(lambda self: self.has_drafts)
    @rule(op=acceptances(), count=st.integers(0, 2))
    def accept(self, op: Accept, count: int) -> None:
        self.apply(op)
        self.step_some(count)

    @rule(count=step_counts())
    def step(self, count: int) -> None:
        self.step_some(count)

    @rule(ms=st.sampled_from(CLOCK_JUMPS_MS), count=st.integers(0, 2))
    def advance_clock(self, ms: int, count: int) -> None:
        self.apply(AdvanceClock(ms=ms))
        self.step_some(count)

    @rule(pool=st.integers(0, 2), pages=st.sampled_from(PRESSURE_PAGES), count=st.integers(0, 2))
    def pressure(self, pool: int, pages: int, count: int) -> None:
        self.apply(Pressure(pool=pool, pages=pages))
        self.step_some(count)

    @rule(ops=pauses(), count=st.integers(0, 2))
    def pause(self, ops: tuple[Op, ...], count: int) -> None:
        self.apply_all(ops)
        self.step_some(count)

    @precondition(lambda self: self.faults)
    @rule(data=st.data(), count=st.integers(0, 2))
    def trouble(self, data: st.DataObject, count: int) -> None:
        self.apply_all(data.draw(troubles(self.faults)))
        self.step_some(count)

    @rule(coin=st.integers(0, 3), count=st.integers(0, 2))
    def flush_or_drain(self, coin: int, count: int) -> None:
        self.apply(Drain() if coin == 3 else Flush())
        self.step_some(count)

    def step_some(self, count: int) -> None:
        """Make `count` steps; the rule for steps may be disabled in this run."""
        if count:
            self.apply(Step(count=count))


@st.composite
def ops_of(
    draw: st.DrawFn, traffic: Traffic, load: LoadProfile, config: EngineConfig, faults: tuple[str, ...]
) -> tuple[Op, ...]:
    """An op, or a sequence of ops, of a kind drawn with the weights of the traffic and the load."""
    match draw(options(*traffic, *load.also)):
        case "submit":
            return (draw(submissions(load)),)
        case "crowd":
            return draw(crowds(load))
        case "contest":
            return draw(contests(load))
        case "return":
            return draw(returns(load, config, faults))
        case "outlast":
            return draw(outlasts(config))
        case "talk":
            return draw(talks(load))
        case "rewind":
            return draw(rewinds(load, config))
        case "accept":
            return (draw(acceptances()),)
        case "abort":
            return (Abort(request=draw(ordinals())),)
        case "advance_clock":
            return (AdvanceClock(ms=draw(options(*CLOCK_JUMPS_MS))),)
        case "delay":
            return draw(delays(load))
        case "flush":
            return (Flush(),)
        case "drain":
            return (Drain(),)
        case "pressure":
            return (Pressure(pool=draw(st.integers(0, 2)), pages=draw(options(*PRESSURE_PAGES))),)
        case "pause":
            return draw(pauses())
        case "trouble":
            return draw(troubles(faults))
        case _:
            return (Step(count=draw(step_counts())),)


class WeightedEngineTraffic(Machine):
    """One rule that draws ops with the weights of a traffic and a load, both fixed for the run (no swarm testing)."""

    machine = "engine"
    has_scenes = True
    ops: st.SearchStrategy[tuple[Op, ...]] = st.nothing()

    @initialize(
        config=CONFIGURATIONS,
        faults=fault_sets(WITHIN_AN_ENGINE),
        traffic=st.sampled_from(TRAFFICS),
        load=st.sampled_from(LOADS),
    )
    def configure(self, config: EngineConfig, faults: tuple[str, ...], traffic: Traffic, load: LoadProfile) -> None:
        self.begin([load.on(config)])
        (config,) = self.configs
        accepts: Traffic = ("accept",) * 2 if config.draft_tokens else ()
        self.ops = ops_of(accepts + traffic, load, config, faults)

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(self.ops))
