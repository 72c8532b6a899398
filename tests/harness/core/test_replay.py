"""Replays of op-logs and their verdicts."""

import msgspec
import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Op, Recipe, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import Verdict, log_of, repeat, replay, run_log, verdict_on

CONFIG = EngineConfig(page_size=2, full_pages=64, swa_pages=6, sliding_window=2)
OPS: tuple[Op, ...] = (Submit(recipe=Recipe(path=(0, 0, 0)), max_new_tokens=4), Submit(max_new_tokens=2), Drain())


def fresh_log(mutant=None, model=""):
    """The log of a run of OPS, as a campaign would write it."""
    bare = OpLog(Header(engine=OWN, machine="engine", configs=[CONFIG.to_mapping()], mutant=mutant, model=model), OPS)
    return log_of(bare.header, run_log(bare, keep_digests=True))


def test_log_of_a_planted_bug_fails_with_the_same_fingerprint():
    """The mutant of the header is planted again."""
    outcome = replay(fresh_log("B18"))

    assert outcome.verdict is Verdict.FAILED
    assert outcome.diverged is None
    assert outcome.driver.failure is not None
    assert outcome.driver.failure.fingerprint == outcome.log.header.expected


def test_log_of_a_model_is_replayed_with_the_model():
    """A bug that only a model can have fails again, but does not fail with the stand-in."""
    healthy, failing = fresh_log(model="tiny-mistral"), fresh_log("S110", model="tiny-mistral")
    with_the_stand_in = msgspec.structs.replace(failing.header, model="")

    assert (replay(healthy).verdict, replay(healthy).diverged) == (Verdict.FIXED, None)
    assert (replay(failing).verdict, replay(failing).diverged) == (Verdict.FAILED, None)
    assert run_log(OpLog(with_the_stand_in, failing.ops)).failure is None


@pytest.mark.parametrize(
    ("found", "expected", "by_law", "verdict"),
    [
        pytest.param([], ["a/x"], False, Verdict.FIXED, id="passes"),
        pytest.param(["a/x"], [], False, Verdict.FAILED, id="any-failure"),
        pytest.param(["b/y", "a/x"], ["a/x"], False, Verdict.FAILED, id="expected-one-among-others"),
        pytest.param(["a/y"], ["a/x"], False, Verdict.CHANGED, id="another"),
        pytest.param(["b/y", "a/y"], ["a/x"], True, Verdict.FAILED, id="same-law-elsewhere"),
        pytest.param(["b/x"], ["a/x"], True, Verdict.CHANGED, id="another-law"),
    ],
)
def test_verdict_compares_the_failure_with_the_expected_one(found, expected, by_law, verdict):
    assert verdict_on(found, expected, by_law=by_law) is verdict


def test_other_fingerprint_with_the_same_build_is_nondeterminism():
    """The op that fails has no digest, so its fingerprint is compared."""
    log = fresh_log("B18")
    log.header = msgspec.structs.replace(log.header, expected="drained_engine_is_empty/swa")

    outcome = repeat(log, 1)

    assert outcome.is_nondeterministic
    assert outcome.diverged.endswith("the log has drained_engine_is_empty/swa")


def test_divergence_from_another_build_is_no_nondeterminism():
    log = fresh_log()
    older = msgspec.structs.replace(log.header, source_hash="another build")

    outcome = repeat(OpLog(older, log.ops, ["000000000000", *log.digests[1:]]), 1)

    assert outcome.diverged
    assert not outcome.is_nondeterministic


def test_diverging_run_has_an_op_log_of_its_own():
    """The log has the digests and the failure of this run."""
    log = fresh_log("B18")
    healthy = msgspec.structs.replace(log.header, mutant=None)

    again = replay(OpLog(healthy, log.ops, log.digests)).again

    assert again.digests != log.digests
    assert again.header.expected is None
    assert replay(again).diverged is None


def test_prompts_that_continue_each_other_have_a_limit():
    """The ops themselves have fewer tokens, which is all that a file shows."""
    path = tuple([0] * 256)
    ops = [Submit(recipe=Recipe(path=path, stretch=1000, continues=number)) for number in range(4)]
    log = OpLog(Header(engine=OWN, configs=[{}]), ops)

    with pytest.raises(UsageError, match=r"^op 3: the prompts have 1280000 tokens; want at most 1048576$"):
        run_log(log)
