"""Sequences of ops that reach rare states which single random ops would rarely reach."""

from itertools import chain

import msgspec
from hypothesis import strategies as st

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.limits import MAX_STEPS_PER_OP
from swarden.harness.core.ops import (
    Abort,
    CloseSession,
    Inject,
    Op,
    OpenSession,
    Pause,
    Recipe,
    Resume,
    Step,
    Submit,
    Turn,
)
from swarden.harness.engines.own.loads import LoadProfile
from swarden.harness.search.draws import acceptances, options, recipes, stop_sets, troubles
from swarden.harness.search.scenes import submissions

MAX_STEP_OPS = 4  # Step ops in a row
BEYOND_THE_WINDOW = (0, 3, 9, 1, 17)  # tokens that a turn rewinds beyond the window


@st.composite
def intruders(draw: st.DrawFn, config: EngineConfig) -> tuple[Op, ...]:
    """A request that needs nearly all pages of a pool, so that cached pages are evicted, and the steps to serve it.

    Its output may take the remaining pages too.
    """
    most = draw(options(1, 16))
    pages = _pages_for_one(config) - draw(options(1, 3))
    length = max(1, min(pages * config.page_size, config.max_context_len - most - 1) - config.lookahead_tokens)
    steps = _steps(_num_chunks(length, config) + most + 1)
    return Submit(recipe=Recipe(path=(3,), stretch=length), namespace=3, max_new_tokens=most), *steps


@st.composite
def returns(draw: st.DrawFn, load: LoadProfile, config: EngineConfig, faults: tuple[str, ...]) -> tuple[Op, ...]:
    """Requests for a prompt whose device pages may be evicted by then, perhaps among others; some may be aborted.

    They may ask for a part of the prompt first.
    """
    first = msgspec.structs.replace(draw(submissions(load)), recipe=draw(recipes()), namespace=0)
    other_submits = draw(st.lists(submissions(load), min_size=1, max_size=3))
    other_submits = [msgspec.structs.replace(one, namespace=3 + index) for index, one in enumerate(other_submits)]
    prompts: tuple[Submit, ...] = (first,)
    eviction_ops: tuple[Op, ...] = (first, Step(count=4), *other_submits, Step(count=draw(options(8, 2, 4))))
    if draw(options(True, True, False)):
        prompts, eviction_ops = draw(evicted_prompts(first, config))
    whole, other = prompts[0], other_submits[0]
    part = msgspec.structs.replace(whole, recipe=msgspec.structs.replace(whole.recipe, path=whole.recipe.path[:-1]))
    again = draw(
        st.sampled_from(
            (
                prompts,
                (whole, whole),
                (part, whole),
                (whole, whole, other),
                (other, *prompts, other_submits[-1]),
            )
        )
    )
    slow, fails = Inject(fault="host.slow", count=draw(st.integers(3, 16))), Inject(fault="host.fails", count=2)
    host_faults = ((slow,), (fails,), (slow,)) if config.host_pools else ()
    trouble = draw(st.sampled_from(((), draw(troubles(faults)), *host_faults)))
    interruptions: tuple[Op, ...] = ()
    if trouble == (slow,):  # during the load, when the earlier requests have ended
        aborts = (Abort(request=draw(st.integers(0, 2))),) * min(2, len(again))
        interruptions = draw(st.sampled_from((aborts, aborts, (Pause(), Resume()), ())))
    return *eviction_ops, *trouble, *again, Step(), *interruptions, Step(count=draw(options(8, 1, 3)))


@st.composite
def evicted_prompts(draw: st.DrawFn, first: Submit, config: EngineConfig) -> tuple[tuple[Submit, ...], tuple[Op, ...]]:
    """A prompt of some pages that is backed up to the host, and then evicted from the device.

    There may be a second prompt of the same tokens in another namespace.
    """
    stretch, path = max(first.recipe.stretch, config.page_size), (*first.recipe.path, 0, 0)
    first = msgspec.structs.replace(first, recipe=Recipe(path=path[:4], stretch=stretch, cut=first.recipe.cut))
    prompts = tuple(msgspec.structs.replace(first, namespace=index) for index in range(draw(options(1, 2, 1))))
    times, most = 2 if config.host_policy == "write_through_selective" else 1, draw(options(1, 2))
    eviction_ops = [
        (msgspec.structs.replace(one, max_new_tokens=most), Step(count=MAX_STEPS_PER_OP)) * times for one in prompts
    ]
    return prompts, (*chain.from_iterable(eviction_ops), *draw(intruders(config)))


@st.composite
def outlasts(draw: st.DrawFn, config: EngineConfig) -> tuple[Op, ...]:
    """Two requests fill a pool. One ends soon; the other grows into its pages, whose backups are slow."""
    most, slow = draw(options(16, 40)), Inject(fault="host.slow", count=draw(st.integers(3, 16)))
    pages, left = _pages_for_one(config), draw(st.integers(3, 8)) + config.lookahead_tokens
    first = draw(st.integers(max(1, pages // 4), max(1, pages // 2)))
    lengths = [
        max(1, min(count * config.page_size - left, config.max_context_len - most - 1))
        for count in (first, pages - first)
    ]
    outputs = (draw(options(1, 2, 4)), most)
    both = [
        Submit(recipe=Recipe(path=(2,), stretch=length), namespace=3 + place, max_new_tokens=new_tokens)
        for place, (length, new_tokens) in enumerate(zip(lengths, outputs, strict=True))
    ]
    passes = _steps(2 + sum(_num_chunks(length, config) for length in lengths))
    return *both, *passes, *((slow,) if config.host_pools else ()), *_steps(most)


def _num_chunks(length: int, config: EngineConfig) -> int:
    return -(-length // (config.chunk_len or length))


def _steps(count: int) -> tuple[Op, ...]:
    """Ops for `count` steps, but at most MAX_STEP_OPS * MAX_STEPS_PER_OP steps."""
    count = min(count, MAX_STEP_OPS * MAX_STEPS_PER_OP)
    whole, rest = divmod(count, MAX_STEPS_PER_OP)
    return *(Step(count=MAX_STEPS_PER_OP),) * whole, *((Step(count=rest),) if rest else ())


def _pages_for_one(config: EngineConfig) -> int:
    """The pages that a prompt may fill: in the full pool if prefill is chunked, else in the smallest pool."""
    pools = [pages for pages in (config.full_pages, config.swa_pages) if pages]
    return pools[0] if config.chunk_len else min(pools)


@st.composite
def rewinds(draw: st.DrawFn, load: LoadProfile, config: EngineConfig) -> tuple[Op, ...]:
    """A turn of a new session whose window slides far, and a turn that rewinds a little or much more than a window."""
    most = draw(options(*load.outputs))
    far = (config.sliding_window or 0) + config.page_size
    recipe = Recipe(path=(draw(options(0, 1)),), stretch=far + draw(st.integers(0, 8)))
    turn = Turn(recipe=recipe, max_new_tokens=most, stop=draw(stop_sets()))
    back = Turn(rewind=far + draw(options(*BEYOND_THE_WINDOW)), max_new_tokens=draw(options(1, 4)))
    steps = (Step(count=MAX_STEPS_PER_OP),) * draw(st.integers(3, 4))
    return OpenSession(), turn, *steps, back, Step(count=draw(options(4, 2))), CloseSession()


@st.composite
def first_acceptances(draw: st.DrawFn, config: EngineConfig) -> tuple[Op, ...]:
    """The acceptances from the first step on, if there are draft tokens."""
    return (draw(acceptances()),) if config.draft_tokens else ()
