"""Random traffic for any engine, drawn from the target's ops, faults and shape."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.harness.core.ops import (
    Abort,
    Accept,
    AdvanceClock,
    Drain,
    Flush,
    Inject,
    Op,
    OpenSession,
    Pause,
    Pressure,
    Recipe,
    Step,
    Submit,
    name_of,
)
from swarden.harness.core.target import ENGINE, Draw, Shape
from swarden.harness.search.draws import (
    PRESSURE_PAGES,
    acceptances,
    fault_sets,
    options,
    ordinals,
    rarely,
    step_counts,
    troubles,
)
from swarden.harness.search.machine import Machine
from swarden.harness.search.scenes import TIMEOUT_MS, RequestMix, contests, crowds, flushes, pauses, submissions, talks

CLOCK_JUMPS_MS = (1, TIMEOUT_MS, 40, 1000, 7_200_000)
OUTPUT_LENS = ((1, 2, 4, 9), (16, 8, 4, 24), (40, 24, 16, 1))  # a run uses one of these sets
WEIGHTS: dict[str, tuple[type[Op], int]] = {  # by kind: the op that the machine must support, and the weight
    "submit": (Submit, 5),
    "step": (Step, 5),
    "crowd": (Submit, 2),
    "contest": (Submit, 1),
    "long": (Submit, 1),
    "abort": (Abort, 1),
    "advance_clock": (AdvanceClock, 1),
    "flush": (Flush, 1),
    "drain": (Drain, 1),
    "pressure": (Pressure, 1),
    "pause": (Pause, 1),
    "talk": (OpenSession, 2),
    "accept": (Accept, 1),
    "trouble": (Inject, 2),
}
ALWAYS = ("submit", "step")  # kinds that no run leaves out

ValueT = TypeVar("ValueT")


class HypothesisDraw(Draw):
    """Draws a target's configuration from Hypothesis, which can replay the choices."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one_of(self, options: Sequence[ValueT]) -> ValueT:
        return self._data.draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


class EngineTraffic(Machine):
    """One rule draws an op of a random kind. Half of the runs leave out a random set of kinds (swarm testing)."""

    machine = ENGINE
    kinds: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    load = RequestMix(OUTPUT_LENS[0])
    shape = Shape()

    @initialize(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        target = self.listener.target
        self.begin([target.config(HypothesisDraw(data))])
        self.shape = target.shape(self.configs[0])
        faults = [fault for fault in target.faults if fault not in self.shape.unused]
        self.faults = data.draw(fault_sets(faults)) if faults else ()
        self.load = RequestMix(data.draw(st.sampled_from(OUTPUT_LENS)))
        ops = target.machines[self.machine].ops
        left = {kind for kind in ops if name_of(kind) not in self.shape.unused}
        supported = [name for name, (op, _) in WEIGHTS.items() if op in left and (name != "trouble" or self.faults)]
        left_out: set[str] = set()
        if data.draw(st.booleans()):
            optional = [name for name in supported if name not in ALWAYS]
            left_out = set(optional) - data.draw(st.sets(st.sampled_from(optional))) if optional else set()
        self.kinds = tuple(name for name in supported if name not in left_out for _ in range(WEIGHTS[name][1]))

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(ops_of(data.draw(options(*self.kinds)), self)))


@st.composite
def ops_of(draw: st.DrawFn, kind: str, run: EngineTraffic) -> tuple[Op, ...]:
    """The ops of one kind: one op, or a short sequence."""
    match kind:
        case "submit":
            return (draw(prompts(run)), *draw(options((), (Step(),), (Step(count=2),))))
        case "crowd":
            return draw(crowds(run.load))
        case "contest":
            return draw(contests(run.load))
        case "long":
            return (draw(long_prompts(run)),)
        case "abort":
            return (Abort(request=draw(ordinals())),)
        case "advance_clock":
            return (AdvanceClock(ms=draw(options(*CLOCK_JUMPS_MS))),)
        case "flush":
            return draw(flushes(run.load))
        case "drain":
            return (Drain(),) if draw(st.integers(0, 3)) == 3 else (Step(),)
        case "pressure":
            pools = max(1, len(run.shape.pools))
            return (Pressure(pool=draw(st.integers(0, pools - 1)), pages=draw(options(*PRESSURE_PAGES))),)
        case "pause":
            return draw(pauses())
        case "talk":
            return draw(talks(run.load, rewinds=run.shape.sessions_rewind))
        case "accept":
            return (draw(acceptances()),)
        case "trouble":
            return draw(troubles(run.faults))
    assert kind == name_of(Step()), f"no op of kind {kind}"
    return (Step(count=draw(step_counts())),)


@st.composite
def prompts(draw: st.DrawFn, run: EngineTraffic) -> Submit:
    """A request whose prompt often ends near a multiple of a page, a window or a chunk."""
    request = draw(submissions(run.load))
    if draw(st.booleans()):
        return request
    lengths = [run.shape.page_size, run.shape.chunk_len or 0, *[pool.window or 0 for pool in run.shape.pools]]
    stretch = draw(options(*filter(None, lengths))) + draw(st.integers(-1, 1))
    path = request.recipe.path[: draw(st.integers(1, 3))]
    stretch = max(1, min(stretch, run.shape.max_context_len // (2 * len(path))))
    return msgspec.structs.replace(request, recipe=Recipe(path=path, stretch=stretch, cut=request.recipe.cut))


@st.composite
def long_prompts(draw: st.DrawFn, run: EngineTraffic) -> Submit:
    """A request that needs most of the smallest pool, so that cached pages are evicted and requests are retracted.

    Only long prompts use its namespace, so it matches no cached prefix of another kind of request.
    """
    units = min((pool.units for pool in run.shape.pools), default=16)
    max_new_tokens = draw(options(1, 4, 16))
    length = min(units * run.shape.page_size - draw(st.integers(0, 3)), run.shape.max_context_len - max_new_tokens - 1)
    recipe = Recipe(path=(3,), stretch=max(1, length))
    return Submit(recipe=recipe, max_new_tokens=max_new_tokens, namespace=3 + draw(rarely(st.integers(1, 2))))
