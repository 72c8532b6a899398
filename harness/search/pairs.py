"""Random traffic for a prefill and a decode engine of another project, and for the link between them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.ops import Abort, Drain, Flush, Inject, Op, Recipe, Step, Submit
from swarden.harness.search.draws import acceptances, fault_sets, options, ordinals, step_counts, troubles
from swarden.harness.search.machine import Machine
from swarden.harness.search.scenes import RequestMix, crowds, pauses, submissions
from swarden.harness.search.traffic import OUTPUT_LENS, HypothesisDraw

PREFILL_SIDE, DECODE_SIDE = 0, 1  # the ordinals of the engines
KINDS = (
    *("submit",) * 6,
    *("crowd",) * 2,
    *("step",) * 4,
    *("both",) * 10,
    *("long",) * 2,
    *("mishap",) * 3,
    *("abort",) * 3,
    "flush",
    "pause",
    "trouble",
    "drain",
)


@st.composite
def turns(draw: st.DrawFn) -> tuple[Op, ...]:
    """Steps of both sides in turns."""
    counts = draw(st.lists(st.sampled_from((1, 1, 2, 4)), min_size=1, max_size=4))
    return tuple(Step(engine=side, count=count) for count in counts for side in (DECODE_SIDE, PREFILL_SIDE))


class PairTraffic(Machine):
    """One rule that draws ops (no swarm: without steps of both sides no transfer completes).

    `link_faults` are those of the side `faulty_side`, which moves the KV.
    """

    machine = "pd"
    kinds: Sequence[str] = KINDS
    link_faults: Sequence[str] = ()
    faulty_side = PREFILL_SIDE
    faults: tuple[str, ...] = ()
    load = RequestMix(OUTPUT_LENS[0])

    def sides(self, draw: HypothesisDraw) -> Sequence[Any]:
        """The configurations of the prefill and of the decode side."""
        raise NotImplementedError

    def capacities(self) -> Sequence[int]:
        """The tokens for which the pools of the prefill side have memory, and the longest prompt."""
        raise NotImplementedError

    @initialize(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        self.faults = data.draw(fault_sets([*CLIENT_FAULTS, *self.link_faults]))
        self.load = RequestMix(data.draw(options(*OUTPUT_LENS)))
        self.begin(self.sides(HypothesisDraw(data)))

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(pair_ops(self)))


@st.composite
def pair_ops(draw: st.DrawFn, run: PairTraffic) -> tuple[Op, ...]:
    """Ops of clients, and faults of both sides."""
    side = draw(options(DECODE_SIDE, PREFILL_SIDE))
    ops: tuple[Op, ...]
    match draw(options(*run.kinds)):
        case "submit":
            ops = (draw(submissions(run.load)),)
        case "crowd":
            ops = draw(crowds(run.load))
        case "both":
            return draw(turns())
        case "long":
            return *draw(long_prompts(run)), *draw(turns())
        case "mishap":
            submit, fault = draw(submissions(run.load)), draw(options(*run.link_faults))
            return submit, Inject(engine=run.faulty_side, fault=fault), *draw(turns()), *draw(turns())
        case "abort":
            ops = (Abort(request=draw(ordinals())),)
        case "flush":
            ops = (Flush(),)
        case "pause":
            ops = draw(pauses())
        case "accept":
            ops = (draw(acceptances()),)
        case "trouble":
            ops = draw(troubles(run.faults))
        case "drain":
            return (Drain(),)
        case _:
            ops = (Step(count=draw(step_counts())),)
    return tuple(msgspec.structs.replace(op, engine=side) for op in ops)


@st.composite
def long_prompts(draw: st.DrawFn, run: PairTraffic) -> tuple[Op, ...]:
    """A prompt that a pool of the prefill side can just hold, or just not; it matches no prefix of the others."""
    *pools, longest = run.capacities()
    length = draw(options(*pools)) + draw(options(1, 0, -1, -8))
    recipe = Recipe(path=(3,), stretch=max(1, min(length, longest)))
    return (Submit(recipe=recipe, max_new_tokens=draw(options(1, 4, 16)), namespace=3),)
