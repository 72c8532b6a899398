"""Configurations of every kind, random ops, and helpers to read the state of a system."""

from collections.abc import Iterator
from itertools import cycle
from random import Random

from swarden.engine_under_test.config import PAGE_REUSES, EngineConfig
from swarden.harness.core.ops import (
    Complete,
    Evict,
    Flush,
    Free,
    Give,
    Insert,
    Lock,
    Op,
    Pressure,
    Recipe,
    Slide,
    Take,
    TakeOver,
    Unlock,
)
from swarden.harness.core.system import System
from swarden.invariants.events import Modelled
from swarden.invariants.view import Snapshot

# (page_size, sliding_window): the window is below, at, above or no multiple of the page size
WINDOWS = ((1, 2), (1, 5), (2, 2), (2, 3), (2, 8), (4, 3), (4, 5), (4, 17), (16, 5), (16, 17), (16, 40))
FULL_TOKENS, SPARE_SWA_PAGES = (96, 256, 48), (4, 0, 12)
PARTS = ("all", "windowed", "rest")


def configurations() -> Iterator[EngineConfig]:
    """30 configurations: full only, SWA only, both, and both without sharing."""
    reuses, tokens, spares = cycle(PAGE_REUSES), cycle(FULL_TOKENS), cycle(SPARE_SWA_PAGES)
    for page_size in (1, 2, 4, 16):
        yield EngineConfig(page_size=page_size, full_pages=256 // page_size, page_reuse=next(reuses))
    for kind, windows in (("both", WINDOWS), ("swa", WINDOWS), ("unshared", WINDOWS[::3])):
        for page_size, window in windows:
            yield EngineConfig(
                page_size=page_size,
                full_pages=0 if kind == "swa" else max(next(tokens) // page_size, 6),
                swa_pages=-(-max(window - 1, page_size) // page_size) + 2 + next(spares),
                sliding_window=window,
                max_running_requests=6,
                page_reuse=next(reuses),
                prefix_sharing=kind != "unshared",
            )


def name_of(config: EngineConfig) -> str:
    sizes = f"page{config.page_size}-full{config.full_pages}-swa{config.swa_pages}-window{config.sliding_window}"
    return f"{sizes}-{config.page_reuse}{'' if config.prefix_sharing else '-unshared'}"


def ledger_op(rng: Random) -> Op:
    owner, other, count = rng.randrange(4), rng.randrange(4), rng.randint(1, 8)
    return rng.choice(
        (
            Take(owner=owner, count=count),
            Take(owner=owner, count=count),
            Give(owner=owner, to=other, count=count),
            Free(owner=owner, count=count, part=rng.choice(PARTS), fenced=rng.random() < 0.5),
            Free(owner=owner, count=count, part="windowed"),
            TakeOver(owner=owner, giver=other, count=count),
            Complete(),
            Pressure(pool=rng.randrange(2), pages=rng.choice((0, 0, 1, 5))),
        )
    )


def tree_op(rng: Random) -> Op:
    """Prompts of few branches; half of them extend an inserted prompt."""
    path = tuple(rng.choice((0, 0, 0, 1)) for _ in range(rng.randint(1, 5)))
    continues = rng.choice((None, rng.randrange(8)))
    recipe = Recipe(path, stretch=rng.choice((4, 8, 16)), cut=rng.randrange(4), continues=continues)
    namespace, receipt = rng.choice((0, 0, 0, 1)), rng.randrange(8)
    return rng.choice(
        (
            Insert(recipe=recipe, namespace=namespace, dead=rng.randrange(8)),
            Insert(recipe=recipe, namespace=namespace, dead=rng.randrange(8)),
            Insert(recipe=recipe, namespace=namespace),
            Lock(recipe=recipe, namespace=namespace),
            Lock(recipe=recipe, namespace=namespace),
            Unlock(receipt=receipt),
            Slide(receipt=receipt, page=rng.randrange(12)),
            Evict(need=(rng.randrange(4), rng.randrange(4))),
            rng.choice((Flush(), Evict(need=(0, 2)))),
            Pressure(pool=rng.randrange(2), pages=rng.choice((0, 0, 1, 5))),
        )
    )


def disagreements(system: System) -> list[Modelled]:
    """The new comparisons in which system and model differ."""
    comparisons = [event for event in system.take_events() if isinstance(event, Modelled)]
    assert comparisons, "the system compared nothing with the model"
    return [event for event in comparisons if event.expected != event.found]


def num_free(snapshot: Snapshot) -> dict[str, int]:
    return {pool.name: len(pool.free) for pool in snapshot.pools}


def held(snapshot: Snapshot, pool: str) -> dict[str, list[int]]:
    """The units of each owner in a pool."""
    holdings = snapshot.pool(pool).holdings
    return {str(holding.owner): list(holding.units) for holding in holdings if holding.units}
