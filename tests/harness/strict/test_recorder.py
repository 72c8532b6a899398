"""The flight recorder: the ops that it records, and their replay."""

import pytest

from swarden.engine_under_test.errors import AccountingError
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import VARIABLE, Both
from swarden.engine_under_test.units import request_owner
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import (
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
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import TruncatedLog, Verdict, replay, run_log
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.search.findings import sealed
from swarden.harness.search.shrink.shrink import ShrinkBudget, shrink
from swarden.harness.strict.checker import LOGS, StrictChecker
from swarden.harness.strict.recording import VARIABLE as RECORD
from swarden.harness.strict.recording import renumbered
from swarden.invariants.events import Refused
from tests.harness.strict.some_traffic import CONFIGS, Watched, some_config, talk, traffic

PROMPT = tuple(range(12))


def test_client_calls_are_recorded_with_their_arguments():
    """Consecutive steps are one op; an abort has the ordinal of its request among the live ones."""
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

    assert watched.checker.recorder.recording.ops() == [
        Submit(tokens=PROMPT, max_new_tokens=1, stop=(7,), priority=3, namespace=2),
        Submit(tokens=tuple(range(9)), max_new_tokens=9),
        Step(count=2),
        Abort(request=0),
        Flush(),
        Pause(),
        Resume(),
        Step(),
    ]


def test_recorded_step_op_has_at_most_the_allowed_steps():
    watched = Watched("sums")
    watched.submit(max_new_tokens=20)
    watched.step(11)

    assert watched.checker.recorder.recording.ops()[1:] == [Step(count=8), Step(count=3)]


def test_log_is_cleared_when_the_engine_is_empty():
    """Empty means no request and only free units. A pause is still recorded."""
    watched = Watched("sums")
    watched.submit(max_new_tokens=1)
    watched.step(2)
    watched.engine.flush()
    watched.engine.pause()
    watched.submit(1, 2, 3, max_new_tokens=1)

    assert watched.checker.recorder.recording.ops() == [Pause(), Submit(tokens=(1, 2, 3), max_new_tokens=1)]


@pytest.mark.parametrize(
    ("timeout", "ops"),
    [
        pytest.param(None, [Submit(tokens=PROMPT, max_new_tokens=4), Step(count=2)], id="never"),
        pytest.param(
            90, [Submit(tokens=PROMPT, max_new_tokens=4), Step(), AdvanceClock(ms=30), Step()], id="after-a-while"
        ),
    ],
)
def test_clock_is_recorded_if_requests_time_out(timeout, ops):
    watched = Watched("sums", some_config(request_timeout_ms=timeout))
    watched.clock.advance(500)
    watched.submit()
    watched.step()
    watched.clock.advance(30)
    watched.step()

    assert watched.checker.recorder.recording.ops() == ops


def test_overflowing_log_drops_its_oldest_ops_and_says_so():
    """An abort is dropped too if its request was dropped."""
    watched = Watched("sums", some_config(max_recorded_ops=3))
    watched.submit(max_new_tokens=20)
    watched.submit(1, 2, 3, max_new_tokens=20)
    watched.step()
    watched.engine.abort(1)
    watched.step()

    recorder = watched.checker.recorder
    assert recorder.recording.ops() == [Step(count=2)]
    assert recorder.recording.truncated == "the first 2 ops and their effects on the engine"


@pytest.mark.parametrize("seed", [3])
@pytest.mark.parametrize("some", [traffic, talk])
@pytest.mark.parametrize("name", ["hybrid", "overlapped and mixed", "request timeout", "session timeout"])
def test_replay_of_a_recorded_run_gives_the_same_outputs(name, some, seed, monkeypatch):
    """The run has aborts, pressure, and late and failed passes; outputs are compared from the start of the log on."""
    monkeypatch.setenv(VARIABLE, "sums")
    ops = [op for op in some(seed) if not (isinstance(op, Inject) and op.fault == "pool.refuses")]
    recorded, got = run(CONFIGS[name], ops)

    _, got_again = run(CONFIGS[name], recorded)

    assert len(got_again) > 10
    assert got[-len(got_again) :] == got_again


@pytest.mark.parametrize("some", [traffic, talk])
@pytest.mark.parametrize("name", ["hybrid", "overlapped and mixed", "request timeout", "session timeout"])
def test_replay_with_renumbered_tokens_takes_the_same_course(name, some, monkeypatch):
    """The stand-in for a model generates other tokens, but as many, and from prompts of which as much is cached."""
    monkeypatch.setenv(VARIABLE, "sums")
    ops = [op for op in some(3) if not (isinstance(op, Inject) and op.fault == "pool.refuses")]
    recorded, _ = run(CONFIGS[name], ops)

    (_, got), (_, got_again) = (run(CONFIGS[name], ops, course_of) for ops in (recorded, renumbered(recorded)))

    assert len(got_again) > 10
    assert got == got_again


def course_of(streamed):
    return len(streamed.token_ids), streamed.finish_reason, streamed.cached_tokens, streamed.num_retractions


def outputs_of(streamed):
    return streamed.token_ids, streamed.finish_reason


def run(config, ops, of=outputs_of):
    """The recorded ops of a run, and some values of its streamed outputs in order.

    Rejections are left out: their reason names requests by id, and some have no op.
    """
    port = SwardenEngine(config)
    system = EngineSystem(port)
    got = []
    for op in ops:
        for _ in range(op.count if isinstance(op, Step) else 1):
            system.do(op)
            system.take_events()
            if isinstance(op, Step):
                got += [of(item) for item in system.streamed if not (item.finish_reason or "").startswith("rejected")]
    observer = port.engine._observer
    assert isinstance(observer, Both)
    assert isinstance(observer.second, StrictChecker)
    return observer.second.recorder.recording.ops(), got


def test_call_without_an_op_is_counted_as_lost():
    watched = Watched("sums")
    watched.checker.notice(Refused("full", request_owner(1), 2, 5))

    assert watched.checker.recorder.recording.truncated == "1 allocations refused by a pool with free pages"


def test_turns_are_recorded_with_the_ordinal_of_their_open_session():
    """A turn of a session that is not open is rejected and has no op.  A turn keeps what its session has said."""
    watched = Watched("sums")
    engine = watched.engine
    first, second = engine.open_session(), engine.open_session(namespace=3)
    engine.submit(PROMPT, SamplingParams(1, [7]), session=second, priority=2)
    watched.step(2)
    engine.close_session(first)
    engine.submit(PROMPT, SamplingParams(1), session=first)
    engine.submit(range(14), SamplingParams(0), session=second)

    assert watched.checker.recorder.recording.ops() == [
        OpenSession(),
        OpenSession(namespace=3),
        Turn(session=1, tokens=PROMPT, max_new_tokens=1, stop=(7,), priority=2),
        Step(count=2),
        CloseSession(),
        Turn(tokens=tuple(range(14)), kept=12, max_new_tokens=0),
    ]


def test_cleared_log_keeps_the_open_sessions():
    watched = Watched("sums")
    sessions = [watched.engine.open_session(namespace=namespace) for namespace in (1, 2)]
    watched.submit(max_new_tokens=1)
    watched.step(2)
    watched.engine.close_session(sessions[0])
    watched.engine.flush()
    watched.submit(1, 2, 3, max_new_tokens=1)

    assert watched.checker.recorder.recording.ops() == [
        OpenSession(namespace=2),
        Submit(tokens=(1, 2, 3), max_new_tokens=1),
    ]


def test_expired_session_is_closed_after_the_step_of_its_timeout():
    watched = Watched("sums", some_config(session_timeout_ms=50))
    session = watched.engine.open_session()
    watched.submit(max_new_tokens=20)
    watched.step()
    watched.clock.advance(50)
    watched.step()
    watched.step()
    watched.engine.close_session(session)

    assert watched.checker.recorder.recording.ops() == [
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
    """The log written when an audit finds the planted B13."""
    with BY_ID["B13"].planted():
        watched = Watched("audit", some_config(**settings))
        with pytest.raises(AccountingError) as raised:
            watched.serve()
    [path] = LOGS.iterdir()
    assert f"swarden replay {path}" in str(raised.value).splitlines()[-1]
    return load_log(path)


def test_log_of_a_failure_replays_and_shrinks():
    """The log fails in a new engine with the same mutant, and its shrunk log fails too."""
    log = recorded_failure()

    small = shrink(log, lambda candidate: run_log(candidate).failure, ShrinkBudget(executions=200))

    assert log.header.mutant == "B13"
    assert replay(log).verdict is Verdict.FAILED
    assert len(small.log.ops) <= len(log.ops)
    assert replay(sealed(small.log)[0]).verdict is Verdict.FAILED


def test_log_of_a_failure_has_none_of_the_tokens_and_is_for_its_owner_only():
    log = recorded_failure()

    [path] = LOGS.iterdir()
    prompts = [op.tokens for op in log.ops if isinstance(op, Submit) and op.tokens]
    assert prompts
    assert all(min(tokens) > max(PROMPT) for tokens in prompts)
    assert replay(log).verdict is Verdict.FAILED
    assert path.stat().st_mode & 0o777 == 0o600


def test_verbatim_log_has_the_tokens(monkeypatch):
    monkeypatch.setenv(RECORD, "verbatim")

    log = recorded_failure()

    assert PROMPT in [op.tokens for op in log.ops if isinstance(op, Submit)]


def test_no_log_is_kept_or_written_if_the_recorder_is_off(monkeypatch):
    monkeypatch.setenv(RECORD, "off")
    with BY_ID["B13"].planted():
        watched = Watched("audit")
        with pytest.raises(AccountingError, match=r"\nnot recorded: SWARDEN_STRICT_RECORD is off$"):
            watched.serve()

    assert not LOGS.exists()
    assert not any(isinstance(op, Submit) for op in watched.checker.recorder.recording.ops())


def test_unknown_record_mode_is_an_error(monkeypatch):
    monkeypatch.setenv(RECORD, "some")

    with pytest.raises(UsageError, match=r"^SWARDEN_STRICT_RECORD: 'some' is not one of renumbered, verbatim, off$"):
        Watched("sums")


def test_renumbered_prompts_share_the_same_prefixes_and_nothing_else():
    """Neither equal tokens behind different prefixes nor the order of the vocabulary are left; stop tokens stay."""
    ops = [
        Submit(tokens=(5, 5, 9), stop=(9,)),
        Step(),
        Submit(tokens=(5, 5, 3, 9)),
        Turn(tokens=(4, 5, 9), kept=1),
        Submit(tokens=(5, 5, 9)),
    ]

    assert renumbered(ops) == [
        Submit(tokens=(1000, 1001, 1002), stop=(9,)),
        Step(),
        Submit(tokens=(1000, 1001, 1003, 1004)),
        Turn(tokens=(1005, 1006, 1007), kept=1),
        Submit(tokens=(1000, 1001, 1002)),
    ]


def test_truncated_log_that_fails_is_a_failure():
    log = recorded_failure(max_recorded_ops=3)

    assert log.header.truncated == "the first 2 ops and their effects on the engine"
    assert [type(op) for op in log.ops] == [Submit, Step]
    assert replay(log).verdict is Verdict.FAILED


def test_truncated_log_that_does_not_fail_is_an_error():
    """The missing ops may be necessary for the failure."""
    header = Header(engine=OWN, machine="engine", configs=[some_config().to_mapping()], truncated="the first 3 ops")

    with pytest.raises(TruncatedLog) as raised:
        replay(OpLog(header, [Step()]))

    assert str(raised.value) == "does not fail, and a part of its run is missing: the first 3 ops"
