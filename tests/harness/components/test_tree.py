"""The prefix cache alone: the effect of each op, compared with the naive model."""

from random import Random

import pytest

from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.config import EngineConfig
from swarden.harness.components.tree.system import TreeSystem
from swarden.harness.core.driver import Driver, KeptParts
from swarden.harness.core.ops import Drain, Evict, Flush, Insert, Lock, Pressure, Recipe, Slide, Step, Unlock
from swarden.invariants.events import Matched, Modelled, Recovered, Slid
from tests.harness.components.playing import configurations, disagreements, name_of, num_free, tree_op

# A window of 6 tokens looks back on 5, so the tail of a prefix is 2 pages.
CONFIG = EngineConfig(page_size=4, full_pages=16, swa_pages=10, sliding_window=6, max_running_requests=2)
FULL_ONLY = EngineConfig(page_size=4, full_pages=16)
UNSHARED = EngineConfig(page_size=4, full_pages=16, prefix_sharing=False)


def prompt(pages, *, branch=0):
    """A recipe of whole pages of 4 tokens; branches differ in the last page."""
    return Recipe((*[0] * (pages - 1), branch))


def after(*ops, config=CONFIG):
    """A system after these ops; its events are taken."""
    system = TreeSystem(config)
    for op in ops:
        system.do(op)
    assert disagreements(system) == []
    return system


def nodes(system):
    """Per node its tokens, its pages per pool, and its locks."""
    return [
        (node.start, node.end, [list(units) for units in node.units], list(node.locks))
        for node in system.capture().nodes
    ]


def events(system, kind):
    return [event for event in system.take_events() if isinstance(event, kind)]


def test_tail_of_an_insertion_is_a_separate_node():
    """5 pages: 3 outside of the window at the end, and 2 inside."""
    system = after(Insert(recipe=prompt(5)))

    assert nodes(system) == [
        (0, 12, [[16, 15, 14], [10, 9, 8]], [0, 0]),
        (12, 20, [[13, 12], [7, 6]], [0, 0]),
    ]


def test_insertion_of_a_cached_prefix_frees_its_duplicate_pages():
    """All pages but the last match. The last page is computed again, so it is a duplicate."""
    system = after(Insert(recipe=prompt(5)))
    before = nodes(system)

    system.do(Insert(recipe=prompt(5)))

    assert [(event.length, len(event.pages)) for event in events(system, Matched)] == [(16, 4)]
    assert [node[:3] for node in nodes(system)] == [
        (0, 8, [[16, 15], [10, 9]]),
        (8, 12, [[14], [8]]),
        (12, 16, [[13], [7]]),
        (16, 20, [[12], [6]]),
    ]
    assert num_free(system.capture()) == {"full": 11, "swa": 5, "rows": 2}
    assert len(before) == 2


def test_dead_pages_are_published_as_a_tombstone():
    system = after(Insert(recipe=prompt(5), dead=3))

    assert nodes(system) == [
        (0, 12, [[16, 15, 14], [0, 0, 0]], [0, 0]),
        (12, 20, [[13, 12], [7, 6]], [0, 0]),
    ]


def test_insertion_is_cut_to_the_available_pages():
    system = after(Insert(recipe=prompt(12)))

    assert [(start, end) for start, end, _, _ in nodes(system)] == [(0, 32), (32, 40)]


def test_insertion_evicts_the_pages_that_it_needs():
    """A prefix of another namespace takes all of the swa pool."""
    system = after(Insert(recipe=prompt(10)), Insert(recipe=prompt(10), namespace=1))

    assert num_free(system.capture()) == {"full": 6, "swa": 0, "rows": 2}


def test_tombstone_becomes_live_with_the_incoming_pages():
    """The 3 tombstones end the match, so all 5 pages are new. The pages of the 2 live ones are duplicates."""
    system = after(Insert(recipe=prompt(5), dead=3))

    system.do(Insert(recipe=prompt(5)))

    assert [event.locked for event in events(system, Recovered)] == [False]
    assert nodes(system) == [
        (0, 12, [[11, 10, 9], [8, 9, 10]], [0, 0]),
        (12, 20, [[13, 12], [7, 6]], [0, 0]),
    ]


def test_locked_tombstone_keeps_its_pages_and_takes_over_the_peers():
    """Freeing the pages of a locked node is a use after free for its reader (sglang pull 29352)."""
    system = after(Insert(recipe=prompt(5), dead=3), Lock(recipe=prompt(6)))

    system.do(Insert(recipe=prompt(5)))

    assert [event.locked for event in events(system, Recovered)] == [True]
    assert nodes(system) == [
        (0, 12, [[16, 15, 14], [8, 9, 10]], [1, 0]),
        (12, 20, [[13, 12], [7, 6]], [1, 1]),
    ]


def test_lock_covers_the_whole_prefix_in_full_and_its_tail_in_swa():
    """16 tokens match; the start of the window is the start of a node."""
    system = after(Insert(recipe=prompt(5)), Lock(recipe=prompt(5)))

    assert [(start, end, locks) for start, end, _, locks in nodes(system)] == [
        (0, 8, [1, 0]),
        (8, 12, [1, 1]),
        (12, 16, [1, 1]),
        (16, 20, [0, 0]),
    ]


def test_slid_lock_releases_the_pages_below():
    system = after(Insert(recipe=prompt(5)), Lock(recipe=prompt(5)))

    system.do(Slide(page=3))

    assert events(system, Slid) == [Slid(2, 0, 12)]
    assert [locks for _, _, _, locks in nodes(system)] == [[1, 0], [1, 0], [1, 1], [0, 0]]


def test_unlocked_prefix_can_be_evicted():
    system = after(Insert(recipe=prompt(5)), Lock(recipe=prompt(5)), Flush(), Unlock())
    protected = [(start, end) for start, end, _, _ in nodes(system)]

    system.do(Flush())

    assert protected == [(0, 8), (8, 12), (12, 16)]
    assert nodes(system) == []


def test_windowed_pool_evicts_its_interior_first():
    """The first prefix is less recently used, but a match needs its tail."""
    system = after(Insert(recipe=prompt(2)), Insert(recipe=prompt(5), namespace=1), Evict(need=(0, 1)))

    assert [(start, end, units[1]) for start, end, units, _ in nodes(system)] == [
        (0, 8, [10, 9]),
        (0, 12, [0, 0, 0]),
        (12, 20, [5, 4]),
    ]


@pytest.mark.parametrize(
    ("config", "op", "freed"),
    [
        pytest.param(CONFIG, Evict(need=(1, 0)), {"full": 2, "swa": 2, "rows": 0}, id="the-oldest-branch"),
        pytest.param(CONFIG, Evict(need=(0, 3)), {"full": 2, "swa": 4, "rows": 0}, id="oldest-branch-for-its-window"),
        pytest.param(FULL_ONLY, Evict(need=(1,)), {"full": 2, "rows": 0}, id="full-only"),
    ],
)
def test_eviction_removes_whole_nodes_least_recently_used_first(config, op, freed):
    """A prefix of 2 pages, then one of 4: 2 before its tail."""
    system = after(Insert(recipe=prompt(2)), Insert(recipe=prompt(4), namespace=1), config=config)
    before = num_free(system.capture())

    system.do(op)

    assert {pool: count - before[pool] for pool, count in num_free(system.capture()).items()} == freed


@pytest.mark.parametrize(
    ("page_size", "window", "length", "dead", "frontier"),
    [
        pytest.param(64, 128, 1023, 14, 832, id="window-above-page"),
        pytest.param(64, 33, 127, 3, 0, id="the-only-page-is-kept"),
        pytest.param(64, 33, 160, 3, 64, id="page-above-window"),
    ],
)
def test_insertion_keeps_the_window_at_its_end(page_size, window, length, dead, frontier):
    """The last published page is live, also if it is larger than the window."""
    config = EngineConfig(page_size=page_size, full_pages=20, swa_pages=20, sliding_window=window)
    system = after(Insert(recipe=Recipe(stretch=length), dead=dead), config=config)

    units = [unit for node in system.capture().nodes for unit in node.units[1]]

    assert units.count(0) * page_size == frontier
    assert len(units) == length // page_size


def test_cache_without_sharing_keeps_no_page():
    system = after(Insert(recipe=prompt(5)), config=UNSHARED)

    assert nodes(system) == []
    assert num_free(system.capture()) == {"full": 16, "rows": 16}


@pytest.mark.parametrize(
    ("config", "ops"),
    [
        pytest.param(CONFIG, [Step()], id="unknown-op"),
        pytest.param(CONFIG, [Insert(recipe=Recipe(stretch=3))], id="less-than-a-page"),
        pytest.param(CONFIG, [Pressure(pages=16), Insert()], id="no-free-page"),
        pytest.param(CONFIG, [Lock(), Lock(), Lock()], id="no-row"),
        pytest.param(CONFIG, [Unlock()], id="nothing-to-unlock"),
        pytest.param(CONFIG, [Slide(page=1)], id="nothing-to-slide"),
        pytest.param(CONFIG, [Lock(), Slide(page=1)], id="lock-without-pages"),
        pytest.param(FULL_ONLY, [Insert(recipe=prompt(3)), Lock(recipe=prompt(3)), Slide(page=2)], id="no-window"),
        pytest.param(CONFIG, [Evict(need=(1, 1))], id="nothing-to-evict"),
        pytest.param(CONFIG, [Insert(), Evict(need=(0,))], id="no-need"),
        pytest.param(CONFIG, [Flush()], id="nothing-to-flush"),
        pytest.param(CONFIG, [Pressure()], id="no-pressure"),
    ],
)
def test_op_without_an_effect_is_a_no_op(config, ops):
    system = after(*ops[:-1], Pressure(pool=1), config=config)
    before = system.capture()

    worked = system.do(ops[-1])

    assert not worked
    assert (system.capture().pools, system.capture().nodes) == (before.pools, before.nodes)


def test_cache_that_differs_from_the_model_is_reported(monkeypatch):
    """The patched tree marks no node as live."""
    system = TreeSystem(FULL_ONLY)
    monkeypatch.setattr(RadixTree, "set_live", lambda *_, **__: None)

    system.do(Insert())

    assert [event.what for event in disagreements(system)] == [
        "pages after insert",
        "full: evictable and protected after insert",
    ]


def test_every_op_is_compared_with_the_model():
    system = TreeSystem(FULL_ONLY)

    system.do(Flush())

    assert events(system, Modelled) == [
        Modelled("pages after flush", [], []),
        Modelled("full: evictable and protected after flush", (0, 0), (0, 0)),
        Modelled("full: free after flush", [], []),
    ]


@pytest.mark.parametrize("config", list(configurations()), ids=name_of)
def test_random_traffic_agrees_with_the_model_and_drains(config):
    rng, driver = Random(name_of(config)), Driver([TreeSystem(config)], keep=KeptParts(digests=False))

    for _ in range(300):
        driver.apply(tree_op(rng))
    driver.apply(Drain())

    assert driver.failure is None
    assert driver.counts.tally["part_matches_its_model"].evaluated == 301
    free = num_free(driver.snapshot())
    assert free == {pool.name: pool.num_pages for pool in config.pools} | {"rows": config.max_running_requests}
