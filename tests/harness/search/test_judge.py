"""The judge says which fixes cure a failure, and what the same failure is."""

from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.search.judge import Ending, Judge, is_same
from swarden.invariants.events import Finished, FinishReason, Launched

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
        pytest.param({"fix-3"}, 8, id="one"),
        pytest.param({"fix-0", "fix-19"}, 14, id="two"),
        pytest.param({"fix-4", "fix-5", "fix-11"}, 20, id="three"),
    ],
)
def test_fewest_fixes_are_those_that_the_log_needs(needed, most_runs):
    judge = Judged(lambda fixes: Ending(None if needed <= fixes else FAILURE))

    assert {*judge.fewest(FIXES)} == needed
    assert judge.num_runs <= most_runs


def test_fixes_that_cure_in_one_order_only_are_all_named():
    whole = {*FIXES[:3]}
    judge = Judged(lambda fixes: Ending(None if fixes == whole or fixes == {"fix-1", "fix-2", "x"} else FAILURE))

    assert {*judge.fewest(FIXES[:3])} == whole


def seen(*events):
    ending = Ending()
    change: Any = SimpleNamespace(events_of=lambda kind: [one for one in events if isinstance(one, kind)])
    ending.look(change)
    return ending


PASS = Launched(1, ((7, 0, 4),))


@pytest.mark.parametrize(
    ("before", "after", "is_cured"),
    [
        pytest.param([PASS], [Finished(7, FinishReason.LENGTH)], True, id="answered"),
        pytest.param([PASS], [Finished(7, FinishReason.ABORT)], True, id="aborted-by-its-client"),
        pytest.param([PASS], [Finished(7, FinishReason.REJECTED)], False, id="refused"),
        pytest.param([], [Finished(7, FinishReason.REJECTED)], True, id="refused-and-never-served"),
        pytest.param(
            [PASS, Finished(7, FinishReason.TIMEOUT)], [Finished(7, FinishReason.TIMEOUT)], True, id="dropped-before"
        ),
    ],
)
def test_fix_that_drops_a_request_which_was_served_cures_nothing(before, after, is_cured):
    without, with_fix = seen(*before), seen(*after)
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
