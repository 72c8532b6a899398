"""What the flight recorder keeps, and that it replays."""

import pytest

from engine_under_test.errors import AccountingError
from engine_under_test.events import Refused
from engine_under_test.sampling import SamplingParams
from engine_under_test.strict import VARIABLE, Both
from engine_under_test.units import request_owner
from harness.core.oplog import Header, OpLog
from harness.core.ops import (
    Abort,
    AdvanceClock,
    CloseSession,
    Flush,
    Inject,
    OpenSession,
    Pause,
    Resume,
    Step,
    Submit,
    Turn,
)
from harness.core.registry import OWN
from harness.core.replay import TruncatedLog, Verdict, replay, run_log
from harness.core.system import EngineSystem
from harness.engines.own.adapter import SwardenEngine
from harness.engines.own.mutants.catalog import BY_ID
from harness.search.findings import sealed
from harness.search.shrink import Budget, shrink
from harness.strict.checker import LOGS, StrictChecker
from tests.harness.strict.some_traffic import CONFIGS, Watched, some_config, talk, traffic

PROMPT = tuple(range(12))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_was_asked_is_kept_literally():
    """Steps in a row are one op; whom an abort meant is said by its place among those alive."""
    watched = Watched("sums")
    engine = watched.engine
    engine.submit(PROMPT, SamplingParams(1, [7]), namespace=2, priority=3)
    engine.submit(range(9), SamplingParams(9))
    watched.step(2)
    engine.abort(2)
    engine.flush()
    engine.pause()
    engine.resume()
    watched.step(1)

    assert watched.checker.recorder.ops() == [
        Submit(tokens=PROMPT, max_new_tokens=1, stop=(7,), priority=3, namespace=2),
        Submit(tokens=tuple(range(9)), max_new_tokens=9),
        Step(count=2),
        Abort(request=0),
        Flush(),
        Pause(),
        Resume(),
        Step(),
    ]


def test_an_op_has_no_more_steps_than_it_may():
    watched = Watched("sums")
    watched.submit(max_new_tokens=20)
    watched.step(11)

    assert watched.checker.recorder.ops()[1:] == [Step(count=8), Step(count=3)]


def test_an_empty_engine_has_no_past():
    """No request, and every unit of every pool free; that it is paused is not forgotten."""
    watched = Watched("sums")
    watched.submit(max_new_tokens=1)
    watched.step(2)
    watched.engine.flush()
    watched.engine.pause()
    watched.submit(1, 2, 3, max_new_tokens=1)

    assert watched.checker.recorder.ops() == [Pause(), Submit(tokens=(1, 2, 3), max_new_tokens=1)]


def test_what_is_cached_is_a_past():
    watched = Watched("sums")
    watched.submit(max_new_tokens=1)
    watched.step(2)
    watched.submit(1, 2, 3, max_new_tokens=1)

    assert len(watched.checker.recorder.ops()) == 3


@pytest.mark.parametrize(
    ("timeout", "ops"),
    [
        pytest.param(None, [Submit(tokens=PROMPT, max_new_tokens=4), Step(count=2)], id="never"),
        pytest.param(
            90,
            [Submit(tokens=PROMPT, max_new_tokens=4), Step(), AdvanceClock(ms=30), Step()],
            id="after-a-while",
        ),
    ],
)
def test_the_clock_is_kept_where_requests_time_out(timeout, ops):
    watched = Watched("sums", some_config(request_timeout_ms=timeout))
    watched.clock.advance(500)
    watched.submit()
    watched.step()
    watched.clock.advance(30)
    watched.step()

    assert watched.checker.recorder.ops() == ops


def test_what_overflows_is_dropped_from_the_front_and_said():
    """An abort of somebody who is not in the log any more goes too."""
    watched = Watched("sums", some_config(max_recorded_ops=3))
    watched.submit(max_new_tokens=20)
    watched.submit(1, 2, 3, max_new_tokens=20)
    watched.step()
    watched.engine.abort(1)
    watched.step()

    recorder = watched.checker.recorder
    assert recorder.ops() == [Step(count=2)]
    assert recorder.truncated == "the first 2 ops, and whatever they left in the engine"


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("some", [traffic, talk])
@pytest.mark.parametrize("name", ["hybrid", "overlapped and mixed", "times out", "sessions time out"])
def test_a_recorded_run_goes_as_it_went(name, some, seed, monkeypatch):
    """Aborts, pressure, late and failed passes included: clients get the same, from where the log begins."""
    monkeypatch.setenv(VARIABLE, "sums")
    ops = [op for op in some(seed) if not (isinstance(op, Inject) and op.fault == "pool.refuses")]
    recorded, got = run(CONFIGS[name], ops)

    _, got_again = run(CONFIGS[name], recorded)

    assert len(got_again) > 10
    assert got[-len(got_again) :] == got_again


def run(config, ops):
    """What the recorder has of some ops, and what clients got: tokens and ends, in order.

    Who is rejected names other requests by their ids, or has no op.
    """
    port = SwardenEngine(config)
    system = EngineSystem(port)
    got = []
    for op in ops:
        for _ in range(op.count if isinstance(op, Step) else 1):
            system.do(op)
            system.take_events()
            if isinstance(op, Step):
                ends = [(streamed.token_ids, streamed.finish_reason) for streamed in system.streamed]
                got += [(tokens, reason) for tokens, reason in ends if not (reason or "").startswith("rejected")]
    heard = port._engine._observer
    assert isinstance(heard, Both)
    assert isinstance(heard.second, StrictChecker)
    return heard.second.recorder.ops(), got


def test_what_is_not_replayed_is_counted():
    watched = Watched("sums")
    watched.checker.notice(Refused("full", request_owner(1), 2, 5))

    assert watched.checker.recorder.truncated == "1 times that a pool had no memory behind its pages"


def test_turns_are_kept_and_their_sessions_are_said_by_their_place_among_those_open():
    """Whoever asks for a turn where none is open has nothing but a reason, and no op."""
    watched = Watched("sums")
    engine = watched.engine
    first, second = engine.open_session(), engine.open_session(namespace=3)
    engine.submit(PROMPT, SamplingParams(1, [7]), session=second, priority=2)
    watched.step(2)
    engine.close_session(first)
    engine.submit(PROMPT, SamplingParams(1), session=first)
    engine.submit(range(14), SamplingParams(0), session=second)

    assert watched.checker.recorder.ops() == [
        OpenSession(),
        OpenSession(namespace=3),
        Turn(session=1, tokens=PROMPT, max_new_tokens=1, stop=(7,), priority=2),
        Step(count=2),
        CloseSession(),
        Turn(tokens=tuple(range(14)), max_new_tokens=0),
    ]


def test_an_empty_engine_has_its_open_sessions_still():
    watched = Watched("sums")
    sessions = [watched.engine.open_session(namespace=namespace) for namespace in (1, 2)]
    watched.submit(max_new_tokens=1)
    watched.step(2)
    watched.engine.close_session(sessions[0])
    watched.engine.flush()
    watched.submit(1, 2, 3, max_new_tokens=1)

    assert watched.checker.recorder.ops() == [OpenSession(namespace=2), Submit(tokens=(1, 2, 3), max_new_tokens=1)]


def test_a_session_that_nobody_used_for_too_long_is_closed_behind_the_step_that_found_it():
    watched = Watched("sums", some_config(session_timeout_ms=50))
    session = watched.engine.open_session()
    watched.submit(max_new_tokens=20)
    watched.step()
    watched.clock.advance(50)
    watched.step()
    watched.step()
    watched.engine.close_session(session)

    assert watched.checker.recorder.ops() == [
        OpenSession(),
        Submit(tokens=PROMPT, max_new_tokens=20),
        Step(),
        AdvanceClock(ms=50),
        Step(),
        CloseSession(),
        Step(),
    ]


# --- the log of a failure


def recorded_failure(**settings) -> OpLog:
    """What is written when B13 is planted and an audit finds it."""
    with BY_ID["B13"].planted():
        watched = Watched("audit", some_config(**settings))
        with pytest.raises(AccountingError) as raised:
            watched.serve()
    [path] = LOGS.iterdir()
    assert f"swarden replay {path}" in str(raised.value).splitlines()[-1]
    return OpLog.load(path)


def test_the_log_of_a_failure_replays_and_shrinks():
    """Outside of the engine in which it was met, with the same bug planted; smaller, and by its own strength."""
    log = recorded_failure()

    small = shrink(log, lambda candidate: run_log(candidate).failure, Budget(executions=200))

    assert log.header.mutant == "B13"
    assert replay(log).verdict is Verdict.FAILED
    assert len(small.log.ops) <= len(log.ops)
    assert replay(sealed(small.log)[0]).verdict is Verdict.FAILED


def test_a_log_that_is_cut_and_fails_is_as_good_as_any():
    log = recorded_failure(max_recorded_ops=3)

    assert log.header.truncated == "the first 2 ops, and whatever they left in the engine"
    assert [type(op) for op in log.ops] == [Submit, Step]
    assert replay(log).verdict is Verdict.FAILED


def test_a_log_that_is_cut_and_does_not_fail_proves_nothing():
    """What is missing may be what it takes."""
    header = Header(engine=OWN, machine="engine", configs=[some_config().to_mapping()], truncated="the first 3 ops")

    with pytest.raises(TruncatedLog) as raised:
        replay(OpLog(header, [Step()]))

    assert str(raised.value) == "does not fail, and a part of its run is missing: the first 3 ops"


def test_token_ids_of_any_size_travel(tmp_path):
    """A trace has ids of 60 bits."""
    log = OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [Submit(tokens=(2**60, 2**63 - 1))])
    log.save(tmp_path / "a.oplog")

    assert OpLog.load(tmp_path / "a.oplog").ops == log.ops
