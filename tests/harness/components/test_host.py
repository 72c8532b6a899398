"""The host tier alone: what each op does to it, and that random ones break no invariant."""

from random import Random

import pytest

from engine_under_test.config import EngineConfig
from harness.components.host.system import HostSystem
from harness.core.driver import Driver
from harness.core.ops import Ack, Drain, Evict, Fetch, Heal, Inject, Insert, Lock, Pressure, Recipe, Step, Unlock
from invariants.events import Copied, Demoted, Modelled, TransferBegan, TransferEnded

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
WITHOUT_HOST = EngineConfig(page_size=4, full_pages=16)
WRITES_BACK = EngineConfig(page_size=4, full_pages=16, host_full_pages=8, host_policy="write_back")
PROMPT = Recipe((0,) * 6)
OTHER = Recipe((1,) * 6)
LONGER = Recipe((0,) * 7)
BACKED_UP = (Insert(recipe=PROMPT), Ack(), Ack())
EVICTED = (*BACKED_UP, Evict(need=(16, 10)))


def after(*ops, config=CONFIG):
    system = HostSystem(config)
    for op in ops:
        system.do(op)
    return system


def events(system, kind):
    return [event for event in system.take_events() if isinstance(event, kind)]


def read_wrong(system):
    return [event for event in events(system, Modelled) if event.expected != event.found]


def test_what_is_inserted_is_backed_up():
    began = events(after(*BACKED_UP), TransferBegan)

    assert [(event.to_host, [pool for pool, _, _ in event.pages]) for event in began] == [(True, ["full", "swa"])]


def test_what_has_a_copy_is_left_to_the_host():
    system = after(*EVICTED)

    assert len(events(system, Demoted)) == len(system.capture().nodes)
    assert all(any(node.copies) and not any(node.live) for node in system.capture().nodes)


@pytest.mark.parametrize("waits", [0, 1], ids=["under way", "ended"])
def test_a_reader_finds_what_was_loaded_and_nothing_that_was_not(waits):
    system = after(*EVICTED, Fetch(recipe=LONGER), *(Ack(),) * waits, Lock(recipe=LONGER))

    found = events(system, Modelled)
    assert [len(event.found) for event in found] == [24 * waits, 8 * waits]
    assert all(event.expected == event.found for event in found)


def test_a_torn_load_is_read_by_nobody():
    system = after(*EVICTED, Inject(fault="host.torn"), Fetch(recipe=PROMPT), Ack(), Lock(recipe=PROMPT))

    assert read_wrong(system) == []
    assert system.capture().transfers == ()


def test_what_ended_well_is_the_same_on_both_sides():
    copied = events(after(*EVICTED, Fetch(recipe=PROMPT), Ack()), Copied)

    assert [event.different for event in copied] == [[]] * 4


def test_a_load_without_room_is_not_begun():
    """Somebody else has all the pages."""
    system = after(*EVICTED, Pressure(pool=0, pages=16))

    assert system.do(Fetch(recipe=PROMPT)) is False
    assert system.capture().receipts == ()


@pytest.mark.parametrize(
    "op",
    [Unlock(), Evict(), Fetch(recipe=PROMPT), Ack(), Heal(), Inject(fault="forward.late"), Pressure(), Step()],
    ids=lambda op: type(op).__name__,
)
def test_where_there_is_nothing_to_do_an_op_is_a_no_op(op):
    assert after().do(op) is False


def test_without_a_host_there_is_one_as_large_as_the_device():
    assert [pool.capacity for pool in after(config=WITHOUT_HOST).capture().pools] == [16, 16, 16]


def test_what_is_evicted_is_written_back():
    system = after(Insert(recipe=PROMPT), Evict(need=(16,)), config=WRITES_BACK)

    assert [event.failure for event in events(system, TransferEnded)] == [None]
    assert [list(node.live) for node in system.capture().nodes] == [[False]]


@pytest.mark.parametrize("config", [CONFIG, WRITES_BACK], ids=["writes through", "writes back"])
@pytest.mark.parametrize("seed", range(4))
def test_random_ops_break_no_invariant(seed, config):
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
