"""A healthy engine has no violation. The states tested here caused false alarms of memory checks in other engines.

They are pages of running, chunked and parked requests, pages that a pass in flight still reads, waiting requests
without pages, and inconsistent counts in the middle of a step (bug catalogue, 8.7).
"""

import pytest

from swarden.engine_under_test.strict import VARIABLE
from swarden.harness.strict.checker import LOGS
from swarden.invariants import events
from tests.harness.strict.some_traffic import CONFIGS, LEVELS, Watched, served, some_config, talk, traffic

REACHED = {
    events.Parked,
    events.Retracted,
    events.Preempted,
    events.Rejected,
    events.Tombstoned,
    events.Recovered,
    events.Evicted,
    events.Refused,
    events.Late,
    events.Failed,
    events.Discarded,
    events.Paused,
    events.CopyBegan,
    events.Loaded,
}
SEED = 2  # its ops reach all of these states, with sessions and without
SERVED = [
    level for level in LEVELS if level != "census"
]  # the level "content" checks all that a census of small pools does


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("level", SERVED)
def test_healthy_engine_has_no_violation(level, config, monkeypatch):
    """The environment selects the checker, which checks every step, busy or idle."""
    monkeypatch.setenv(VARIABLE, level)

    served(config, traffic(SEED))

    assert not LOGS.exists()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("level", SERVED)
def test_healthy_sessions_have_no_violation(level, config, monkeypatch):
    """Pages of sessions are counted between turns, and during a turn that uses them."""
    monkeypatch.setenv(VARIABLE, level)

    served(config, talk(SEED))

    assert not LOGS.exists()


def test_traffic_reaches_the_states_of_past_false_alarms(monkeypatch):
    """Otherwise the test above would prove nothing."""
    monkeypatch.delenv(VARIABLE, raising=False)

    met = set().union(*[served(config, traffic(SEED)) for config in CONFIGS.values()])

    assert {kind.__name__ for kind in REACHED} - met == set()


def test_traffic_continues_and_drops_sessions(monkeypatch):
    """Otherwise the test of sessions would prove nothing."""
    monkeypatch.delenv(VARIABLE, raising=False)

    met = set().union(*[served(config, talk(SEED)) for config in CONFIGS.values()])

    assert {"SessionOpened", "Lent", "Kept", "GivenUp", "TurnRefused", "SessionClosed"} - met == set()


@pytest.mark.parametrize("level", LEVELS)
def test_fenced_pages_of_a_pass_in_flight_are_counted(level):
    """An abort during a pass fences its pages, and its lock waits among the departing locks."""
    watched = Watched(level, some_config(overlap=True))
    watched.submit(*range(12))
    watched.step(2)
    watched.submit(*range(12))
    watched.step(1)

    watched.engine.abort(2)
    watched.step(1)

    assert not watched.checker.reporter.counts
