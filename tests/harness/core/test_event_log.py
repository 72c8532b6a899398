"""The log of an engine's events."""

from swarden.harness.core.event_log import EventLog
from swarden.harness.core.origins import EngineCode
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


def test_events_of_a_method_that_was_kept_before_the_trace_have_origins():
    log = EventLog(code=EngineCode(__name__))
    notice = log.notice
    log.trace()

    notice(Late(launch=1))

    assert log.take() == [Late(launch=1)]
    assert [origin.rpartition(" ")[2] for origin in log.origins] == [
        "test_events_of_a_method_that_was_kept_before_the_trace_have_origins"
    ]
