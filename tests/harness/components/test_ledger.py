"""The ledgers alone: the effect of each op, compared with the naive model."""

from random import Random

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.harness.components.ledger.system import LedgerSystem
from swarden.harness.core.driver import Driver, KeptParts
from swarden.harness.core.ops import Complete, Drain, Free, Give, Pressure, Step, Take, TakeOver
from swarden.invariants.events import Completed, Modelled, Owner, Refused
from swarden.invariants.view import Fence
from tests.harness.components.playing import configurations, disagreements, held, ledger_op, name_of, num_free

CONFIG = EngineConfig(page_size=4, full_pages=6, swa_pages=4, sliding_window=5)
SWA_ONLY = EngineConfig(page_size=4, full_pages=0, swa_pages=4, sliding_window=5)
FULL_ONLY = EngineConfig(page_size=4, full_pages=6)


def after(*ops, config=CONFIG):
    """A system after these ops; its events are taken."""
    system = LedgerSystem(config)
    for op in ops:
        system.do(op)
    assert disagreements(system) == []
    return system


@pytest.mark.parametrize(
    ("reuse", "full", "swa"),
    [pytest.param("lifo", [5, 6], [3, 4], id="lifo"), pytest.param("fifo", [3, 4], [3, 4], id="fifo")],
)
def test_take_follows_the_order_of_reuse(reuse, full, swa):
    """Lifo takes the pages freed last, in reverse order; fifo takes those freed first."""
    config = EngineConfig(page_size=4, full_pages=6, swa_pages=4, sliding_window=5, page_reuse=reuse)

    snapshot = after(Take(count=2), Free(count=2), Take(owner=1, count=2), config=config).capture()

    assert (held(snapshot, "full"), held(snapshot, "swa")) == ({"request r2": full}, {"request r2": swa})


def test_refused_take_changes_nothing():
    """Full has 6 pages, swa 4: the second pool refuses."""
    system = LedgerSystem(CONFIG)
    before = system.capture()

    worked = system.do(Take(count=5))

    events = system.take_events()
    assert worked
    assert [event for event in events if isinstance(event, Refused)] == [Refused("swa", Owner("request", 1), 5, 4)]
    assert system.capture().pools == before.pools


def test_windowed_free_keeps_the_pages_of_the_other_pool():
    snapshot = after(Take(count=3), Free(count=2, part="windowed")).capture()

    assert held(snapshot, "full") == {"request r1": [6, 5, 4]}
    assert held(snapshot, "swa") == {"request r1": [2]}
    assert list(snapshot.peer_maps[0].peers) == [0, 0, 0, 0, 2, 0, 0]


def test_dead_handles_take_over_the_peers_of_another_owner():
    system = after(Take(count=2), Free(count=2, part="windowed"), Take(owner=1, count=2), TakeOver(giver=1, count=1))

    snapshot = system.capture()

    assert held(snapshot, "full") == {"request r1": [6, 5], "request r2": [4, 3]}
    assert held(snapshot, "swa") == {"request r1": [3], "request r2": [4]}


def test_given_pages_are_freed_by_their_new_owner():
    snapshot = after(Take(count=3), Give(to=2, count=2), Free(owner=1, count=1)).capture()

    assert held(snapshot, "full") == {"request r1": [4], "request r3": [5]}


def test_fenced_page_is_free_when_its_launch_has_completed():
    system = after(Take(count=2), Free(count=2, fenced=True))
    fenced = system.capture()

    system.do(Complete())

    assert fenced.pool("full").fenced == [Fence(1, (6, 5))]
    assert [event for event in system.take_events() if isinstance(event, Completed)] == [Completed(1)]
    assert num_free(system.capture()) == {"full": 6, "swa": 4}


def test_oldest_launch_completes_first():
    """Owner 2 frees behind launch 2, then owner 1 behind launch 1."""
    ops = Take(owner=1, count=1), Free(fenced=True), Take(count=1), Free(fenced=True), Complete()

    snapshot = after(*ops).capture()

    assert (snapshot.pool("full").fenced, snapshot.pool("full").free) == ([Fence(2, (6,))], (1, 2, 3, 4, 5))


def test_pressure_holds_pages_of_one_pool_alone():
    snapshot = after(Pressure(pool=1, pages=9)).capture()

    assert (held(snapshot, "full"), held(snapshot, "swa")) == ({}, {"pressure": [4, 3, 2, 1]})


@pytest.mark.parametrize(
    ("config", "ops"),
    [
        pytest.param(CONFIG, [Step()], id="unknown-op"),
        pytest.param(CONFIG, [Give(to=1)], id="nothing-to-give"),
        pytest.param(CONFIG, [Take(), Give()], id="same-owner"),
        pytest.param(CONFIG, [Free()], id="nothing-to-free"),
        pytest.param(CONFIG, [Take(), Free(part="rest")], id="no-dead-handle"),
        pytest.param(CONFIG, [Take(), Free(part="half")], id="unknown-part"),
        pytest.param(CONFIG, [Take(), TakeOver()], id="no-giver"),
        pytest.param(CONFIG, [Complete()], id="nothing-fenced"),
        pytest.param(CONFIG, [Pressure()], id="no-pressure"),
        pytest.param(FULL_ONLY, [Take(), Free(part="windowed")], id="no-window"),
        pytest.param(SWA_ONLY, [Take(), Free(part="rest")], id="no-rest"),
    ],
)
def test_op_without_an_effect_is_a_no_op(config, ops):
    system = after(*ops[:-1], Pressure(), config=config)
    before = system.capture()

    worked = system.do(ops[-1])

    assert not worked
    assert system.capture().pools == before.pools


def test_ledger_that_differs_from_the_model_is_reported(monkeypatch):
    """The patched ledger never releases a fence."""
    system = after(Take(count=1), Free(fenced=True), config=FULL_ONLY)
    monkeypatch.setattr(Ledger, "complete", lambda *_: None)

    system.do(Complete())

    assert disagreements(system) == [
        Modelled("full: free after complete", (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5)),
        Modelled("full: fenced after complete", [], [(1, 6)]),
    ]


@pytest.mark.parametrize("config", list(configurations()), ids=name_of)
def test_random_traffic_agrees_with_the_model_and_drains(config):
    rng, driver = Random(name_of(config)), Driver([LedgerSystem(config)], keep=KeptParts(digests=False))

    for _ in range(300):
        driver.apply(ledger_op(rng))
    driver.apply(Drain())

    assert driver.failure is None
    assert driver.counts.tally["part_matches_its_model"].evaluated == 302
    assert num_free(driver.snapshot()) == {pool.name: pool.num_pages for pool in config.pools}
