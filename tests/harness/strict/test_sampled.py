"""The census of pools that are too large to be walked at each step."""

import pytest

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import VARIABLE
from swarden.engine_under_test.units import request_owner
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.engines.own import live
from swarden.harness.engines.own.live import live_of
from swarden.harness.kit.tags import TagModel
from swarden.harness.strict.census import interval_of
from swarden.harness.strict.checker import LOGS, census
from tests.harness.strict.some_traffic import CONFIGS, served, some_config, talk, traffic

UNITS_PER_STEP = 10  # of 30 units, so every third step is walked


@pytest.fixture
def few_units_per_step(monkeypatch):
    monkeypatch.setattr(live, "UNITS_PER_STEP", UNITS_PER_STEP)


def attached(**settings: object) -> Engine:
    watcher = census(reports=False)
    engine = Engine(some_config(**settings), Ports(FakeForward(TagModel()), FakeClock(), watcher))
    watcher.attach(engine)
    return engine


def walked() -> Engine:
    """An engine with one request, after its first walk: the third step."""
    engine = attached()
    engine.submit(range(12), SamplingParams(20))
    for _ in range(3):
        engine.step()
    return engine


@pytest.mark.usefixtures("few_units_per_step")
@pytest.mark.parametrize("draw", [traffic, talk])
@pytest.mark.parametrize("config", [*CONFIGS.values()][::4], ids=[*CONFIGS][::4])
def test_healthy_engine_has_no_violation(config, draw, monkeypatch):
    monkeypatch.setenv(VARIABLE, "census")

    served(config, draw(1))

    assert not LOGS.exists()


@pytest.mark.usefixtures("few_units_per_step")
def test_wrong_free_is_found_between_two_walks():
    """The audit of each step finds it when it happens."""
    engine = walked()

    with pytest.raises(AccountingError, match="freed by request r2"):
        engine.memory.ledgers.anchor.free([20], owner=request_owner(2), cause="finished", after=0)


@pytest.mark.usefixtures("few_units_per_step")
def test_wrong_state_is_found_by_the_next_walk():
    """No event shows a lock that is counted twice."""
    engine = walked()
    [node] = [node for root in engine.cache.tree.roots.values() for node in root.children.values()]
    node.locks[0] += 1

    engine.step()
    engine.step()

    with pytest.raises(AccountingError, match="node_locks_match_receipts"):
        engine.step()


@pytest.mark.parametrize(("pages", "interval"), [(1023, 1), (1024, 2), (65_536, 128)])
def test_interval_grows_with_the_pools(pages, interval):
    engine = attached(full_pages=pages, swa_pages=pages)

    assert interval_of(live_of(engine)) == interval
