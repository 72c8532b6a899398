"""Hypothesis strategies for ops: recipes, faults and small numbers, the simplest first; and the ops of a target."""

from collections.abc import Hashable, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from swarden.harness.core import ops
from swarden.harness.core.limits import MAX_CHOICES, MAX_STEPS_PER_OP, MAX_STRETCH
from swarden.harness.core.ops import Abort, Accept, Heal, Inject, Op, Recipe, Step
from swarden.harness.core.target import Shape, Target

PRESSURE_PAGES = (0, 1, 3, 10)
BRANCH_CHOICES = (0, 0, 0, 1, 2)  # mostly 0, so that prompts share long prefixes
MOST_OPTIONS = 4096  # kept strategies
OUTAGE = 1000  # crossings; more than a few steps have, so that the fault is still armed when an op disarms it

OptionT = TypeVar("OptionT", bound=Hashable)
ZERO = st.just(0)
PATHS = st.lists(st.sampled_from(BRANCH_CHOICES), min_size=1, max_size=6)


def one_option(*values: OptionT) -> SearchStrategy[OptionT]:
    """One of these values, drawn from a strategy that is made once.

    Hypothesis validates each new strategy object before it draws from it, which costs more than the draw.
    """
    return _options(*values)


@lru_cache(MOST_OPTIONS, typed=True)
def _options(*values: OptionT) -> SearchStrategy[OptionT]:
    return st.sampled_from(values)


@cache
@st.composite
def recipes(draw: DrawFn) -> Recipe:
    """Recipes with paths of 1 to 6 choices, and with stretches around multiples of pages and windows."""
    continues = draw(st.integers(0, 15))
    return Recipe(
        path=tuple(draw(PATHS)),
        stretch=draw(one_option(4, 1, 3, 5, 8, 16)),
        cut=draw(st.integers(0, 4)),
        continues=continues - 8 if continues >= 8 else None,
    )


def long_recipe(length: int, *, family: int) -> Recipe:
    """A prompt of `length` tokens, at least one; prompts of one family begin with the same tokens."""
    length = max(1, length)
    stretches = min(MAX_CHOICES, -(-length // MAX_STRETCH))
    stretch = min(MAX_STRETCH, -(-length // stretches))
    return Recipe(path=(family,) * stretches, stretch=stretch, cut=max(0, stretches * stretch - length))


@lru_cache(MOST_OPTIONS)
def rarely(strategy: SearchStrategy[int]) -> SearchStrategy[int]:
    """0 in three of four draws, else a value from `strategy`."""
    return st.integers(0, 3).flatmap(lambda coin: strategy if coin == 3 else ZERO)


def ordinals() -> SearchStrategy[int]:
    """Ordinals of live requests; an op takes them modulo the number of live requests."""
    return st.integers(0, 7)


@cache
def step_counts() -> SearchStrategy[int]:
    """Counts of steps, mostly small, so that new requests arrive while others run."""
    return st.sampled_from((1, 2, 1, 4, MAX_STEPS_PER_OP))


@cache
def acceptances() -> SearchStrategy[Accept]:
    """Ops that set the accepted drafts per proposal: all, none, alternating or random; sometimes no drafts at all."""
    lengths = st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple)
    return st.one_of(st.sampled_from(((5,), (0,), (5, 0), ())), lengths).map(lambda drawn: Accept(lengths=drawn))


@cache
def stop_sets() -> SearchStrategy[tuple[int, ...]]:
    """Stop tokens: mostly none, otherwise a quarter or an eighth of the tokens that the stand-in model can generate."""
    return st.sampled_from(((), tuple(range(0, 64, 4)), (), (), tuple(range(0, 64, 8))))


def fault_sets(faults: Sequence[str]) -> SearchStrategy[tuple[str, ...]]:
    """The faults that a run can have; a quarter of the runs has none."""
    return st.integers(0, 3).flatmap(
        lambda coin: st.lists(st.sampled_from(faults), min_size=1, unique=True).map(tuple) if coin else st.just(())
    )


@st.composite
def troubles(draw: DrawFn, faults: Sequence[str]) -> tuple[Op, ...]:
    """The ops that arm a fault: it fires a few times, or until an op disarms it some steps later.

    A run without faults makes a step instead.
    """
    if not faults:
        return (Step(),)
    fault = draw(one_option(*faults))
    skip, count = draw(one_option(0, 1, 0, 2, 5)), draw(one_option(1, 1, 2, 3, OUTAGE))
    inject = Inject(fault=fault, skip=skip, count=count)
    if count < OUTAGE:
        return (inject,)
    healed = draw(one_option(fault, None))
    return inject, Step(count=draw(st.integers(1, 4))), Heal(fault=healed)


@st.composite
def with_ranks(draw: DrawFn, ops: Sequence[Op], shape: Shape) -> list[Op]:
    """The ops; most of the faults that may differ between ranks come to one rank alone.

    In a third of the draws the ranks come apart in between, while a request may be aborted, and may be healed later.
    In a pair those are faults of the first engine.
    """
    drawn = [
        msgspec.structs.replace(op, rank=draw(one_option(*range(shape.ranks), None)))
        if isinstance(op, Inject) and op.fault in shape.differing
        else op
        for op in ops
    ]
    if not drawn or draw(st.integers(0, 2)):
        return drawn
    place = draw(st.integers(0, len(drawn)))
    engine = draw(one_option(*dict.fromkeys(op.engine for op in drawn)))
    aborts = (Abort(engine=engine, request=draw(ordinals())),) * draw(st.integers(0, 1))
    ends = Step(engine=engine, count=draw(one_option(2, 1, 8))), *(Heal(),) * draw(st.integers(0, 1))
    return [*drawn[:place], *draw(rank_faults(shape)), *drawn[place:], *aborts, *ends]


@st.composite
def rank_faults(draw: DrawFn, shape: Shape) -> list[Inject]:
    """Faults by which ranks come apart: some have faults of their own, while a tier may be slow in all of them."""
    tier = draw(one_option(None, *shape.tiers))
    slow = [Inject(fault=tier.slow, count=8)] if tier else []
    differing = [fault for fault in shape.differing if fault not in shape.unused]
    return slow + [
        Inject(
            fault=draw(one_option(*differing)), skip=draw(one_option(0, 1, 2)), count=draw(one_option(8, 2)), rank=rank
        )
        for rank in draw(st.lists(st.integers(0, shape.ranks - 1), min_size=1, max_size=3))
        if differing
    ]


def alphabet_of(target: Target, machine: str, config: Any) -> list[Op]:
    """The ops to combine: a few of each kind that the machine supports, but for faults and the clock."""
    shape = target.shape(config)
    page, pools, spec = shape.page_size, range(len(shape.pools)), target.machines[machine]
    whole, branch = Recipe(path=(0,), stretch=2 * page), Recipe(path=(0, 1), stretch=page + 1)
    candidates: tuple[Op, ...] = (
        *(ops.Submit(recipe=whole), ops.Submit(recipe=branch, max_new_tokens=2 * page), ops.Step()),
        *(ops.Abort(), ops.Abort(request=1), ops.Flush()),
        *(*[ops.Pause(mode=mode) for mode in spec.pauses], ops.Resume(), ops.Reset()),
        *chain.from_iterable((ops.Pressure(pool=pool, pages=3), ops.Pressure(pool=pool)) for pool in pools),
        *(ops.OpenSession(), ops.Turn(recipe=whole, max_new_tokens=2), ops.CloseSession()),
        *((ops.Accept(lengths=(0,)), ops.Accept(lengths=(8,))) if shape.lookahead_len else ()),
    )
    return [op for op in candidates if not spec.refusal(op)]
