"""The incremental check of changed parts finds the same violations as the full check.

Compared on healthy traffic, with planted bugs, and on corrupted snapshots, whose pools follow each other.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import AccountingError
from swarden.harness.core.ops import Abort, Flush, Op, Pressure, Recipe, Step, Submit
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.invariants.catalog import ALL, Tally
from swarden.invariants.following import Following, Peers, Units
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot

SEEDS = range(10)  # two of each configuration
OPS = 90
MOST_UNCHECKED = 5  # transitions
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


@pytest.fixture(autouse=True)
def pools_are_followed(monkeypatch):
    monkeypatch.setattr(Following, "LEAST", 0)


def whole(state: Snapshot) -> Snapshot:
    """The state with pools and peers that follow none."""
    pools = [replace(pool, free=[*pool.free]) for pool in state.pools]
    peer_maps = [one._replace(peers=[*one.peers]) for one in state.peer_maps or ()]
    return replace(state, pools=tuple(pools), peer_maps=tuple(peer_maps))


def following(before: Snapshot, after: Snapshot) -> Snapshot:
    """The state `after` with free lists and peers that follow those of `before`."""
    pools, maps = list(after.pools), list(after.peer_maps or ())
    for index, (was, now) in enumerate(zip(before.pools, pools, strict=True)):
        if now is not was and isinstance(was.free, Units):
            pools[index] = replace(now, free=was.free.following(0, 0, now.free))
    for index, (old, new) in enumerate(zip(before.peer_maps or (), maps, strict=True)):
        if new is not old and isinstance(old.peers, Peers) and len(old.peers) == len(new.peers):
            maps[index] = new._replace(peers=old.peers.following(dict(enumerate(new.peers))))
    return replace(after, pools=tuple(pools), peer_maps=tuple(maps))


def traffic(random: Random) -> Iterator[Op]:
    """Steps, submits with shared prefixes, and sometimes an abort, pressure or a flush."""
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
    """The transitions of a run, up to the first AccountingError of the engine."""
    random = Random(seed)
    system = EngineSystem(SwardenEngine(CONFIGS[seed % len(CONFIGS)]))
    before = system.capture()
    for op in traffic(random):
        try:
            system.do(op)
        except AccountingError:
            return
        when = When.STEP if isinstance(op, Step) else When.OP
        after = system.capture()
        change = Transition(before, system.take_events(), after, when, system.reference)
        yield change
        before = change.after


def check_both_ways(change: Transition, checked: Snapshot):
    """The violations and counts of a full check, and those of an incremental check after the state `checked`."""
    tallies = Tally(), Tally()
    full = ALL.check(replace(change, before=whole(change.before), after=whole(change.after)), tallies[0])
    incremental = ALL.check(replace(change, checked=checked), tallies[1])
    return (full, tallies[0]), (incremental, tallies[1])


def ends_with_a_violation(seed: int) -> bool:
    """Compare both checks for each transition of a run; true if the run ends with a violation.

    The incremental check begins at one of the last states, as if the transitions since had not been checked.
    """
    random, clean, changes = Random(seed), deque[Snapshot](maxlen=MOST_UNCHECKED), transitions(seed)
    if ALL.check(next(changes), Tally()):
        return True
    for change in changes:
        clean.append(change.before)
        full, incremental = check_both_ways(change, random.choice(clean))
        assert incremental == full
        if full[0]:
            return True
    return False


@pytest.mark.parametrize("seed", SEEDS)
def test_incremental_check_finds_no_violation_in_healthy_traffic(seed):
    assert not ends_with_a_violation(seed)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_incremental_check_finds_the_violations_of_a_planted_bug(mutant):
    with BY_ID[mutant].planted():
        found = [ends_with_a_violation(seed) for seed in SEEDS]

    assert any(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_incremental_check_finds_the_violations_of_a_corrupted_snapshot(seed):
    """One number or one item is changed; all other parts are the same objects as before."""
    random, found = Random(seed), 0

    for change in list(transitions(seed))[1:]:
        for _ in range(4):
            after = following(change.before, corrupted(change.after, random))
            full, incremental = check_both_ways(replace(change, after=after), change.before)
            assert incremental == full
            found += bool(full[0])

    assert found > OPS


def corrupted(healthy, random):
    """The snapshot with one random change."""
    part = random.choice(("nodes", "receipts", "records", "requests", "pools", "peer_maps", "counters"))
    if part == "counters":
        name = random.choice(("free", "evictable", "protected"))
        counted = dict(healthy.counters._asdict()[name])
        counted[random.choice(list(counted))] += random.choice((-1, 1))
        return replace(healthy, counters=healthy.counters._replace(**{name: counted}))
    items = list(vars(healthy)[part] or ())
    if items:
        index = random.randrange(len(items))
        if part == "pools":
            items[index] = replace(items[index], **nudged(vars(items[index]), random, ("free", "holdings")))
        elif random.random() < 0.15 and part != "peer_maps":
            del items[index]
        else:
            fields = items[index]._asdict()
            wanted = [name for name in fields if name not in ("owner", "holder", "namespace", "slots")]
            items[index] = items[index]._replace(**nudged(fields, random, wanted))
    return replace(healthy, **{part: tuple(items)})


def nudged(fields, random, names):
    """One of these fields, with one number changed or one item removed."""
    name = random.choice(names)
    return {name: nudge(fields[name], random)}


def nudge(value, random):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + random.choice((-4, -1, 1, 4))
    if value is None or isinstance(value, str) or not len(value):
        return value
    if hasattr(value, "_fields"):
        return value._replace(units=nudge(value.units, random))
    items, index = list(value), random.randrange(len(value))
    if len(items) > 2 and isinstance(items[index], int) and random.random() < 0.2:  # two is one per component
        del items[index]
    else:
        items[index] = nudge(items[index], random)
    return tuple(items) if isinstance(value, tuple) else items
