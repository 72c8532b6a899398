"""A model with full attention alone has the tree of its release; a prefix that the host keeps is loaded back."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock

import pytest

from swarden.harness.core.ops import Drain, Flush, Op, Step, Submit
from swarden.harness.core.target import ENGINE
from swarden.harness.engines.sglang.config import NO_TREE
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL
from swarden.harness.engines.sglang.target import SGLANG, SglangTarget
from swarden.invariants.events import CopiedIn, Filled
from tests.engines.sglang.conftest import RELEASES, config_of, driver_of, host_of, laws_that_fail, port_of

OF_RADIX_CACHE, OF_UNIFIED_TREE = RELEASES
BEFORE_AND_AFTER = ("0.5.18", "0.5.19")  # the last release with RadixCache, and the first without
WITH_SELECTION = [version for version in (*BEFORE_AND_AFTER, RELEASES[-1]) if version in SGLANG.installed()]
TREES = ("ChunkCache", "SWAChunkCache", "RadixCache", "HiRadixCache", "UnifiedRadixCache")
EVICTED = 3  # the op before which the prefix is on the host alone
PREFIX = tuple(range(1, 33))
RETURN: tuple[Op, ...] = (
    Submit(tokens=PREFIX, max_new_tokens=2),
    Step(count=9),
    Flush(),
    Submit(tokens=(*PREFIX, 40), max_new_tokens=2),
    Step(count=9),
    Drain(),
)


def return_of_a_prefix(
    version: str, settings: dict[str, Any], plant: Callable[[Any], None] | None = None
) -> tuple[str, int, set[str]]:
    """The class of the tree, the pages that were loaded, and the laws that fail, when an evicted prefix comes again."""
    loaded = set[int]()
    driver = driver_of(
        version,
        config_of(sliding_window=None, **settings),
        observe=lambda change: loaded.update(*(event.units for event in change.events_of(CopiedIn))),
    )
    failed, port = laws_that_fail(driver, RETURN, plant, EVICTED), port_of(driver)
    return type(port.memory.tree).__name__, len(loaded), failed


def transfer_of_a_prompt(version: str) -> tuple[int, set[str]]:
    """The number of pages that a decode side gets of a prompt in several chunks, and the laws that fail."""
    pages, submit = set[int](), Submit(tokens=PREFIX, max_new_tokens=4)
    driver = driver_of(
        version,
        *[config_of(sliding_window=None, page_size=4, role=role) for role in (PREFILL, DECODE)],
        observe=lambda change: pages.update(*(event.pages for event in change.events_of(Filled))),
    )
    failed = laws_that_fail(driver, (submit, Step(engine=1), Step(count=6), Step(engine=1, count=6), Drain()))
    return len(pages), failed


def tree_of_a_server(version: str, settings: dict[str, Any]) -> tuple[str, ...]:
    """The class of the engine's tree, and the class that the release's own selection makes of these settings."""
    config, target = config_of(**settings), SglangTarget(version)
    systems: Any = target.systems(ENGINE, [config], "")
    built, release = systems[0].port.built, target.booted_for(config)
    made = list[str]()

    def make(name: str, *_: Any, **__: Any) -> MagicMock:
        made.append(name)
        return MagicMock()

    context = MagicMock(
        server_args=built.scheduler.server_args,
        is_hybrid_swa=config.sliding_window is not None,
        is_hybrid_ssm=False,
        is_dsa=False,
        enable_hierarchical_cache=config.host.is_on,
        disable_radix_cache=not config.caches_prefixes,
        effective_chunked_prefill_size=config.chunk_len,
        full_tokens_per_layer=config.full_pages,
    )
    with pytest.MonkeyPatch.context() as changed:
        for name in TREES:
            if (kind := release.code(name)) is not None:
                changed.setattr(import_module(kind.__module__), name, partial(make, name))
        import_module("sglang.srt.mem_cache.registry").default_radix_cache_factory(context)
    return type(built.memory.tree).__name__, *made


def load_other_pages(port: Any) -> None:
    [pool] = host_of(port)._copies.pools
    load = pool.load_to_device_per_layer
    pool.load_to_device_per_layer = lambda kind, host, *more, **options: load(kind, host.roll(4), *more, **options)


def lock_nothing(port: Any) -> None:
    tree = port.built.memory.tree
    tree.inc_lock_ref = lambda _node: type(tree).inc_lock_ref(tree, tree.root_node)


def leak_a_host_page(port: Any) -> None:
    [pool] = host_of(port)._copies.pools
    pool.free_slots = pool.free_slots[4:]


def pin_a_host_page(port: Any) -> None:
    [node] = port.built.memory.tree.root_node.children.values()
    node.host_ref_counter += 1


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize(
    ("release", "tree", "tree_with_host"),
    [(OF_RADIX_CACHE, "RadixCache", "HiRadixCache"), (OF_UNIFIED_TREE, "UnifiedRadixCache", "UnifiedRadixCache")],
)
def test_evicted_prefix_is_loaded_from_the_host(on_release, release, tree, tree_with_host, page_size):
    settings = {"page_size": page_size}

    assert on_release(release, return_of_a_prefix, release, settings) == (tree, 0, set())
    assert on_release(release, return_of_a_prefix, release, {**settings, "host_ratio": 1.0}) == (
        tree_with_host,
        len(PREFIX) // page_size,
        set(),
    )


@pytest.mark.parametrize(("release", "tree"), [(OF_RADIX_CACHE, "ChunkCache"), (OF_UNIFIED_TREE, "UnifiedRadixCache")])
def test_prefix_is_computed_again_without_a_prefix_cache(on_release, release, tree):
    assert on_release(release, return_of_a_prefix, release, {"tree": NO_TREE}) == (tree, 0, set())


@pytest.mark.parametrize("version", WITH_SELECTION)
@pytest.mark.parametrize(
    "settings",
    [
        {"sliding_window": None},
        {"sliding_window": None, "host_ratio": 1.0},
        {"sliding_window": None, "tree": NO_TREE},
        {"host_ratio": 1.0},
        {"tree": NO_TREE},
    ],
    ids=str,
)
def test_tree_is_that_of_a_server(on_release, version, settings):
    """Of the releases that are installed; a window alone, or states alone, have an older tree to 0.5.20."""
    tree, of_a_server = on_release(version, tree_of_a_server, version, settings)

    assert tree == of_a_server


@pytest.mark.parametrize(
    ("plant", "law"),
    [
        (load_other_pages, "slots_hold_their_prefix"),
        (lock_nothing, "node_locks_match_receipts"),
        (leak_a_host_page, "unit_has_one_owner"),
        (pin_a_host_page, "drained_engine_is_empty"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_bug_of_the_radix_cache_is_found(on_release, plant, law):
    settings = {"page_size": 4, "host_ratio": 1.0}

    assert law in on_release(OF_RADIX_CACHE, return_of_a_prefix, OF_RADIX_CACHE, settings, plant)[-1]


def test_decode_side_gets_all_pages_of_a_prompt(on_release, release):
    assert on_release(release, transfer_of_a_prompt, release) == (len(PREFIX) // 4, set())
