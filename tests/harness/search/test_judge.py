"""The judge says which fixes cure a failure, and what the same failure is."""

from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.search.judge import Ending, Judge, is_same
from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.view import RequestView

NO_LOG: Any = None
FIXES = [f"fix-{number}" for number in range(20)]


def failure(*fingerprints) -> Any:
    return SimpleNamespace(fingerprint=fingerprints[0], fingerprints=fingerprints)


FAILURE = failure("first/law", "second/law")


class Judged(Judge):
    """A judge of a log that ends as `ends` says for each set of fixes."""

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
    judge = Judged(lambda fixes: Ending(None if needed <= fixes else FAILURE))

    assert {*judge.fewest(FIXES)} == needed
    assert judge.num_runs <= most_runs


def test_fix_that_only_undoes_another_one_is_not_needed():
    """One fix cures the log, a second one spoils it, and a third one makes up for that."""
    judge = Judged(lambda fixes: Ending(None if "b" in fixes and ("c" not in fixes or "a" in fixes) else FAILURE))

    assert judge.fewest(["a", "b", "c"]) == ["b"]


def test_log_that_passes_when_it_is_run_again_is_cured_by_nothing():
    judge = Judged(lambda _: Ending())

    assert not judge.cures(["fix"])


def ending(reason, num_outputs):
    """The end of a log with a request 7 that has output tokens, and ends for a reason."""
    ended = Ending()
    requests = [RequestView(7, "running", 0, 4, num_outputs, 9)]
    finished = [Finished(7, reason)] if reason is not None else []
    change: Any = SimpleNamespace(after=SimpleNamespace(requests=requests), events_of=lambda _: finished)
    ended.look(change)
    return ended


@pytest.mark.parametrize(
    ("before", "num_outputs", "after", "is_cured"),
    [
        pytest.param(None, 1, FinishReason.LENGTH, True, id="answered"),
        pytest.param(None, 1, FinishReason.ABORT, True, id="aborted-by-its-client"),
        pytest.param(None, 1, FinishReason.REJECTED, False, id="refused"),
        pytest.param(FinishReason.LENGTH, 1, FinishReason.OUT_OF_MEMORY, False, id="dropped-and-answered-without"),
        pytest.param(None, 0, FinishReason.REJECTED, True, id="refused-and-never-served"),
        pytest.param(FinishReason.ABORT, 1, FinishReason.OUT_OF_MEMORY, True, id="dropped-without-it-too"),
    ],
)
def test_fix_that_drops_a_request_which_was_served_cures_nothing(before, num_outputs, after, is_cured):
    without, with_fix = ending(before, num_outputs), ending(after, 0)
    without.failure = FAILURE
    judge = Judged(lambda fixes: with_fix if fixes else without)

    assert judge.cures(["fix"]) is is_cured


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
    assert is_same(FAILURE, failure(*other)) is expected
