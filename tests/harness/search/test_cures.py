"""Which fixes cure a failure, and what the same failure is."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.core.fingerprint import is_same
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step
from swarden.harness.search import cures
from swarden.harness.search.cures import Ending, FixTester, Served
from swarden.invariants.events import FinishReason

NO_LOG: Any = None
FIXES = [f"fix-{number}" for number in range(20)]


def failure(*fingerprints) -> Any:
    return SimpleNamespace(fingerprint=fingerprints[0], fingerprints=fingerprints, history=[None, None])


FAILURE = failure("first/law", "second/law")


class FakeTester(FixTester):
    """The tests of a log that ends as `ends` says for each set of fixes."""

    def __init__(self, ends):
        super().__init__(NO_LOG, FAILURE, ())
        self.ends, self.num_runs = ends, 0

    def _run(self, fixes):
        self.num_runs += 1
        return self.ends({*fixes})


@pytest.mark.parametrize(
    ("needed", "most_runs"),
    [
        pytest.param({"fix-3"}, 14, id="one"),
        pytest.param({"fix-0", "fix-19"}, 22, id="two"),
        pytest.param({"fix-4", "fix-5", "fix-11"}, 30, id="three"),
    ],
)
def test_fewest_fixes_are_those_that_the_log_needs(needed, most_runs):
    tester = FakeTester(lambda fixes: Ending(None if needed <= fixes else FAILURE))

    assert {*tester.fewest(FIXES)} == needed
    assert tester.num_runs <= most_runs


def test_fix_that_only_undoes_another_one_is_not_needed():
    """One fix cures the log, a second one spoils it, and a third one makes up for that."""
    tester = FakeTester(lambda fixes: Ending(None if "b" in fixes and ("c" not in fixes or "a" in fixes) else FAILURE))

    assert tester.fewest(["a", "b", "c"]) == ["b"]


def test_log_that_passes_when_it_is_run_again_is_cured_by_nothing():
    tester = FakeTester(lambda _: Ending())

    assert not tester.cures(["fix"])


def ending(reason, *, has_outputs=True, is_aborted=False):
    """The end of a log with one request."""
    return Ending(requests={(0, 7): Served(has_outputs, reason, is_aborted)})


ABORTED = ending(FinishReason.ABORT, is_aborted=True)


@pytest.mark.parametrize(
    ("without", "with_fix", "is_cured"),
    [
        pytest.param(ending(None), ending(FinishReason.LENGTH), True, id="answered"),
        pytest.param(ending(None), ABORTED, True, id="aborted-by-its-client"),
        pytest.param(ending(None), ending(FinishReason.ABORT), False, id="aborted-by-the-engine"),
        pytest.param(ending(None), ending(FinishReason.REJECTED), False, id="refused"),
        pytest.param(ending(None), ending(None), True, id="served-until-another-failure"),
        pytest.param(ending(FinishReason.LENGTH), ending(FinishReason.OUT_OF_MEMORY), False, id="answered-without"),
        pytest.param(ending(None, has_outputs=False), ending(FinishReason.REJECTED), True, id="never-served"),
        pytest.param(ABORTED, ending(FinishReason.OUT_OF_MEMORY), True, id="aborted-by-its-client-without-it"),
    ],
)
def test_fix_that_drops_a_request_which_was_served_cures_nothing(without, with_fix, is_cured):
    tester = FakeTester(lambda fixes: with_fix if fixes else replace(without, failure=FAILURE))

    assert tester.cures(["fix"]) is is_cured


FAILED: Any = SimpleNamespace(**vars(FAILURE), op_index=0)


def request(reason) -> Any:
    return SimpleNamespace(tokens=[1, 2], prompt_len=1, reason=reason, is_aborted=False)


@pytest.mark.parametrize(
    ("behind", "is_cured"),
    [
        pytest.param(None, True, id="nothing"),
        pytest.param(failure("third/law"), True, id="another-failure"),
        pytest.param(FAILURE, False, id="the-failure"),
    ],
)
def test_fix_that_only_delays_a_failure_until_behind_the_log_does_not_cure_it(monkeypatch, behind, is_cured):
    log = OpLog(Header(engine="demo", configs=[{}]), [Step()])

    def run(with_fixes, **_):
        ended = FAILURE if not with_fixes.header.fixes else behind
        at = len(with_fixes.ops) - 1
        return SimpleNamespace(systems=[], failure=ended and SimpleNamespace(**vars(ended), op_index=at))

    monkeypatch.setattr(cures, "run_log", run)

    assert FixTester(log, FAILURE, ()).cures(["fix"]) is is_cured


def test_request_is_the_same_if_the_ids_of_those_before_it_differ(monkeypatch):
    log = OpLog(Header(engine="demo", configs=[{}]), [Step()])

    def run(log, **_):
        reason, last = (FinishReason.REJECTED, 3) if log.header.fixes else (FinishReason.LENGTH, 2)
        of_id = {1: request(FinishReason.LENGTH), last: request(reason)}
        system = SimpleNamespace(reference=SimpleNamespace(expectations=of_id))
        return SimpleNamespace(systems=[system], failure=None if log.header.fixes else FAILED)

    monkeypatch.setattr(cures, "run_log", run)

    assert not FixTester(log, FAILURE, ()).cures(["fix"])


@pytest.mark.parametrize(
    ("refused_at", "is_cured"),
    [pytest.param(2, False, id="at-the-step-of-the-failure"), pytest.param(3, True, id="after-it")],
)
def test_request_that_is_refused_after_the_step_of_the_failure_is_not_dropped(monkeypatch, refused_at, is_cured):
    log = OpLog(Header(engine="demo", configs=[{}]), [Step()])

    def run(log, observe, **_):
        served = request(None)
        driver = SimpleNamespace(systems=[SimpleNamespace(reference=SimpleNamespace(expectations={1: served}))])
        for transition in range(1, 5 if log.header.fixes else 3):
            if log.header.fixes and transition == refused_at:
                served.reason = FinishReason.ABORT
            observe(driver, None)
        driver.failure = None if log.header.fixes else FAILED
        return driver

    monkeypatch.setattr(cures, "run_log", run)

    assert FixTester(log, FAILURE, ()).cures(["fix"]) is is_cured


def test_fixes_that_cannot_run_are_left_out_of_a_set_and_found_by_halves():
    tester = FakeTester(lambda _: Ending())
    tester.errors |= {frozenset([fix]): "dies" for fix in ("fix-3", "fix-12")}

    assert tester.extended(["fix-0"], FIXES[1:]) == [fix for fix in FIXES if fix not in ("fix-3", "fix-12")]
    assert tester.num_runs <= 12


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(("first/law",), True, id="same-name"),
        pytest.param(("third/law", "first/law"), True, id="among-those-of-the-other"),
        pytest.param(("second/law", "third/law"), True, id="that-of-the-other-among-its-own"),
        pytest.param(("third/law",), False, id="another"),
    ],
)
def test_failures_are_the_same_if_one_has_the_fingerprint_of_the_other(other, expected):
    assert is_same(FAILURE.fingerprints, other) is expected
