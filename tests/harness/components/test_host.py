"""The host tier alone: the effect of each op, and random ops that violate no invariant."""

from dataclasses import replace
from random import Random

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.components.host.system import HostSystem
from swarden.harness.core.driver import Driver
from swarden.harness.core.ops import (
    Ack,
    Drain,
    Evict,
    Fetch,
    Heal,
    Inject,
    Insert,
    Lock,
    Pressure,
    Recipe,
    Step,
    Unlock,
)
from swarden.invariants.events import Copied, CopyBegan, CopyEnded, Demoted, Modelled

CONFIG = EngineConfig(
    page_size=4,
    full_pages=16,
    swa_pages=10,
    sliding_window=6,
    max_running_requests=2,
    host_full_pages=32,
    host_swa_pages=20,
    load_back_threshold=1,
)
STATES = replace(CONFIG, swa_pages=0, sliding_window=None, host_swa_pages=0, state_pages=8, host_state_pages=8)
WITHOUT_HOST = EngineConfig(page_size=4, full_pages=16)
WRITES_BACK = EngineConfig(page_size=4, full_pages=16, host_full_pages=8, host_policy="write_back")
PROMPT = Recipe((0,) * 6)
OTHER = Recipe((1,) * 6)
LONGER = Recipe((0,) * 7)
BACKED_UP = (Insert(recipe=PROMPT), Ack(), Ack())
EVICTED = (*BACKED_UP, Evict(need=(16, 10)))
CONFIGS = [pytest.param(CONFIG, id="window"), pytest.param(STATES, id="states")]


def after(*ops, config=CONFIG):
    system = HostSystem(config)
    for op in ops:
        system.do(op)
    return system


def events(system, kind):
    return [event for event in system.take_events() if isinstance(event, kind)]


def test_inserted_prefix_is_backed_up():
    began = events(after(*BACKED_UP), CopyBegan)

    assert [(event.to_host, [pool for pool, _, _ in event.pages]) for event in began] == [(True, ["full", "swa"])]


def test_evicted_prefix_with_a_copy_stays_on_the_host():
    system = after(*EVICTED)

    assert len(events(system, Demoted)) == len(system.capture().nodes)
    assert all(any(node.copies) and not any(node.live) for node in system.capture().nodes)


@pytest.mark.parametrize("waits", [0, 1], ids=["in flight", "finished"])
def test_reader_matches_only_loaded_pages(waits):
    system = after(*EVICTED, Fetch(recipe=LONGER), *(Ack(),) * waits, Lock(recipe=LONGER))

    found = events(system, Modelled)
    assert [len(event.found) for event in found] == [24 * waits, 8 * waits]
    assert all(event.expected == event.found for event in found)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("fault", ["host.torn", "host.fails"])
def test_failed_load_is_not_matched(fault, config):
    ops = (*EVICTED, Inject(fault=fault), Fetch(recipe=PROMPT), Ack(), Lock(recipe=PROMPT))
    system = after(*ops, config=config)

    assert [event.found for event in events(system, Modelled)] == [[], []]
    assert system.capture().copy_jobs == ()


@pytest.mark.parametrize("fault", ["host.slow", "host.silent"])
def test_state_of_a_late_load_is_matched_after_the_load(fault):
    late = (*EVICTED, Inject(fault=fault, count=2), Fetch(recipe=LONGER), Ack(), Lock(recipe=LONGER))
    system = after(*late, Ack(), Lock(recipe=LONGER), config=STATES)

    assert [len(event.found) for event in events(system, Modelled)] == [0, 0, 24, 3]


def test_successful_transfer_has_equal_pages_on_both_sides():
    copied = events(after(*EVICTED, Fetch(recipe=PROMPT), Ack()), Copied)

    assert [event.different for event in copied] == [[]] * 4


def test_load_without_free_pages_is_not_started():
    """The neighbour holds all pages."""
    system = after(*EVICTED, Pressure(pool=0, pages=16))

    assert system.do(Fetch(recipe=PROMPT)) is False
    assert system.capture().receipts == ()


@pytest.mark.parametrize(
    "op",
    [Unlock(), Evict(), Fetch(recipe=PROMPT), Ack(), Heal(), Inject(fault="forward.late"), Pressure(), Step()],
    ids=lambda op: type(op).__name__,
)
def test_op_without_an_effect_is_a_no_op(op):
    assert after().do(op) is False


def test_configuration_without_a_host_gets_one_of_the_device_size():
    assert [pool.capacity for pool in after(config=WITHOUT_HOST).capture().pools] == [16, 16, 16]


def test_evicted_pages_are_written_back():
    system = after(Insert(recipe=PROMPT), Evict(need=(16,)), config=WRITES_BACK)

    assert [event.failure for event in events(system, CopyEnded)] == [None]
    assert [list(node.live) for node in system.capture().nodes] == [[False]]


@pytest.mark.parametrize("config", [CONFIG, WRITES_BACK, STATES], ids=["writes through", "writes back", "states"])
@pytest.mark.parametrize("seed", range(4))
def test_random_ops_violate_no_invariant(seed, config):
    chance = Random(seed)
    driver = Driver([HostSystem(config)])
    for _ in range(120):
        driver.apply(_some_op(chance))
    driver.apply(Drain())

    assert driver.failure is None


def _some_op(chance):
    recipe = Recipe((chance.choice((0, 0, 1)),) * chance.randint(1, 6), cut=chance.randint(0, 3))
    fault = chance.choice(("host.fails", "host.torn", "host.slow", "host.silent"))
    return chance.choice(
        (
            Insert(recipe=recipe, dead=chance.randint(0, 4)),
            Insert(recipe=recipe),
            Fetch(recipe=recipe),
            Fetch(recipe=recipe),
            Ack(),
            Ack(),
            Lock(recipe=recipe),
            Unlock(receipt=chance.randint(0, 5)),
            Evict(need=(chance.randint(0, 9), chance.randint(0, 9))),
            Pressure(pool=chance.randint(0, 1), pages=chance.choice((0, 3))),
            Inject(fault=fault, count=chance.choice((1, 4))),
            Heal(),
        )
    )
