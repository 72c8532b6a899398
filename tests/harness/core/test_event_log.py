"""The log of an engine's events."""

from swarden.harness.core.event_log import EventLog
from swarden.invariants.events import Late, StepBegan, StepEnded


def test_events_for_an_engines_own_observers_are_not_taken():
    log = EventLog()
    for event in (StepBegan(now_ms=5), Late(launch=1), StepEnded()):
        log.notice(event)

    assert log.take() == [Late(launch=1)]
    assert log.take() == []


def test_each_taken_event_of_a_traced_log_has_its_origin():
    log = EventLog()
    log.trace()
    for event in (StepBegan(now_ms=5), Late(launch=1), StepEnded(), Late(launch=2)):
        log.notice(event)

    assert (len(log.take()), len(log.origins)) == (2, 2)
