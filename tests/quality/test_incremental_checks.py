"""Judging only what changed finds what judging everything does: on traffic, with bugs in, and on doctored states."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from engine_under_test.config import EngineConfig
from engine_under_test.errors import AccountingError
from harness.core.ops import Abort, Flush, Op, Pressure, Recipe, Step, Submit
from harness.core.system import EngineSystem
from harness.engines.own.adapter import SwardenEngine
from harness.engines.own.mutants.catalog import BY_ID
from invariants.catalog import ALL, Tally
from invariants.transition import Transition, When

SEEDS = range(16)
OPS = 90
MUTANTS = ("B3", "B14", "B18", "B31", "B46")
CONFIGS = (
    EngineConfig(page_size=4, full_pages=40, swa_pages=14, sliding_window=8, max_running_requests=4, chunk_len=12),
    EngineConfig(page_size=2, full_pages=48, swa_pages=16, sliding_window=5, max_running_requests=5, chunk_len=None),
    EngineConfig(page_size=4, full_pages=24, swa_pages=6, sliding_window=2, max_running_requests=4, chunk_len=8),
    EngineConfig(page_size=1, full_pages=90, swa_pages=0, sliding_window=None, max_running_requests=4, chunk_len=7),
    EngineConfig(
        page_size=4,
        full_pages=24,
        swa_pages=8,
        sliding_window=6,
        max_running_requests=4,
        chunk_len=8,
        host_full_pages=40,
        host_swa_pages=16,
        host_policy="write_back",
        load_back_threshold=1,
    ),
)


def traffic(random: Random) -> Iterator[Op]:
    """Submits that share prefixes, steps, and now and then something that disturbs."""
    for _ in range(OPS):
        coin = random.random()
        if coin < 0.28:
            path = tuple(random.choice((0, 0, 1)) for _ in range(random.randint(1, 5)))
            recipe = Recipe(path=path, stretch=random.choice((1, 3, 4, 8)), cut=random.randint(0, 3))
            yield Submit(recipe=recipe, max_new_tokens=random.choice((1, 2, 5, 20)))
        elif coin < 0.32:
            yield Abort(request=random.randint(0, 5))
        elif coin < 0.36:
            yield Pressure(pool=random.randint(0, 1), pages=random.choice((0, 2, 5)))
        else:
            yield Flush() if coin < 0.37 else Step()


def transitions(seed: int) -> Iterator[Transition]:
    """Up to the first in which the engine itself finds its books wrong."""
    random = Random(seed)
    system = EngineSystem(SwardenEngine(CONFIGS[seed % len(CONFIGS)]))
    before = system.capture()
    for op in traffic(random):
        try:
            system.do(op)
        except AccountingError:
            return
        when = When.STEP if isinstance(op, Step) else When.OP
        change = Transition(before, system.take_events(), system.capture(), when, system.reference)
        yield change
        before = change.after


def both_ways(change: Transition):
    """What is found, and what is counted, by judging everything and by judging what changed."""
    counted: tuple[Tally, Tally] = ({}, {})
    everything = ALL.check(change, counted[0])
    changed = ALL.check(replace(change, before_is_checked=True), counted[1])
    return (everything, counted[0]), (changed, counted[1])


def compared(seed: int) -> bool:
    """Compare run by run; True where it ended with something wrong."""
    changes = transitions(seed)
    if ALL.check(next(changes), {}):
        return True
    for change in changes:
        everything, changed = both_ways(change)
        assert changed == everything
        if everything[0]:
            return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_healthy_traffic_is_judged_alike(seed):
    assert not compared(seed)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_bug_is_judged_alike(mutant):
    with BY_ID[mutant].planted():
        found = [compared(seed) for seed in SEEDS]

    assert any(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_doctored_state_is_judged_alike(seed):
    """Each state with one number or one thing in it changed, while all else is the very same object."""
    random, found = Random(seed), 0

    for change in list(transitions(seed))[1:]:
        for _ in range(4):
            everything, changed = both_ways(replace(change, after=doctored(change.after, random)))
            assert changed == everything
            found += bool(everything[0])

    assert found > OPS


def doctored(healthy, random):
    part = random.choice(("nodes", "receipts", "records", "requests", "pools", "peer_maps", "counters"))
    if part == "counters":
        name = random.choice(("free", "evictable", "protected"))
        counted = dict(healthy.counters._asdict()[name])
        counted[random.choice(list(counted))] += random.choice((-1, 1))
        return replace(healthy, counters=healthy.counters._replace(**{name: counted}))
    things = list(vars(healthy)[part] or ())
    if things:
        index = random.randrange(len(things))
        if part == "pools":
            things[index] = replace(things[index], **nudged(vars(things[index]), random, ("free", "holdings")))
        elif random.random() < 0.15 and part != "peer_maps":
            del things[index]
        else:
            fields = things[index]._asdict()
            wanted = [name for name in fields if name not in ("owner", "holder", "namespace", "slots")]
            things[index] = things[index]._replace(**nudged(fields, random, wanted))
    return replace(healthy, **{part: tuple(things)})


def nudged(fields, random, names):
    """One field with one number in it changed, or with one thing too many or too few."""
    name = random.choice(names)
    return {name: nudge(fields[name], random)}


def nudge(value, random):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + random.choice((-4, -1, 1, 4))
    if isinstance(value, str) or not len(value):
        return value
    if hasattr(value, "_fields"):
        return value._replace(units=nudge(value.units, random))
    things, index = list(value), random.randrange(len(value))
    if len(things) > 2 and isinstance(things[index], int) and random.random() < 0.2:  # two is one per component
        del things[index]
    else:
        things[index] = nudge(things[index], random)
    return tuple(things) if isinstance(value, tuple) else things
