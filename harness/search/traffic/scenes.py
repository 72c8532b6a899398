"""Requests, and short sequences of ops that reach states which single random ops rarely reach."""

from collections.abc import Collection, Sequence
from functools import cache
from itertools import chain

import msgspec
from hypothesis import strategies as st

import swarden.harness.core.ops as do
from swarden.harness.core.limits import MAX_STEPS_PER_OP, MAX_STRETCH
from swarden.harness.core.target import TIMEOUT_MS, Shape, Tier
from swarden.harness.search.traffic.draws import (
    long_recipe,
    one_option,
    ordinals,
    rank_faults,
    rarely,
    recipes,
    stop_sets,
    troubles,
)
from swarden.harness.search.traffic.loads import Load

REWINDS = (0, 0, 1, 5, 13, 30)  # tokens
CONTEST_PRIORITIES = (0, 4, 8, 12)  # of the request with the lowest priority in a contest
MAX_STEP_OPS = 4  # Step ops in a row
MOST_FILLERS = 14  # beside two
BEYOND_THE_WINDOW = (0, 3, 9, 1, 17)  # tokens that a turn rewinds beyond the window


def submissions(load: Load) -> st.SearchStrategy[do.Submit]:
    """A request with a prompt from a recipe."""
    return _submissions(tuple(load.outputs), tuple(load.priorities))


@cache
@st.composite
def _submissions(draw: st.DrawFn, outputs: tuple[int, ...], priorities: tuple[int, ...]) -> do.Submit:
    return do.Submit(
        recipe=draw(recipes()),
        max_new_tokens=draw(one_option(*outputs)),
        stop=draw(stop_sets()),
        priority=draw(one_option(*priorities)),
        namespace=draw(rarely(st.integers(1, 2))),
    )


@st.composite
def crowds(draw: st.DrawFn, load: Load) -> tuple[do.Op, ...]:
    """Several requests at once, sometimes with the same prompt, and the steps in which they compete."""
    crowd = draw(st.lists(submissions(load), min_size=2, max_size=4))
    if draw(st.booleans()):
        crowd = [msgspec.structs.replace(request, recipe=crowd[0].recipe, namespace=0) for request in crowd]
    return *crowd, do.Step(count=draw(one_option(4, 8)))


@st.composite
def contests(draw: st.DrawFn, load: Load) -> tuple[do.Op, ...]:
    """Some running requests, sometimes with one prompt, and a later request with a higher priority than most."""
    least = draw(one_option(*CONTEST_PRIORITIES))
    many = draw(st.lists(submissions(load._replace(priorities=(least, least + 1, least + 2))), min_size=2, max_size=4))
    if draw(st.integers(0, 2)) == 2:
        many = [msgspec.structs.replace(request, recipe=many[0].recipe, namespace=0) for request in many]
    late = draw(submissions(load._replace(priorities=(least + 3, least + 2))))
    return *many, do.Step(count=draw(st.integers(1, 4))), late, do.Step()


@st.composite
def talks(draw: st.DrawFn, load: Load, shape: Shape) -> tuple[do.Op, ...]:
    """A turn of a session and its steps. Sometimes the session is opened before it, or the turn is disturbed.

    A disturbance is an abort, a second turn, one that is too long, a close, or a later turn that rewinds the session.
    Sometimes the session times out, or nearly does, before and after the disturbance.
    """
    opens = (do.OpenSession(namespace=draw(rarely(st.just(1)))),) * (draw(st.integers(0, 3)) < 3)
    turn = do.Turn(
        session=draw(st.integers(0, 3)),
        recipe=draw(recipes()),
        rewind=draw(one_option(*REWINDS)) if shape.sessions_rewind else 0,
        max_new_tokens=draw(one_option(*load.outputs)),
        stop=draw(stop_sets()),
        priority=draw(one_option(*load.priorities)),
    )
    rewinding = do.Turn(session=turn.session, rewind=draw(one_option(9, 13, 22)), max_new_tokens=1)
    disturbances = (
        (),
        (),
        (do.Abort(request=draw(ordinals())),),
        (turn,),
        (msgspec.structs.replace(turn, recipe=long_recipe(shape.max_context_len, family=3)),),
        (do.CloseSession(session=turn.session),),
        *((do.Step(count=8), do.Step(count=8), rewinding),) * (2 * shape.sessions_rewind),
    )
    before, after = do.Step(count=draw(one_option(8, 4, 1))), do.Step(count=draw(one_option(8, 1)))
    disturbance = draw(st.sampled_from(disturbances))
    idle = [do.AdvanceClock(ms=ms) for ms in draw(one_option((), (60, 60), (TIMEOUT_MS, 1)))]
    return *opens, turn, before, *idle[:1], *disturbance, *idle[1:], *((after,) if disturbance or idle else ())


@st.composite
def delays(draw: st.DrawFn, load: Load) -> tuple[do.Op, ...]:
    """A request, and a step when it has just reached TIMEOUT_MS."""
    return draw(submissions(load)), do.Step(count=draw(st.integers(1, 2))), do.AdvanceClock(ms=TIMEOUT_MS), do.Step()


@st.composite
def flushes(draw: st.DrawFn, load: Load) -> tuple[do.Op, ...]:
    """A flush.  In half of the draws the engine is idle, and a request repeats a prompt whose KV the flush removes."""
    if draw(st.booleans()):
        return (do.Flush(),)
    request = draw(submissions(load))
    again = draw(st.one_of(st.just((request,)), relatives(request)))
    return request, do.Drain(), do.Flush(), *again, do.Step(count=draw(st.integers(1, 4)))


@st.composite
def relatives(draw: st.DrawFn, request: do.Submit) -> tuple[do.Submit, ...]:
    """Two or three requests whose prompts repeat, shorten, extend or branch off from the prompt of `request`."""
    path = request.recipe.path
    paths = (path, path[:-1] or path, (*path, 0), (*path[:-1], path[-1] + 1))
    recipes = [msgspec.structs.replace(request.recipe, path=branch) for branch in paths]
    drawn = draw(st.lists(st.sampled_from(recipes), min_size=2, max_size=3))
    return tuple([msgspec.structs.replace(request, recipe=recipe) for recipe in drawn])


@st.composite
def pauses(
    draw: st.DrawFn,
    load: Load,
    sides: Sequence[int] = (0,),
    modes: Sequence[do.PauseMode] = (do.PauseMode.RETRACT,),
    pausable: Sequence[int] = (0,),
) -> tuple[do.Op, ...]:
    """A pause of a `pausable` engine, with steps of all engines or an op in it; in three of four draws it ends.

    Half of the pauses have the first mode.  If the op closes a session, one is opened before the pause, and has had a
    turn.
    """
    mode = draw(one_option(modes[0], *modes)) if len(modes) > 1 else modes[0]
    paused, other = draw(one_option(*pausable)), draw(one_option(*sides))
    steps = tuple([do.Step(engine=side, count=draw(st.integers(1, 3))) for side in sides]) * draw(st.integers(0, 1))
    before: tuple[do.Op, ...] = ()
    meanwhile: tuple[do.Op, ...] = ()
    if draw(st.booleans()):
        ops = (
            do.Abort(request=draw(ordinals())),
            do.AdvanceClock(ms=TIMEOUT_MS),
            draw(submissions(load)),
            do.CloseSession(),
            do.Flush(),
        )
        op = draw(st.sampled_from(ops))
        meanwhile = (msgspec.structs.replace(op, engine=other), *steps)
        if isinstance(op, do.CloseSession):
            before = (do.OpenSession(), do.Turn(recipe=draw(recipes())), do.Step(count=draw(st.integers(1, 3))))
    ends = (do.Resume(engine=paused),) * (draw(st.integers(0, 3)) < 3)
    return *before, do.Pause(engine=paused, mode=mode), *steps, *meanwhile, *ends


@st.composite
def resets(draw: st.DrawFn, load: Load, shape: Shape, modes: tuple[do.PauseMode, ...]) -> tuple[do.Op, ...]:
    """A reset of an engine that works, has just become idle, is idle, or is paused; then a request repeats a prompt.

    The idle engine may have a session between two turns.
    """
    request = draw(submissions(load))
    turns: tuple[do.Op, ...] = ()
    if do.name_of(do.OpenSession) not in shape.unused and draw(st.booleans()):
        turns = (do.Turn(recipe=request.recipe, max_new_tokens=draw(one_option(1, 4))),)
    opens = (do.OpenSession(),) * (bool(turns) and draw(st.booleans()))
    mode = draw(one_option(*modes, None))
    ends = (do.Pause(mode=do.PauseMode.ABORT), do.Step(count=draw(one_option(3, 1))), do.Resume())
    aborts = mode is None and draw(st.booleans()) and do.PauseMode.ABORT in modes
    before = (do.Pause(mode=mode),) if mode is not None else ends * aborts
    waits = (do.Step(count=draw(st.integers(1, 3))),) * draw(st.integers(0, 1))
    many = [do.Reset(cause=draw(one_option(*do.ResetCause))) for _ in range(draw(one_option(1, 1, 2)))]
    after = (do.Resume(),) * (mode is not None and draw(st.integers(0, 3)) < 3)
    again = draw(st.one_of(st.just((request,)), relatives(request)))
    steps = do.Step(count=draw(one_option(8, 2, 4))), do.Step(count=draw(one_option(4, 1)))
    return *opens, *turns, request, steps[0], *before, *waits, *many, *after, *turns, *again, steps[1]


@st.composite
def intruders(draw: st.DrawFn, shape: Shape) -> tuple[do.Op, ...]:
    """A request that needs nearly all pages of a pool, so that cached pages are evicted, and the steps to serve it.

    Its output may take the remaining pages too.
    """
    most = draw(one_option(1, 16))
    pages = _pages_for_one(shape) - draw(one_option(1, 3))
    length = max(1, min(pages * shape.page_size, shape.max_context_len - most - 1) - shape.lookahead_len)
    steps = _steps(_num_chunks(length, shape) + most + 1)
    return do.Submit(recipe=long_recipe(length, family=3), namespace=3, max_new_tokens=most), *steps


@st.composite
def returns(draw: st.DrawFn, load: Load, shape: Shape, faults: Collection[str]) -> tuple[do.Op, ...]:
    """Requests that repeat a prompt whose device pages may have been evicted; some may be aborted.

    Others may have a part of the prompt, or compete for pages while the host is slow. `faults` are those of the run.
    """
    first = msgspec.structs.replace(draw(submissions(load)), recipe=draw(recipes()), namespace=0)
    other_submits = draw(st.lists(submissions(load), min_size=1, max_size=3))
    other_submits = [msgspec.structs.replace(submit, namespace=3 + index) for index, submit in enumerate(other_submits)]
    prompts: tuple[do.Submit, ...] = (first,)
    steps = do.Step(count=draw(one_option(8, 2, 4)))
    eviction_ops: tuple[do.Op, ...] = (first, do.Step(count=4), *other_submits, steps)
    if draw(one_option(True, True, False)):
        prompts, eviction_ops = draw(evicted_prompts(first, shape))
    whole, other = prompts[0], other_submits[0]
    again = draw(
        st.sampled_from(
            (
                prompts,
                draw(relatives(whole)),
                draw(relatives(whole)),
                (whole, whole, other),
                (other, *prompts, other_submits[-1]),
            )
        )
    )
    tier = draw(one_option(*(shape.tiers or (None,))))
    slow = draw(slow_copies(tier))
    fails = [(do.Inject(fault=fault, count=2),) for fault in (tier.failing if tier else ())]
    trouble = draw(st.sampled_from(((), draw(troubles(tuple(faults))), *[slow, slow] * bool(slow), *fails)))
    interruptions: tuple[do.Op, ...] = ()
    if slow and trouble == slow:  # during the load, when the earlier requests have ended
        aborts = (do.Abort(request=draw(st.integers(0, 2))),) * min(2, len(again))
        rivals = draw(fillers(shape, most=draw(one_option(16, 40))))
        interruptions = draw(st.sampled_from((aborts, aborts, (do.Pause(), do.Resume()), (), rivals, rivals)))
    return *eviction_ops, *trouble, *again, do.Step(), *interruptions, do.Step(count=draw(one_option(8, 1, 3)))


@st.composite
def slow_copies(draw: st.DrawFn, tier: Tier | None, skip: int = 0) -> tuple[do.Inject, ...]:
    """The fault by which the copies of a tier are late, if there is one."""
    return (do.Inject(fault=tier.slow, skip=skip, count=draw(st.integers(3, 16))),) if tier else ()


@st.composite
def meanwhiles(draw: st.DrawFn, load: Load, shape: Shape, modes: Sequence[do.PauseMode]) -> tuple[do.Op, ...]:
    """A prompt that is evicted, sometimes behind a longer one, and then loaded while something else happens."""
    first = msgspec.structs.replace(draw(submissions(load)), namespace=0)
    tier = draw(one_option(*shape.tiers))
    [whole, *_], before = draw(evicted_prompts(first, shape, tier))
    longer = msgspec.structs.replace(_with_path(whole, (*whole.recipe.path, 0)), max_new_tokens=1)
    also = (longer, do.Step(count=MAX_STEPS_PER_OP)) * (shape.uses_before_backup * draw(st.integers(0, 1)))
    return *also, *before, *draw(loads_in_flight(whole, tier, modes))


@st.composite
def partings(draw: st.DrawFn, load: Load, shape: Shape) -> tuple[do.Op, ...]:
    """A prompt that comes back from the last tier to ranks that come apart, while a request may be aborted."""
    first = msgspec.structs.replace(draw(submissions(load)), namespace=0)
    prompts, before = draw(evicted_prompts(first, shape, shape.tiers[-1]))
    begin = *draw(rank_faults(shape)), *prompts, do.Step(count=draw(one_option(2, 1, 4)))
    aborts = (do.Abort(request=draw(st.integers(0, 2))),) * draw(st.integers(0, 1))
    return *before, *begin, *aborts, do.Step(count=MAX_STEPS_PER_OP), do.Heal(), do.Step(count=2)


@st.composite
def loads_in_flight(draw: st.DrawFn, whole: do.Submit, tier: Tier, modes: Sequence[do.PauseMode]) -> tuple[do.Op, ...]:
    """A load of a prompt that up to three requests have, and what happens meanwhile.

    That is an abort of the first or a later request, a pause, a flush, a fault of the load, or a request whose prompt
    branches off inside, goes on, or is shorter.  Sometimes the load of the first request has failed, so that it
    computes the prompt while that is loaded for the next one.
    """
    path = whole.recipe.path
    others = [_with_path(whole, branch) for branch in ((*path[:-1], path[-1] + 1), (*path, 0), path[:1])]
    fault = draw(one_option(*(tier.failing or (None,))))
    fails = (do.Inject(fault=fault),) * (fault is not None and draw(one_option(True, True, False)))
    events: list[tuple[do.Op, ...]] = [
        *((do.Abort(),), (do.Abort(request=draw(st.integers(1, 2))),)),
        *((do.Flush(),), (do.Pause(mode=draw(one_option(*modes))), do.Step(), do.Resume())),
        *[(other,) for other in others],
        *[(do.Inject(fault=fault, count=draw(one_option(1, 2))),)] * (fault is not None),
    ]
    again = (whole,) * draw(one_option(2, 1, 3))
    begin = *fails, *draw(slow_copies(tier, skip=len(fails))), *again, do.Step(count=draw(one_option(1, 2)))
    meanwhile = *draw(st.sampled_from(events)), do.Step(count=draw(one_option(2, 1, 4))), *draw(st.sampled_from(events))
    return *begin, *meanwhile, do.Step(count=MAX_STEPS_PER_OP)


def _with_path(request: do.Submit, path: tuple[int, ...]) -> do.Submit:
    return msgspec.structs.replace(request, recipe=msgspec.structs.replace(request.recipe, path=path))


@st.composite
def lacks(draw: st.DrawFn, shape: Shape, modes: Sequence[do.PauseMode]) -> tuple[do.Op, ...]:
    """A prompt, a longer one, and short requests that take the pages of a window or states, and spare the others.

    Then a request branches off at the end of the prompt, where it lacks this window or state alone.
    """
    parts = [(place, pool) for place, pool in enumerate(shape.pools) if pool.window is not None or pool.has_states]
    place, pool = draw(one_option(*parts))
    stretch = min(MAX_STRETCH, shape.page_size * draw(one_option(1, 2)))
    path = (draw(one_option(0, 1)),) * draw(one_option(2, 1, 3))
    prompt, longer, branch = [
        do.Submit(recipe=do.Recipe(path=(*path, *tail), stretch=stretch), max_new_tokens=1) for tail in ((), (0,), (1,))
    ]
    once = prompt, do.Step(count=MAX_STEPS_PER_OP), longer, do.Step(count=MAX_STEPS_PER_OP)
    length = max(shape.page_size, pool.window or 1)
    count = min(MOST_FILLERS, pool.units * shape.page_size // length + 1)
    fillers = _fillers([(min(length, shape.max_context_len - 2), 1)] * count)
    steps = _steps(2 * count * _num_chunks(length, shape))
    taken = do.Pressure(pool=place, pages=pool.units), *fillers, *steps, do.Pressure(pool=place)
    loads = (branch, do.Step(count=MAX_STEPS_PER_OP)), draw(loads_in_flight(branch, shape.tiers[0], modes))
    return *once * shape.uses_before_backup, *taken, *draw(st.sampled_from(loads))


@st.composite
def evicted_prompts(
    draw: st.DrawFn, first: do.Submit, shape: Shape, tier: Tier | None = None
) -> tuple[tuple[do.Submit, ...], tuple[do.Op, ...]]:
    """A prompt of some pages that is backed up to the host, and then evicted from the device.

    There may be a second prompt of the same tokens in another namespace.
    """
    stretch, path = max(first.recipe.stretch, shape.page_size), (*first.recipe.path, 0, 0)
    first = msgspec.structs.replace(first, recipe=do.Recipe(path=path[:4], stretch=stretch, cut=first.recipe.cut))
    prompts = tuple(msgspec.structs.replace(first, namespace=index) for index in range(draw(one_option(1, 2, 1))))
    times, most = max(1, shape.uses_before_backup), draw(one_option(1, 2))
    eviction_ops = [
        (msgspec.structs.replace(prompt, max_new_tokens=most), do.Step(count=MAX_STEPS_PER_OP)) * times
        for prompt in prompts
    ]
    emptied_by = tier and tier.emptied_by
    drops = (emptied_by,) if emptied_by and draw(st.integers(0, 2)) else draw(intruders(shape))
    return prompts, (*chain.from_iterable(eviction_ops), *drops)


@st.composite
def outlasts(draw: st.DrawFn, shape: Shape) -> tuple[do.Op, ...]:
    """Some requests fill a pool, and the last one grows into the pages of the others, whose backups are slow."""
    most = draw(one_option(16, 40))
    return *draw(fillers(shape, most=most)), *draw(slow_copies(shape.tiers[0] if shape.tiers else None)), *_steps(most)


@st.composite
def fillers(draw: st.DrawFn, shape: Shape, most: int) -> tuple[do.Op, ...]:
    """Requests that fill a pool, and the steps that compute them; the last one has `most` tokens of output.

    There are two requests, unless the pool holds more than two contexts.  Then half of the draws have short prompts,
    and long outputs that do not fit together: an engine that estimates outputs admits all of them.
    """
    pages, left = _pages_for_one(shape), draw(st.integers(3, 8)) + shape.lookahead_len
    longest = shape.max_context_len - most - 1
    others = min(MOST_FILLERS, max(0, pages * shape.page_size // longest - 1)) if longest > 0 else 0
    if others and draw(st.booleans()):
        count = min(2 * others + 2, shape.max_running_requests)
        share = min(pages * shape.page_size // count, shape.max_context_len)
        sizes = [(max(1, share // 2), max(1, min(share, shape.max_context_len - share // 2 - 1)))] * count
        return *_fillers(sizes), *_steps(share)
    pages -= others * -(-longest // shape.page_size)
    first = draw(st.integers(max(1, pages // 4), max(1, pages // 2)))
    lengths = [max(1, min(count * shape.page_size - left, longest)) for count in (first, pages - first)]
    lengths, outputs = [longest] * others + lengths, [most] * others + [draw(one_option(1, 2, 4)), most]
    requests = _fillers(list(zip(lengths, outputs, strict=True)))
    return *requests, *_steps(2 + sum(_num_chunks(length, shape) for length in lengths))


def _fillers(sizes: Sequence[tuple[int, int]]) -> list[do.Submit]:
    """Requests with prompts and outputs of these lengths, which share no prefix."""
    return [
        do.Submit(recipe=long_recipe(length, family=2), namespace=3 + place, max_new_tokens=new_tokens)
        for place, (length, new_tokens) in enumerate(sizes)
    ]


def _num_chunks(length: int, shape: Shape) -> int:
    return -(-length // (shape.chunk_len or length))


def _steps(count: int) -> tuple[do.Op, ...]:
    """Ops for `count` steps, but at most MAX_STEP_OPS * MAX_STEPS_PER_OP steps."""
    whole, rest = divmod(min(count, MAX_STEP_OPS * MAX_STEPS_PER_OP), MAX_STEPS_PER_OP)
    return *(do.Step(count=MAX_STEPS_PER_OP),) * whole, *((do.Step(count=rest),) if rest else ())


def _pages_for_one(shape: Shape) -> int:
    """The pages that a prompt may fill: of a whole-prefix pool if prefill is chunked, else of the smallest pool."""
    whole = [pool.units for pool in shape.pools if pool.window is None]
    kept = [pool.units for pool in shape.pools if not pool.has_states]
    return whole[0] if shape.chunk_len and whole else min(kept, default=16)


@st.composite
def rewinds(draw: st.DrawFn, load: Load, shape: Shape) -> tuple[do.Op, ...]:
    """A turn of a new session whose window slides far, and a turn that rewinds a little or much more than a window."""
    most = draw(one_option(*load.outputs))
    far = max([pool.window or 0 for pool in shape.pools], default=0) + shape.page_size
    recipe = long_recipe(far + draw(st.integers(0, 8)), family=draw(one_option(0, 1)))
    turn = do.Turn(recipe=recipe, max_new_tokens=most, stop=draw(stop_sets()))
    back = do.Turn(rewind=far + draw(one_option(*BEYOND_THE_WINDOW)), max_new_tokens=draw(one_option(1, 4)))
    steps = (do.Step(count=MAX_STEPS_PER_OP),) * draw(st.integers(3, 4))
    return do.OpenSession(), turn, *steps, back, do.Step(count=draw(one_option(4, 2))), do.CloseSession()
