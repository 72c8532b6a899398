"""Random traffic for a prefill engine, a decode engine and the link between them."""

from collections.abc import Collection, Sequence

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.harness.core.ops import Abort, AdvanceClock, Flush, Inject, Op, Recipe, Step, Submit
from swarden.harness.core.target import PAIR
from swarden.harness.search.traffic.draws import acceptances, fault_sets, long_recipe, one_option, ordinals, with_ranks
from swarden.harness.search.traffic.loads import LOADS_OF_PAIRS, Kinds, Load
from swarden.harness.search.traffic.machine import Machine
from swarden.harness.search.traffic.scenes import pauses, submissions
from swarden.harness.search.traffic.traffic import HypothesisDraw, Requests, begin_run, kinds_of, ops_of

PREFILL, DECODE = SIDES = (0, 1)  # the ordinals of the engines
CLOCK_JUMPS_MS = (1, 3, 15, 100)  # the retries and the shorter time-outs of a link
LINK, REFUSES = "link.", "pool.refuses"  # the beginning of the faults between engines, and a fault of a reservation
KINDS: Kinds = (
    *("submit",) * 6,
    *("crowd",) * 2,
    *("step",) * 5,
    *("both",) * 10,
    *("follow",) * 3,
    *("mishap",) * 3,
    *("fit",) * 2,
    *("abort",) * 3,
    *("trouble",) * 2,
    *("pause",) * 2,
    *("pressure", "flush", "advance_clock", "drain", "accept"),
)
OF_BOTH = ("both", "follow", "mishap", "fit", "pause")  # kinds of ops for both sides


class PairTraffic(Machine):
    """A rule that draws ops; there is no swarm, because no transfer completes without steps of both sides."""

    machine = PAIR
    sides: tuple[Requests, ...] = ()
    kinds: tuple[Collection[str], ...] = ()  # of each side
    mishaps: tuple[tuple[int, str], ...] = ()  # the faults of each side during a transfer

    @initialize(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        draw = HypothesisDraw(data)
        load = draw.one_of(LOADS_OF_PAIRS)
        sides = begin_run(self, data, load)
        every = dict.fromkeys(fault for requests in sides for fault in requests.possible)
        linked = [fault for fault in every if fault.startswith(LINK)]
        drawn = data.draw(fault_sets([*every, *linked])) if every else ()  # more runs have those of the link
        self.sides = tuple(
            requests._replace(faults=tuple(fault for fault in drawn if fault in requests.possible))
            for requests in sides
        )
        self.mishaps = tuple(
            (side, fault) for side in SIDES for fault in sides[side].possible if fault in linked or fault == REFUSES
        )
        self.kinds = tuple(frozenset(kinds_of(self.spec.ops, requests)) for requests in self.sides)
        if "accept" in self.kinds[DECODE]:
            self.apply(msgspec.structs.replace(data.draw(acceptances()), engine=DECODE))

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        kind, side = data.draw(one_option(*KINDS)), data.draw(one_option(DECODE, PREFILL))
        ops: Sequence[Op]
        if kind in OF_BOTH:
            ops = data.draw(ops_of_both(kind, self))
        else:
            ops = data.draw(ops_of(kind if kind in self.kinds[side] else "step", self.sides[side]))
            if isinstance(ops[0], AdvanceClock):
                ops = (AdvanceClock(ms=data.draw(one_option(*CLOCK_JUMPS_MS))),)
            ops = [msgspec.structs.replace(op, engine=side) for op in ops]
        shape = self.sides[PREFILL].shape
        self.apply_all(self.supported(data.draw(with_ranks(ops, shape)) if shape.ranks > 1 else ops))


@st.composite
def ops_of_both(draw: st.DrawFn, kind: str, run: PairTraffic) -> tuple[Op, ...]:
    """Ops for both sides."""
    load = run.sides[PREFILL].load
    if kind == "follow":
        return draw(follow_ups(load, refuses=(DECODE, REFUSES) in run.mishaps))
    if kind == "fit":
        return *draw(fitting_prompts(run)), *draw(alternating_steps())
    if kind == "pause" and all(kind in kinds for kinds in run.kinds):
        return draw(pauses(load, SIDES, pausable=run.spec.pausable_engines))
    if kind == "mishap" and run.mishaps:
        side, fault = draw(one_option(*run.mishaps))
        inject = Inject(engine=side, fault=fault, skip=draw(one_option(0, 1, 2, 3)), count=draw(one_option(1, 1, 2, 6)))
        invited = (Step(engine=DECODE), Step(engine=PREFILL))[: draw(one_option(0, 1, 2))]
        begin = *(draw(submissions(load)),) * draw(one_option(1, 1, 2)), *invited, inject, *draw(alternating_steps())
        return *begin, *draw(cut_offs(load)), *draw(alternating_steps())
    return draw(alternating_steps())


@st.composite
def cut_offs(draw: st.DrawFn, load: Load) -> tuple[Op, ...]:
    """An abort or a flush on one side, and requests that may get its pages; nothing in half of the draws."""
    if draw(one_option(True, False)):
        return ()
    side = draw(one_option(DECODE, PREFILL))
    cut_off = draw(one_option(Abort(engine=side, request=draw(ordinals())), Flush(engine=side)))
    return cut_off, *draw(st.lists(submissions(load), max_size=3)), *draw(alternating_steps())


@st.composite
def alternating_steps(draw: st.DrawFn) -> tuple[Op, ...]:
    """Steps of both sides in turns."""
    counts = draw(st.lists(st.sampled_from((1, 1, 2, 4)), min_size=1, max_size=4))
    return tuple(Step(engine=side, count=count) for count in counts for side in (DECODE, PREFILL))


@st.composite
def follow_ups(draw: st.DrawFn, load: Load, *, refuses: bool) -> tuple[Op, ...]:
    """A prompt, the steps to serve it, and a prompt with the same prefix, which may be cached on both sides."""
    first = draw(submissions(load))
    recipe = msgspec.structs.replace(first.recipe, stretch=draw(one_option(1, 2, 5, 9)))
    again = msgspec.structs.replace(first, recipe=recipe)
    longer = Submit(recipe=Recipe(path=(*first.recipe.path, 0), stretch=first.recipe.stretch), max_new_tokens=2)
    serve = (Step(engine=DECODE, count=2), Step(engine=PREFILL, count=4), Step(engine=DECODE, count=8))
    refused = (Inject(engine=DECODE, fault=REFUSES, skip=draw(st.integers(0, 1))),) * (draw(st.integers(0, 4)) == 4)
    return first, *serve, draw(st.sampled_from((longer, again))), *refused * refuses, *draw(alternating_steps())


@st.composite
def fitting_prompts(draw: st.DrawFn, run: PairTraffic) -> tuple[Op, ...]:
    """A prompt that a pool of the prefill side can just hold, or just not hold; it shares no prefix with others."""
    shape = run.sides[PREFILL].shape
    sizes = [pool.units * shape.page_size for pool in shape.pools if not pool.has_states] + [shape.chunk_len or 0]
    length = draw(one_option(*filter(None, sizes))) + draw(one_option(1, 0, -1, -8))
    recipe = long_recipe(min(length, shape.max_context_len - 17), family=3)
    return (Submit(recipe=recipe, max_new_tokens=draw(one_option(1, 4, 16)), namespace=3),)
