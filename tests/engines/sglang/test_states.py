"""A release gives each request a recurrent state, and copies one from the tree for a prefix that it reuses."""

from collections.abc import Callable
from typing import Any

import pytest

from swarden.harness.core.driver import Checking, Driver
from swarden.harness.core.ops import Drain, Op, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import ENGINE
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.invariants.catalog import catalog_of

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


def laws_that_fail(version: str, settings: dict[str, Any], plant: Callable[[Any, Any], None] | None = None) -> set[str]:
    """The laws that fail when a prompt follows its own prefix; `plant` changes the memory when the prefix is cached."""
    target: Any = target_of(f"sglang=={version}")
    systems: Any = target.systems(ENGINE, [SglangConfig(state_slots=12, overlap=False, **settings)], "")
    driver = Driver(systems, checking=Checking(catalog_of(target.contracts), code=target.code))
    for index, op in enumerate(REUSE):
        if index == CACHED and plant is not None:
            memory, kind = systems[0].port.built.memory, target.booted().part("ComponentType").MAMBA
            [node] = memory.tree.root_node.children.values()
            while node.children:
                [node] = node.children.values()
            plant(memory, node.component_data[kind])
        if driver.failure is None:
            driver.apply(op)
    return {print_.split("/")[0] for print_ in driver.failure.fingerprints} if driver.failure is not None else set()


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
    assert on_release(RELEASE, laws_that_fail, RELEASE, settings) == set()


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
def test_a_planted_fault_of_a_state_is_told(on_release, plant, law):
    assert law in on_release(RELEASE, laws_that_fail, RELEASE, {"sliding_window": None}, plant)
