"""Random traffic for any engine, drawn from the target's ops, faults and shape."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

import swarden.harness.core.ops as do
from swarden.harness.core.limits import MAX_STRETCH
from swarden.harness.core.target import ENGINE, TIMEOUT_MS, Draw, Shape
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.search.traffic import scenes
from swarden.harness.search.traffic.draws import (
    PRESSURE_PAGES,
    acceptances,
    alphabet_of,
    fault_sets,
    long_recipe,
    one_option,
    ordinals,
    rarely,
    step_counts,
    troubles,
    with_ranks,
)
from swarden.harness.search.traffic.loads import LOADS, MIXES, Kinds, Load
from swarden.harness.search.traffic.machine import Machine

GRAMMARS = (40, 2, 1, 3, 5, 9)  # tokens
CLOCK_JUMPS_MS = (1, TIMEOUT_MS, 60, 40, 1000, 7_200_000)
ALWAYS = ("submit", "step")  # kinds that no run leaves out
INSTEAD = {"rewind": "talk", "meanwhile": "return", "lack": "return"}  # of a load, for an engine that lacks the kind
IS_LIST = (*[False] * 7, True)  # a list takes a twentieth of the time of another run
MOST_SINGLE_OPS = 12
ACCEPTS: Kinds = ("accept",) * 2  # beside a mix, if the configuration has drafts

ValueT = TypeVar("ValueT")


class HypothesisDraw(Draw):
    """Draws a target's configuration from Hypothesis, which can replay the choices."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one_of(self, options: Sequence[ValueT]) -> ValueT:
        index: int = self._data.draw(one_option(*range(len(options))))
        return options[index]

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


class Requests(NamedTuple):
    """The parameters of the draws for one engine.

    `faults` are those of the run, `possible` those of the engine; `pauses` are the modes of a pause.
    """

    load: Load
    shape: Shape
    faults: tuple[str, ...]
    possible: tuple[str, ...] = ()
    pauses: tuple[do.PauseMode, ...] = (do.PauseMode.RETRACT,)


class EngineTraffic(Machine):
    """One rule draws an op, or a scene, of a random kind.

    One run in eight is a short list of single ops.  Of the others, half have a random set of kinds, each as often
    as the others (swarm testing), and sometimes make steps between two kinds.  The other half have a mix of kinds with
    weights, and the kinds of their load.
    """

    machine = ENGINE
    is_list = False
    kinds: Kinds = ALWAYS
    steps_between: Sequence[int] = (0,)
    requests = Requests(LOADS[0], Shape(), ())
    has_options = False  # in half of the runs, if the engine has any

    @initialize(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        target, draw = self.listener.target, HypothesisDraw(data)
        ops = target.machines[self.machine].ops
        load = draw.one_of([load for load in LOADS if all(KINDS[kind].needs in ops for kind in load.also)])
        [requests] = begin_run(self, data, load)
        faults = data.draw(fault_sets(requests.possible)) if requests.possible else ()
        self.requests = requests._replace(faults=faults)
        supported = kinds_of(ops, self.requests)
        self.has_options = bool(requests.shape.options) and draw.one_of((False, True))
        if "accept" in supported:
            self.apply(data.draw(acceptances()))
        self.is_list = draw.one_of(IS_LIST)
        if self.is_list:
            self.listener.leave_uncounted()
            alphabet = alphabet_of(target, self.machine, self.configs[0])
            self.apply_all(data.draw(st.lists(st.sampled_from(alphabet), min_size=3, max_size=MOST_SINGLE_OPS)))
        elif draw.one_of((True, False)):
            optional = [kind for kind in supported if kind not in ALWAYS]
            self.kinds = (*ALWAYS, *sorted(data.draw(st.sets(st.sampled_from(optional))) if optional else ()))
            self.steps_between = (0, 1, 2)
            self.apply_all(data.draw(st.lists(scenes.submissions(self.requests.load), min_size=1, max_size=4)))
        else:
            also = [kind if kind in supported else INSTEAD.get(kind, kind) for kind in load.also]
            self.kinds = tuple(kind for kind in (*draw.one_of(MIXES), *also, *ACCEPTS) if kind in supported)
        if "apart" in supported:  # what ranks exchange is mostly about their tiers
            self.kinds += (*("apart",) * 4, *[kind for kind in ("return", "meanwhile") if kind in supported])

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        if self.is_list:
            return
        draws = self.spec.draws_of_rule
        for _ in range(data.draw(one_option(*draws)) if len(draws) > 1 else 1):
            self._act(data)

    def _act(self, data: st.DataObject) -> None:
        drawn = data.draw(ops_of(data.draw(one_option(*self.kinds)), self.requests))
        ops = [op for op in self.supported(drawn) if do.name_of(op) not in self.requests.shape.unused]
        ops = data.draw(with_options(ops, self.requests.shape)) if self.has_options else ops
        if (shape := self.requests.shape).ranks > 1:
            ops = data.draw(with_ranks(ops, shape))
        if (share := self.spec.one_step_of) > 1:
            ops = [op for op in ops if not isinstance(op, do.Step) or not data.draw(st.integers(0, share - 1))]
        self.apply_all(data.draw(with_seeds(ops)) if self.requests.shape.samples else ops)
        if count := data.draw(one_option(*self.steps_between)):
            self.apply(do.Step(count=count))


def begin_run(run: Machine, data: st.DataObject, load: Load) -> list[Requests]:
    """Draw the configurations of a run, and begin it; returns the requests of each engine, without faults.

    A run whose target fails ends with that fault.
    """
    target, spec = run.listener.target, run.listener.target.machines[run.machine]
    try:
        with blamed_on(target.name, "configs"):
            configs = target.configs(HypothesisDraw(data), run.machine, load.name)
            if len(configs) != (want := len(spec.roles) or 1):
                raise ValueError(f"{len(configs)} configurations for machine {run.machine}, want {want}")
        run.begin(configs)
        with blamed_on(target.name, "shape"):
            shapes = [target.shape(config) for config in run.configs]
    except TargetFault as fault:
        run.listener.on_fault(fault, None)
        reject()
    served = [num for num in load.outputs if num]
    return [
        Requests(
            load._replace(outputs=(*(load.outputs if shape.serves_prompts_alone else served), *shape.outputs)),
            shape,
            (),
            tuple([fault for fault in target.faults if fault not in shape.unused]),
            tuple(spec.pauses),
        )
        for shape in shapes
    ]


def kinds_of(ops: Collection[type[do.Op]], requests: Requests) -> list[str]:
    """The kinds that a machine with these ops supports for the requests of a run."""
    left = {op for op in ops if do.name_of(op) not in requests.shape.unused}
    kinds = [name for name, kind in KINDS.items() if kind.needs in left]
    shape = requests.shape
    has = {
        "trouble": bool(requests.faults),
        "rewind": shape.sessions_rewind,
        "meanwhile": bool(shape.tiers),
        "apart": bool(shape.ranks > 1 and shape.tiers),
        "lack": bool(shape.tiers and shape.uses_before_backup) and len({pool.name for pool in shape.pools}) > 1,
    }
    return [kind for kind in kinds if has.get(kind, True)]


@st.composite
def with_options(draw: st.DrawFn, ops: Sequence[do.Op], shape: Shape) -> list[do.Op]:
    """The ops, with one of the options on a third of the requests; a turn of a session has a grammar alone."""
    options, values = shape.options, {"adapter": 1 + draw(st.integers(0, 1)), "sequences": draw(one_option(2, 3))}
    if "grammar" in options:
        values["grammar"] = draw(one_option(*GRAMMARS))
    of_kind: dict[type, Sequence[str]] = {
        do.Submit: options,
        **({do.Turn: ["grammar"]} if shape.turns_have_grammars else {}),
    }
    drawn = [draw(one_option(None, None, *of_kind[type(op)])) if type(op) in of_kind else None for op in ops]
    return [
        op if option is None else msgspec.structs.replace(op, **{option: values.get(option, True)})
        for op, option in zip(ops, drawn, strict=True)
    ]


@st.composite
def with_seeds(draw: st.DrawFn, ops: Sequence[do.Op]) -> list[do.Op]:
    """The ops, with a sampling seed on some of the requests."""
    return [
        msgspec.structs.replace(op, seed=draw(one_option(None, None, 1, 2))) if isinstance(op, do.Submit) else op
        for op in ops
    ]


@st.composite
def prompts(draw: st.DrawFn, requests: Requests) -> do.Submit:
    """A request. In a quarter of the draws its prompt ends near a multiple of a page, a window or a chunk.

    With long answers, some prompts end inside an earlier answer, far from its end.
    """
    request, shape = draw(scenes.submissions(requests.load)), requests.shape
    lengths = [shape.page_size, shape.chunk_len or 0, *[pool.window or 0 for pool in shape.pools]]
    recipe = request.recipe
    if shape.outputs and recipe.continues is not None and draw(st.booleans()):
        cut = len(recipe.path) * recipe.stretch + draw(one_option(*filter(None, lengths))) + draw(st.integers(-1, 1))
        return msgspec.structs.replace(request, recipe=msgspec.structs.replace(recipe, cut=cut))
    if draw(st.integers(0, 3)) < 3:
        return request
    stretch = draw(one_option(*filter(None, lengths))) + draw(st.integers(-1, 1))
    path = request.recipe.path[: draw(st.integers(1, 3))]
    stretch = max(1, min(stretch, shape.max_context_len // (2 * len(path)), MAX_STRETCH))
    return msgspec.structs.replace(request, recipe=do.Recipe(path=path, stretch=stretch, cut=request.recipe.cut))


@st.composite
def long_prompts(draw: st.DrawFn, shape: Shape) -> do.Submit:
    """A request that needs most of the smallest pool, so that cached pages are evicted and requests are retracted.

    Only long prompts use its namespace, so it matches no cached prefix of another kind of request.
    """
    units = min((pool.units for pool in shape.pools if not pool.has_states), default=16)
    max_new_tokens = draw(one_option(1, 4, 16))
    length = min(units * shape.page_size - draw(st.integers(0, 3)), shape.max_context_len - max_new_tokens - 1)
    namespace = 6 + draw(rarely(st.integers(1, 2)))
    return do.Submit(recipe=long_recipe(length, family=3), max_new_tokens=max_new_tokens, namespace=namespace)


class Kind(NamedTuple):
    """A kind of ops: the op that the machine must support, and what draws them for a run."""

    needs: type[do.Op]
    drawn: Callable[[st.DrawFn, Requests], Sequence[do.Op]]


def pressures(draw: st.DrawFn, run: Requests) -> Sequence[do.Op]:
    pool = draw(st.integers(0, max(1, len(run.shape.pools)) - 1))
    return (do.Pressure(pool=pool, pages=draw(one_option(*PRESSURE_PAGES))),)


KINDS: Mapping[str, Kind] = {
    "submit": Kind(do.Submit, lambda draw, run: (draw(prompts(run)),)),
    "step": Kind(do.Step, lambda draw, _: (do.Step(count=draw(step_counts())),)),
    "crowd": Kind(do.Submit, lambda draw, run: draw(scenes.crowds(run.load))),
    "contest": Kind(do.Submit, lambda draw, run: draw(scenes.contests(run.load))),
    "long": Kind(do.Submit, lambda draw, run: (draw(long_prompts(run.shape)),)),
    "return": Kind(do.Submit, lambda draw, run: draw(scenes.returns(run.load, run.shape, run.faults))),
    "outlast": Kind(do.Submit, lambda draw, run: draw(scenes.outlasts(run.shape))),
    "meanwhile": Kind(do.Submit, lambda draw, run: draw(scenes.meanwhiles(run.load, run.shape, run.pauses))),
    "lack": Kind(do.Submit, lambda draw, run: draw(scenes.lacks(run.shape, run.pauses))),
    "apart": Kind(do.Submit, lambda draw, run: draw(scenes.partings(run.load, run.shape))),
    "abort": Kind(do.Abort, lambda draw, _: (do.Abort(request=draw(ordinals())),)),
    "advance_clock": Kind(do.AdvanceClock, lambda draw, _: (do.AdvanceClock(ms=draw(one_option(*CLOCK_JUMPS_MS))),)),
    "delay": Kind(do.AdvanceClock, lambda draw, run: draw(scenes.delays(run.load))),
    "flush": Kind(do.Flush, lambda draw, run: draw(scenes.flushes(run.load))),
    "drain": Kind(do.Drain, lambda *_: (do.Drain(),)),
    "pressure": Kind(do.Pressure, pressures),
    "pause": Kind(do.Pause, lambda draw, run: draw(scenes.pauses(run.load, modes=run.pauses))),
    "reset": Kind(do.Reset, lambda draw, run: draw(scenes.resets(run.load, run.shape, run.pauses))),
    "talk": Kind(do.OpenSession, lambda draw, run: draw(scenes.talks(run.load, run.shape))),
    "rewind": Kind(do.OpenSession, lambda draw, run: draw(scenes.rewinds(run.load, run.shape))),
    "accept": Kind(do.Accept, lambda draw, _: (draw(acceptances()),)),
    "trouble": Kind(do.Inject, lambda draw, run: draw(troubles(run.faults))),
}


@st.composite
def ops_of(draw: st.DrawFn, kind: str, requests: Requests) -> Sequence[do.Op]:
    """The ops of one kind: one op, or a scene."""
    return KINDS[kind].drawn(draw, requests)
