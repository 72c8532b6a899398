"""A walk that remembers shows what one that sees everything for the first time does."""

from random import Random

import pytest

from harness.engines.memory_walk import MemoryWalk
from harness.engines.swarden import SwardenEngine
from harness.engines.system import EngineSystem
from tests.quality.test_incremental_checks import CONFIGS, traffic


def engine_after(ops):
    port = SwardenEngine(CONFIGS[0])
    system = EngineSystem(port)
    for op in ops:
        system.do(op)
    return system, port._engine


def seen(engine, walk):
    walk.visit(engine.scheduler.custody.records, {})
    return walk.pools, walk.peer_maps, walk.nodes, walk.records, walk.receipts


def fresh(engine):
    return seen(engine, MemoryWalk(engine.memory, engine.cache.tree))


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_that_remembers_shows_what_is_there(seed):
    ops = list(traffic(Random(seed)))
    system, engine = engine_after(ops[:1])
    walk = MemoryWalk(engine.memory, engine.cache.tree)

    for op in ops[1:]:
        system.do(op)
        assert seen(engine, walk) == fresh(engine)


def corrupt_key(_engine, record):
    record.receipt.node.key[-1] += 1


def corrupt_handle(_engine, record):
    record.receipt.node.handles[-1] += 1


def corrupt_lock(_engine, record):
    record.receipt.node.locks[0] += 1


def corrupt_way_up(engine, record):
    record.receipt.node.parent = engine.cache.tree.nowhere


def corrupt_peer(engine, record):
    engine.memory.ledgers.peers["swa"][record.receipt.node.handles[-1]] += 1


def corrupt_row(engine, record):
    engine.memory.table.write(record.row, 0, [9])


def corrupt_record(_engine, record):
    record.handles[-1] += 1


@pytest.mark.parametrize(
    "corrupt",
    [corrupt_key, corrupt_handle, corrupt_lock, corrupt_way_up, corrupt_peer, corrupt_row, corrupt_record],
)
def test_what_is_corrupted_in_place_behind_everybodys_back_shows(corrupt):
    _, engine = engine_after(list(traffic(Random(2)))[:60])
    walk = MemoryWalk(engine.memory, engine.cache.tree)
    before = seen(engine, walk)
    record = next(one for one in engine.scheduler.custody.records if one.receipt.node.start)

    corrupt(engine, record)

    assert seen(engine, walk) == fresh(engine)
    assert fresh(engine) != before
