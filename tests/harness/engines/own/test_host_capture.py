"""The host tier in a snapshot: pools, copies, pins, and jobs with their requests."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.ops import Inject, Recipe, Step, Submit
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.engines.own.limits import limits_of
from swarden.invariants.events import Owner

WITHOUT_HOST = EngineConfig(page_size=4, full_pages=32, swa_pages=8, sliding_window=6, max_running_requests=4)
CONFIG = replace(WITHOUT_HOST, host_full_pages=32, host_swa_pages=8, load_back_threshold=1)
SUBMIT = Submit(recipe=Recipe(path=(0, 1, 2)), max_new_tokens=1)
SLOW = Inject(fault="host.slow", count=100)


def after(*ops, config=CONFIG):
    """A system after these ops."""
    system = EngineSystem(SwardenEngine(config))
    return done(system, *ops)


def done(system, *ops):
    for op in ops:
        system.do(op)
    return system


def demoted():
    """A system with cached pages on the host only."""
    system = after(SUBMIT, *[Step()] * 4)
    cache = system.port.engine.cache
    cache.evict({pool: cache.evictable(pool) for pool in ("full", "swa")})
    return system


def held_by(snapshot, pool, owner):
    return [unit for holding in snapshot.pool(pool).holdings if holding.owner == owner for unit in holding.units]


def test_snapshot_without_a_host_has_no_host_pools():
    snapshot = after(SUBMIT, Step(), config=WITHOUT_HOST).capture()

    assert (snapshot.copy_jobs, list(snapshot.host_pools)) == (None, [])
    assert {node.copies for node in snapshot.nodes} == {()}


def test_pools_of_the_host_are_between_those_of_the_device_and_the_rows():
    snapshot = after().capture()

    assert (snapshot.copy_jobs, list(snapshot.host_pools)) == ((), ["host full", "host swa"])
    assert [(pool.name, pool.unit, pool.capacity) for pool in snapshot.pools] == [
        ("full", "page", 32),
        ("swa", "page", 8),
        ("host full", "page", 32),
        ("host swa", "page", 8),
        ("rows", "row", 4),
    ]


def test_backup_in_flight_owns_its_target_and_locks_its_source():
    snapshot = after(SUBMIT, SLOW, *[Step()] * 3).capture()
    [view] = snapshot.copy_jobs
    receipt = snapshot.receipt_by_id[view.receipt]
    node = snapshot.node_by_id[receipt.node]

    assert (view.to_host, receipt.holder, node.copies) == (True, Owner("backup", view.id), ([], []))
    for component, pool in enumerate(("full", "swa")):
        assert set(node.units[component]) <= set(view.here[component])
        assert held_by(snapshot, f"host {pool}", receipt.holder) == view.there[component]


def test_request_waiting_for_a_load_is_loading_and_names_it():
    snapshot = done(demoted(), SUBMIT, SLOW, Step()).capture()

    assert [(request.place, request.awaits) for request in snapshot.requests] == [
        ("loading", view.id) for view in snapshot.copy_jobs
    ]


@pytest.mark.parametrize(
    ("config", "load_back_threshold", "writes_back"),
    [
        pytest.param(replace(WITHOUT_HOST, host_policy="write_back"), None, False, id="no-host"),
        pytest.param(CONFIG, 1, False, id="write-through"),
        pytest.param(replace(CONFIG, host_policy="write_through_selective"), 1, False, id="write-through-selective"),
        pytest.param(replace(CONFIG, host_policy="write_back", load_back_threshold=9), 9, True, id="write-back"),
    ],
)
def test_limits_have_the_load_threshold_and_the_write_policy(config, load_back_threshold, writes_back):
    limits = limits_of(config)

    assert (limits.load_back_threshold, limits.writes_back) == (load_back_threshold, writes_back)
