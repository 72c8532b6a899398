"""Random traffic for a prefill engine, a decode engine and the link between them."""

from dataclasses import replace

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.ops import Abort, AdvanceClock, Drain, Flush, Inject, Op, Pressure, Recipe, Step, Submit
from swarden.harness.engines.own.configurations import configurations, with_drafts, with_states
from swarden.harness.engines.own.faults import BETWEEN_ENGINES
from swarden.harness.engines.own.loads import LoadProfile
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
from swarden.harness.search.scenes import pauses, submissions

PREFILL, DECODE = 0, 1  # the ordinals of the engines
LINK_TIMEOUTS_MS = (40, 15, 200)
RESERVES = (4, 0, 16, 64)  # reserved_decode_tokens
TIMES = (1, 1, 2, 4)  # the factor of the pool sizes of the decode side
LOADS = (
    LoadProfile((4, 1, 9, 0, 2)),
    LoadProfile((16, 24, 8, 1)),
    LoadProfile((24, 40, 16), settings={"max_running_requests": 8, "request_timeout_ms": None}),
)
# The faults of the link are listed twice, so that more runs have them than the other faults.
FAULTS = (*BETWEEN_ENGINES, *BETWEEN_ENGINES, "pool.refuses", "forward.fails", "forward.late", "client.gone")
KINDS = (
    *("submit",) * 6,
    *("crowd",) * 2,
    *("step",) * 6,
    *("both",) * 10,
    *("follow",) * 3,
    *("mishap",) * 3,
    *("abort",) * 3,
    "pressure",
    "flush",
    "pause",
    "trouble",
    "trouble",
    "clock",
    "drain",
)


@st.composite
def sides(draw: st.DrawFn, load: LoadProfile) -> tuple[EngineConfig, EngineConfig]:
    """The prefill and the decode configuration of a pair: one model, but separate pools and batch settings."""
    config = load.on(draw(with_states(configurations(host_ratios=(0, 0, 2)))))
    linked = replace(config, link_retry_ms=3, link_timeout_ms=draw(options(*LINK_TIMEOUTS_MS)))
    prefill = linked.for_side("prefill")
    times = draw(options(*TIMES))
    decode = replace(
        linked.for_side("decode"),
        full_pages=config.full_pages * times,
        swa_pages=config.swa_pages * draw(options(1, times)),
        state_pages=config.state_pages * draw(options(1, times)),
        max_running_requests=draw(options(4, 2, 8, 1)),
        prefix_sharing=draw(options(True, True, False)),
        overlap=draw(st.booleans()),
        reserved_decode_tokens=draw(options(*RESERVES)),
    )
    if decode.swa_pages and draw(st.integers(0, 2)) == 2:
        decode = replace(decode, swa_pages=decode.least_swa_pages)
    return prefill, draw(with_drafts(st.just(decode)))


@st.composite
def pair_ops(draw: st.DrawFn, load: LoadProfile, faults: tuple[str, ...]) -> tuple[Op, ...]:
    """Ops of clients, and faults of both sides."""
    side = draw(options(DECODE, PREFILL))
    ops: tuple[Op, ...]
    match draw(options(*KINDS)):
        case "submit":
            ops = (draw(submissions(load)),)
        case "crowd":
            crowd = draw(st.lists(submissions(load), min_size=2, max_size=4))
            if draw(st.booleans()):
                crowd = [msgspec.structs.replace(one, recipe=crowd[0].recipe, namespace=0) for one in crowd]
            ops = tuple(crowd)
        case "both":
            return draw(turns())
        case "follow":
            return draw(follow_ups(load))
        case "mishap":
            return draw(mishaps(load))
        case "abort":
            ops = (Abort(request=draw(ordinals())),)
        case "pressure":
            ops = (Pressure(pool=draw(st.integers(0, 2)), pages=draw(options(*PRESSURE_PAGES))),)
        case "flush":
            ops = (Flush(),)
        case "pause":
            ops = draw(pauses())
        case "trouble":
            ops = draw(troubles(faults))
        case "clock":
            ops = (AdvanceClock(ms=draw(options(1, 3, 15, 100))),)
        case "drain":
            return (Drain(),)
        case _:
            ops = (Step(count=draw(step_counts())),)
    return tuple(msgspec.structs.replace(op, engine=side) for op in ops)


@st.composite
def follow_ups(draw: st.DrawFn, load: LoadProfile) -> tuple[Op, ...]:
    """A prompt, the steps to serve it, and a prompt with the same prefix, which may be cached on both sides."""
    first = draw(submissions(load))
    recipe = msgspec.structs.replace(first.recipe, stretch=draw(options(1, 2, 5, 9)))
    again = msgspec.structs.replace(first, recipe=recipe)
    longer = Submit(recipe=Recipe(path=(*first.recipe.path, 0), stretch=first.recipe.stretch), max_new_tokens=2)
    serve = (Step(engine=DECODE, count=2), Step(engine=PREFILL, count=4), Step(engine=DECODE, count=8))
    refused = (Inject(engine=DECODE, fault="pool.refuses", skip=draw(st.integers(0, 1))),) * (
        draw(st.integers(0, 4)) == 4
    )
    return first, *serve, draw(st.sampled_from((longer, again))), *refused, *draw(turns())


@st.composite
def mishaps(draw: st.DrawFn, load: LoadProfile) -> tuple[Op, ...]:
    """A fault during the transfer of a prompt, or during the reservation for it."""
    submit, side = draw(submissions(load)), draw(options(PREFILL, DECODE))
    fault, skip = draw(options(*BETWEEN_ENGINES, "pool.refuses")), draw(options(0, 1, 2, 3))
    inject = Inject(engine=side, fault=fault, skip=skip, count=draw(options(1, 1, 2, 6)))
    early = draw(st.booleans())
    invited = (Step(engine=DECODE), Step(engine=PREFILL)) if early else (Step(engine=DECODE),)
    return submit, *invited, inject, *draw(turns()), *draw(turns())


@st.composite
def turns(draw: st.DrawFn) -> tuple[Op, ...]:
    """Steps of both sides in turns."""
    counts = draw(st.lists(st.sampled_from((1, 1, 2, 4)), min_size=1, max_size=4))
    return tuple(Step(engine=side, count=count) for count in counts for side in (DECODE, PREFILL))


class PairTraffic(Machine):
    """One rule that draws ops (no swarm: without steps of both sides no transfer completes)."""

    machine = "pd"
    has_scenes = True
    load = LOADS[0]
    faults: tuple[str, ...] = ()

    @initialize(load=st.sampled_from(LOADS), faults=fault_sets(FAULTS), data=st.data())
    def configure(self, load: LoadProfile, faults: tuple[str, ...], data: st.DataObject) -> None:
        self.load, self.faults = load, faults
        self.begin(data.draw(sides(load)))
        if self.configs[DECODE].draft_tokens:
            self.apply(msgspec.structs.replace(data.draw(acceptances()), engine=DECODE))

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(pair_ops(self.load, self.faults)))
