"""Random traffic for a prefill and a decode scheduler, and for the link between them."""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from harness.core.faults import CLIENT_FAULTS
from harness.core.ops import Abort, Drain, Flush, Inject, Op, Recipe, Step, Submit
from harness.engines.sglang.config import DECODE, PREFILL, SglangConfig, least_swa_pages, plain_config
from harness.engines.sglang.link import FAULTS as LINK_FAULTS
from harness.search.draws import fault_sets, options, ordinals, step_counts, troubles
from harness.search.machine import Machine
from harness.search.scenes import RequestMix, crowds, pauses, submissions
from harness.search.traffic import OUTPUT_LENS, HypothesisDraw

PREFILL_SIDE, DECODE_SIDE = 0, 1  # the ordinals of the engines
MOST_RESERVED_PAGES = 4
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


def sides(draw: HypothesisDraw) -> tuple[SglangConfig, SglangConfig]:
    """A prefill and a decode configuration: one model and the same switches, but other pools and batches.

    The decode side has pages for a whole request, its estimated output and its reservation, with pages of one token
    also in the windowed pool: a release never admits a larger request, and all that follow wait behind it.
    """
    prefill = msgspec.structs.replace(plain_config(draw), role=PREFILL, preemption_threshold=None)
    page = prefill.page_size
    beside = -(-max(OUTPUT_LENS[-1]) // page) + MOST_RESERVED_PAGES + 1
    least = least_swa_pages(page, prefill.sliding_window, prefill.chunk_len) + beside
    full = prefill.full_pages + beside * draw.one_of((1, 2, 4))
    decode = msgspec.structs.replace(
        prefill,
        role=DECODE,
        full_pages=full,
        swa_pages=full if page == 1 else max(least, draw.one_of((full, least))),
        max_running_requests=draw.one_of((4, 2, 8, 1)),
        reserved_decode_tokens=page * draw.one_of((1, 2, MOST_RESERVED_PAGES)),
        overlap=draw.one_of((False, True)),
    )
    return prefill, decode


@st.composite
def turns(draw: st.DrawFn) -> tuple[Op, ...]:
    """Steps of both sides in turns."""
    counts = draw(st.lists(st.sampled_from((1, 1, 2, 4)), min_size=1, max_size=4))
    return tuple(Step(engine=side, count=count) for count in counts for side in (DECODE_SIDE, PREFILL_SIDE))


class PairTraffic(Machine):
    """One rule that draws ops (no swarm: without steps of both sides no transfer completes)."""

    machine = "pd"
    faults: tuple[str, ...] = ()
    load = RequestMix(OUTPUT_LENS[0])

    @initialize(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        self.faults = data.draw(fault_sets([*CLIENT_FAULTS, *LINK_FAULTS]))
        self.load = RequestMix(data.draw(options(*OUTPUT_LENS)))
        self.begin(sides(HypothesisDraw(data)))

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(pair_ops(self)))


@st.composite
def pair_ops(draw: st.DrawFn, run: PairTraffic) -> tuple[Op, ...]:
    """Ops of clients, and faults of both sides."""
    side = draw(options(DECODE_SIDE, PREFILL_SIDE))
    ops: tuple[Op, ...]
    match draw(options(*KINDS)):
        case "submit":
            ops = (draw(submissions(run.load)),)
        case "crowd":
            ops = draw(crowds(run.load))
        case "both":
            return draw(turns())
        case "long":
            return *draw(long_prompts(run)), *draw(turns())
        case "mishap":
            submit, fault = draw(submissions(run.load)), draw(options(*LINK_FAULTS))
            return submit, Inject(engine=PREFILL_SIDE, fault=fault), *draw(turns()), *draw(turns())
        case "abort":
            ops = (Abort(request=draw(ordinals())),)
        case "flush":
            ops = (Flush(),)
        case "pause":
            ops = draw(pauses())
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
    config = run.configs[PREFILL_SIDE]
    units = draw(options(config.swa_pages, config.full_pages))
    length = units * config.page_size + draw(options(1, 0, -1, -8))
    recipe = Recipe(path=(3,), stretch=max(1, min(length, config.max_context_len // 2)))
    return (Submit(recipe=recipe, max_new_tokens=draw(options(1, 4, 16)), namespace=3),)
