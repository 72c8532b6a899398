"""What of a change a campaign has run, and the steering of its runs to settings that reach it."""

from inspect import getsourcelines

import pytest

from swarden.engine_under_test.host.tier import HostTier
from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.counters import Coverage
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.reach import CANNOT_FOLLOW, Reach, ReachSteering
from tests.harness.driving import TINY

LINES = [ChangedLine("a/one.py", number, f"line {number}", "a.one:f") for number in (3, 4, 5)]


@pytest.mark.parametrize(
    ("ran", "imported", "summary", "is_reached"),
    [
        ([], [], "no changed line is in a module that is driven (a/one.py)", True),
        ([], [0, 1], "not reached: none of 2 changed lines ran: a/one.py:3: line 3, a/one.py:4: line 4", False),
        ([1], [0, 1, 2], "1 of 3 changed lines ran; these did not: a/one.py:3: line 3, a/one.py:5: line 5", True),
        ([0, 1, 2], [0, 1, 2], "3 of 3 changed lines ran", True),
    ],
    ids=["not-driven", "not-reached", "partly", "all"],
)
def test_outcome_says_what_of_a_change_ran(ran, imported, summary, is_reached):
    reach = Reach(LINES, Coverage(frozenset(ran), frozenset([0]), frozenset(imported)), {"want a GPU": 2})

    assert (reach.summary, reach.is_reached) == (summary, is_reached)
    if ran == [1]:
        assert reach.details == [
            "a/one.py:3: line 3",
            f"a/one.py:5: line 5{CANNOT_FOLLOW}",
            "refused: want a GPU (2 draws)",
        ]


def test_half_of_the_runs_have_the_settings_of_runs_that_reached_a_rare_line():
    """A common line, one that no run has reached, and a run that failed leave the drawn settings as they are."""
    target, steering = target_of(OWN), ReachSteering(LINES)
    drawn = [[target.decode({"full_pages": 64 + number})] for number in range(40)]
    for page_size, ran, is_healthy in (
        (1, {0}, True),
        (2, {0, 1}, False),
        (8, {0, 1}, True),
        (1, {0}, True),
        (1, {0}, True),
    ):
        log = OpLog(Header(engine=OWN, configs=[{**target.defaults, "page_size": page_size}]), [])
        steering.note(log, ran, is_healthy=is_healthy)

    before = [steering.steered(target, configs) for configs in drawn]
    steering.begin_batch("engine")
    steered = [steering.steered(target, configs) for configs in drawn]

    assert before == drawn
    assert {one.page_size for [one] in steered} == {target.defaults["page_size"], 8}
    assert 10 < sum(one.page_size == 8 for [one] in steered) < 30
    assert steered == [steering.steered(target, configs) for configs in drawn]


def test_campaign_notes_what_ran_and_equal_seeds_still_give_equal_runs():
    line = getsourcelines(HostTier.poll)[1] + 2  # behind its docstring
    change = (ChangedLine("", line, "", f"{HostTier.__module__}:HostTier.poll"),)
    plan = Plan(engine=OWN, profile=TINY, seed=11, max_runs=6, machine="engine", change=change)

    first, second = (Worker(plan, lambda _: None).work() for _ in range(2))

    assert first.coverage == Coverage(frozenset([0]), frozenset([0]), frozenset([0]))
    assert first.tallies == second.tallies
    assert first.diverged == []
