"""A repeated walk, which reuses unchanged views, gives the same views as a first walk."""

from dataclasses import replace
from random import Random

import pytest

from swarden.engine_under_test.host.copy_jobs import Move
from swarden.harness.core.ops import Inject
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.engines.own.memory_walk import MemoryWalk
from tests.quality.test_incremental_checks import CONFIGS, traffic

HOSTED = replace(CONFIGS[0], full_pages=24, host_full_pages=30, host_swa_pages=14, load_back_threshold=4)


def engine_after(ops, config=CONFIGS[0]):
    port = SwardenEngine(config)
    system = EngineSystem(port)
    for op in ops:
        system.do(op)
    return system, port._engine


def seen(engine, walk):
    walk.visit(engine.scheduler.custody.records, {}, (), engine.scheduler.loading.under_way)
    return walk.pools, walk.peer_maps, walk.nodes, walk.records, walk.receipts, walk.copy_jobs


def fresh(engine):
    return seen(engine, MemoryWalk(engine.memory, engine.cache.tree))


@pytest.mark.parametrize("seed", range(2))
def test_repeated_walk_shows_the_current_state(seed):
    ops = list(traffic(Random(seed)))
    system, engine = engine_after(ops[:1])
    walk = MemoryWalk(engine.memory, engine.cache.tree)

    for op in ops[1:]:
        system.do(op)
        assert seen(engine, walk) == fresh(engine)


def traffic_with_slow_copies(random):
    for op in traffic(random):
        yield op
        if random.random() < 0.2:
            yield Inject(fault="host.slow", count=4)


@pytest.mark.parametrize("seed", range(2))
def test_repeated_walk_shows_host_pages_and_transfers(seed):
    system, engine = engine_after([], HOSTED)
    walk, directions = MemoryWalk(engine.memory, engine.cache.tree), set()

    for op in traffic_with_slow_copies(Random(seed)):
        system.do(op)
        assert seen(engine, walk) == fresh(engine)
        directions.update([view.to_host for view in walk.copy_jobs or ()])

    assert directions == {True, False}


def corrupt_key(_engine, record):
    record.receipt.node.key[-1] += 1


def corrupt_handle(_engine, record):
    record.receipt.node.handles[-1] += 1


def corrupt_lock(_engine, record):
    record.receipt.node.locks[0] += 1


def corrupt_parent(engine, record):
    record.receipt.node.parent = engine.cache.tree.nowhere


def corrupt_peer(engine, record):
    engine.memory.ledgers.peers["swa"][record.receipt.node.handles[-1]] += 1


def corrupt_row(engine, record):
    engine.memory.table.write(record.row, 0, [9])


def corrupt_record(_engine, record):
    record.handles[-1] += 1


@pytest.mark.parametrize(
    "corrupt",
    [corrupt_key, corrupt_handle, corrupt_lock, corrupt_parent, corrupt_peer, corrupt_row, corrupt_record],
)
def test_in_place_corruption_of_the_device_is_visible(corrupt):
    _, engine = engine_after(list(traffic(Random(2)))[:60])
    walk = MemoryWalk(engine.memory, engine.cache.tree)
    before = seen(engine, walk)
    record = next(one for one in engine.scheduler.custody.records if one.receipt.node.start)

    corrupt(engine, record)

    assert seen(engine, walk) == fresh(engine)
    assert fresh(engine) != before


def corrupt_copy(node, _transfer):
    node.host.pages[0][-1] += 1


def corrupt_pin(node, _transfer):
    node.host.pins[0] += 1


def corrupt_transfer(_node, job):
    moves = next(filter(None, job.moves))
    place, move = max(moves.items())
    moves[place] = Move(move.on_device, move.on_host + 1)


def loading():
    """An engine with a load in flight."""
    system, engine = engine_after([], HOSTED)
    for op in traffic_with_slow_copies(Random(3)):
        system.do(op)
        loads = [job for job in engine.scheduler.loading.under_way if not job.to_host]
        if loads:
            return engine, loads[0]
    raise AssertionError("the traffic had no load")


@pytest.mark.parametrize("corrupt", [corrupt_copy, corrupt_pin, corrupt_transfer])
def test_in_place_corruption_of_the_host_tier_is_visible(corrupt):
    engine, load = loading()
    walk = MemoryWalk(engine.memory, engine.cache.tree)
    before = seen(engine, walk)

    corrupt(load.receipt.node, load)

    assert seen(engine, walk) == fresh(engine)
    assert fresh(engine) != before
