"""A release gives each request recurrent states, and copies one from the tree, or the host, for a prefix."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Accept, Drain, Flush, Op, Recipe, Step, Submit
from tests.engines.sglang.conftest import config_of, driver_of, laws_that_fail, port_of

RELEASE = "0.5.23"
CACHED = 2  # the op before which the prefix is cached
PREFIX = tuple(range(1, 20))
REUSE: tuple[Op, ...] = (
    Submit(tokens=PREFIX, max_new_tokens=2),
    Step(count=8),
    Submit(tokens=(*PREFIX, 30), max_new_tokens=2),
    Step(count=8),
    Drain(),
)


def laws_of_a_reuse(
    version: str, settings: dict[str, Any], plant: Callable[[Any, Any], None] | None = None
) -> set[str]:
    """The laws that fail when a prompt follows its own prefix; `plant` changes the memory when the prefix is cached."""

    def plant_in(port: Any) -> None:
        [node] = port.memory.tree.root_node.children.values()
        while node.children:
            [node] = node.children.values()
        if plant is not None:
            plant(port.memory, node.component_data[port.release.code("ComponentType").MAMBA])

    driver = driver_of(version, config_of(**{"state_slots": 12, "overlap": False, **settings}))
    return laws_that_fail(driver, REUSE, plant_in, CACHED)


def set_other_states(memory: Any, _: Any) -> None:
    memory.rows.mamba_pool.mamba_cache.temporal[:] += 1


def lock_the_state(_: Any, of_node: Any) -> None:
    of_node.lock_ref += 1


def miscount_the_states(memory: Any, _: Any) -> None:
    sizes = memory.tree.tree_core.component_evictable_size_
    sizes[max(sizes)] += 1


def leak_a_state(memory: Any, _: Any) -> None:
    memory.rows.mamba_allocator.free_slots = memory.rows.mamba_allocator.free_slots[1:]


@pytest.mark.parametrize("settings", [{}, {"sliding_window": None}], ids=["window", "no-window"])
def test_reuse_of_a_state_is_healthy(on_release, settings):
    assert on_release(RELEASE, laws_of_a_reuse, RELEASE, settings) == set()


@pytest.mark.parametrize(
    ("plant", "law"),
    [
        (set_other_states, "slots_hold_their_prefix"),
        (lock_the_state, "node_locks_match_receipts"),
        (miscount_the_states, "tree_counters_match_nodes"),
        (leak_a_state, "unit_has_one_owner"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_fault_of_a_state_is_found(on_release, plant, law):
    assert law in on_release(RELEASE, laws_of_a_reuse, RELEASE, {"sliding_window": None}, plant)


BUFFERS = {"overlap": True, "state_slots": 20, "chunk_len": 16, "state_strategy": "extra_buffer"}
PAGES = {"page_size": 4, "full_pages": 24, "swa_pages": 14}
WITH_BUFFERS: dict[str, dict[str, Any]] = {
    "one-buffer": {**BUFFERS, "overlap": False, "mixed_batches": True},
    "pages": {**BUFFERS, **PAGES, "sliding_window": None},
    "pages-and-window": {**BUFFERS, **PAGES},
    "lazy": {**BUFFERS, **PAGES, "sliding_window": None, "state_strategy": "extra_buffer_lazy"},
}


@pytest.mark.parametrize("settings", WITH_BUFFERS.values(), ids=WITH_BUFFERS)
def test_reuse_of_a_state_that_a_request_has_tracked_is_healthy(on_release, settings):
    assert on_release(RELEASE, laws_of_a_reuse, RELEASE, settings) == set()


def test_tracked_state_that_was_overwritten_is_reported(on_release):
    assert "slots_hold_their_prefix" in on_release(
        RELEASE, laws_of_a_reuse, RELEASE, WITH_BUFFERS["pages"], set_other_states
    )


NO_BUFFER: dict[str, Any] = {"state_slots": 12, "overlap": False, "sliding_window": None}
DRAFTED: tuple[Op, ...] = (
    Accept(lengths=(2, 0, 3)),
    Submit(tokens=PREFIX, max_new_tokens=9),
    Submit(tokens=(*PREFIX, 20), max_new_tokens=14),
    Step(count=12),
    Submit(recipe=Recipe(continues=1), max_new_tokens=9),
    Drain(),
)


def laws_with_drafts(version: str, settings: dict[str, Any], track_early: bool = False) -> set[str]:
    """The laws that fail with drafts of which some are right; with `track_early` the release tracks one state early."""
    driver = driver_of(version, config_of(draft_len=3, **settings))
    names = vars(sys.modules[port_of(driver).release.code("commit_states").__module__])
    steps = names["_verify_commit_step_indices"]

    def one_early(**named: Any) -> Any:
        last, tracked = steps(**named)
        return last, tracked if tracked is None else (tracked - 1).clamp(min=-1)

    with pytest.MonkeyPatch.context() as changed:
        if track_early:
            changed.setitem(names, "_verify_commit_step_indices", one_early)
        return laws_that_fail(driver, DRAFTED)


@pytest.mark.parametrize("settings", [*WITH_BUFFERS.values(), NO_BUFFER], ids=[*WITH_BUFFERS, "no-buffer"])
def test_states_after_accepted_drafts_are_healthy(on_release, settings):
    assert on_release(RELEASE, laws_with_drafts, RELEASE, {**settings, "mixed_batches": False}) == set()


def test_state_that_is_tracked_before_its_draft_is_found(on_release):
    assert "slots_hold_their_prefix" in on_release(RELEASE, laws_with_drafts, RELEASE, WITH_BUFFERS["pages"], True)


def test_drafts_of_a_pass_are_at_most_those_between_two_tracked_states():
    with pytest.raises(InvalidConfig, match="state_interval is 8, want more than draft_len 8"):
        config_of(draft_len=8, **WITH_BUFFERS["pages"])


def test_release_without_states_after_drafts_refuses_them():
    release: Any = SimpleNamespace(text="0.5.14", has=lambda feature: feature != "states_after_drafts")
    config = config_of(draft_len=3, mixed_batches=False, **NO_BUFFER)

    with pytest.raises(InvalidConfig, match=r"draft_len is set with state_slots, want null for sglang 0\.5\.14"):
        config.drafts.check_release(config, release)


def states_loaded(version: str, settings: dict[str, Any]) -> tuple[int, set[str]]:
    """How many states are loaded from the host for a prefix that the device has lost, and the laws that fail."""
    driver, loaded = driver_of(version, config_of(host_ratio=2.0, load_back_threshold=1, **settings)), list[bool]()
    forward: Any = port_of(driver).forward
    copied = forward.notice_copied

    def noted(component: int, slots: Any, owner: Any) -> None:
        loaded.append(component == len(forward.tags))
        copied(component, slots, owner)

    forward.notice_copied = noted
    failed = laws_that_fail(driver, (*REUSE[:CACHED], Flush(), *REUSE[CACHED:]))
    return sum(loaded), failed


@pytest.mark.parametrize(
    "settings",
    [*WITH_BUFFERS.values(), NO_BUFFER],
    ids=[*WITH_BUFFERS, "no-buffer"],
)
def test_a_state_is_loaded_from_the_host(on_release, settings):
    """The state is loaded twice: to the node, and to the request that computes from it."""
    loaded, failed = on_release(RELEASE, states_loaded, RELEASE, settings)

    assert (loaded, failed) == (2, set())
