"""The exit code and the verdict of a campaign."""

from collections import Counter
from dataclasses import replace
from datetime import date

import pytest

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import Verdict
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.report.vulnerability import WARNING
from swarden.harness.search.campaign import Plan
from swarden.harness.search.mutes import Mute
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.result import Finding, Reached, Result, Tallies
from swarden.harness.search.traffic.profiles import PROFILES

LOG = OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [])
SMOKE = replace(PROFILES["smoke"], min_runs=10)
HELD = Plan(engine=OWN, profile=replace(SMOKE, must_evaluate=True, probe_floor=0.01), machine="pd")
PLAN, ENOUGH = Plan(engine=OWN, profile=SMOKE), Result(Tallies(runs=10))
PLANTED = replace(PLAN, mutant="B18")


def report(*fingerprints: str) -> Finding:
    return Finding(fingerprints[0], LOG, 0.0).repeated(Verdict.FAILED, 1, 1, names=fingerprints)


def outcome(**changes) -> Outcome:
    """A campaign with enough runs and no finding."""
    return replace(Outcome(PLAN, "swarden fuzz", ENOUGH), **changes)


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({}, ExitCode.CLEAN, "green"),
        ({"result": Result(Tallies(runs=9))}, ExitCode.CLEAN, "not judged"),
        ({"is_interrupted": True}, ExitCode.INTERRUPTED, "not judged"),
        (
            {"findings": [report("crash/SIGKILL/step").changed(verdict=None)], "is_interrupted": True},
            ExitCode.INTERRUPTED,
            "not judged",
        ),
        ({"plan": HELD}, ExitCode.RED, "red"),
        (
            {"plan": HELD, "result": Result(Tallies(runs=10, evaluated=Counter(unit_has_one_owner=9)))},
            ExitCode.CLEAN,
            "green",
        ),
        (
            {"plan": HELD, "result": Result(Tallies(runs=10, ops=Counter(step=40), noops=Counter(step=21)))},
            ExitCode.RED,
            "red",
        ),
        ({"findings": [report("stuck/drain")]}, ExitCode.STUCK, "stuck"),
        ({"findings": [report("stuck/drain"), report("crash/SIGSEGV/step")]}, ExitCode.VIOLATED, "violated"),
        ({"findings": [report("stuck/drain")], "is_interrupted": True}, ExitCode.STUCK, "stuck"),
        ({"not_reproduced": ["does not fail again"]}, ExitCode.NONDETERMINISTIC, "not deterministic"),
        ({"result": Result(Tallies(runs=10), unexplained_deaths=["worker 0 was killed"])}, ExitCode.RED, "red"),
        ({"plan": PLANTED}, ExitCode.RED, "red"),
        ({"plan": PLANTED, "is_interrupted": True}, ExitCode.INTERRUPTED, "not judged"),
        ({"findings": [report("crash/SIGKILL/step").changed(verdict=None)]}, ExitCode.RED, "red"),
    ],
)
def test_campaign_ends_with_its_code_and_verdict(changes, code, verdict):
    ended = outcome(**changes)

    assert ended.judgement == (code, verdict)
    assert ended.lines()[-1].startswith(verdict)


LISTED = BY_ID["B18"].caught_by[0]


@pytest.mark.parametrize(
    ("further", "by"),
    [([f"{LISTED}/page"], LISTED), ([], "another_law, which is not in its caught_by")],
    ids=["listed", "another-law"],
)
def test_planted_bug_is_found_by_any_law(further, by):
    ended = outcome(plan=PLANTED, findings=[report("another_law/page", *further)])

    assert (ended.found, ended.owed, ended.verdict) == (f"mutant B18: found by {by}", [], "violated")


@pytest.mark.parametrize(("further", "warned"), [(["crash/SIGSEGV"], [WARNING]), ([], [])], ids=["crash", "leak-alone"])
def test_finding_one_of_whose_fingerprints_may_be_a_vulnerability_has_the_warning(further, warned):
    assert outcome(findings=[report("unit_has_one_owner/block/leaked", *further)]).causes[1:] == warned


@pytest.mark.parametrize(("since", "is_plateau"), [(99, False), (100, True)], ids=["a-tenth-is-less", "a-tenth"])
def test_campaign_whose_last_runs_reached_nothing_new_says_so(since, is_plateau):
    result = Result(Tallies(runs=998 - since), reached=Reached(frozenset({1, 2})))
    for kinds in [{2}, {3}, *[{1, 3}] * since]:
        result.add(Result(Tallies(runs=1), reached=Reached(frozenset(kinds))))

    ended = outcome(result=result)

    assert ended.summary()["runs_since_new"] == since
    assert any(line.startswith("plateau") for line in ended.lines()) == is_plateau


@pytest.mark.parametrize(
    ("evaluated", "not_applicable"),
    [
        (Counter(), Counter()),
        (Counter(refused_takes_change_nothing=1), Counter()),
        (Counter(), Counter(refused_takes_change_nothing=1)),
    ],
    ids=["neither", "evaluated", "never-reported"],
)
def test_law_whose_events_never_came_is_named(evaluated, not_applicable):
    tallies = Tallies(runs=100, evaluated=evaluated + Counter(unit_has_one_owner=9), not_applicable=not_applicable)

    ended = outcome(plan=HELD, result=Result(tallies))

    [line] = [text for text in ended.lines() if text.startswith("never due")]
    assert ("refused_takes_change_nothing" in line) == (not evaluated and not not_applicable)


@pytest.mark.parametrize(
    ("name", "until", "code", "line"),
    [
        pytest.param("law/x", "2999-01-01", ExitCode.CLEAN, "muted: law/x until 2999", id="fingerprint"),
        pytest.param("law/x~1", "2999-01-01", ExitCode.VIOLATED, "new: law/x", id="other-kind"),
        pytest.param("law/x", "2001-01-01", ExitCode.VIOLATED, "the mute has ended: law/x until 2001", id="ended"),
        pytest.param(
            "a", "2999-01-01", ExitCode.VIOLATED, "muted: a or b \N{MULTIPLICATION SIGN}3 until 2999", id="either"
        ),
        pytest.param("c", "2999-01-01", ExitCode.VIOLATED, "known: c + d", id="half-of-two"),
    ],
)
def test_mute_counts_and_hides_what_it_names_until_its_date(name, until, code, line):
    mutes = {name: Mute(until=date.fromisoformat(until), reason="issue 5")}
    tallies = Tallies(runs=10, failed_runs=10, known=Counter({"a or b": 3, "c + d": 1}))

    ended = outcome(findings=[report("law/x")], result=Result(tallies), mutes=mutes)

    assert ended.judgement.exit_code is code
    assert [cause for cause in ended.causes if cause.startswith(line)]


@pytest.mark.parametrize(
    ("known", "fixes", "is_said"),
    [(6, (), True), (5, (), False), (6, ("a-bug",), False)],
    ids=["most", "half", "behind-a-fix"],
)
def test_campaign_says_how_to_search_behind_known_bugs_if_most_failed_runs_are_of_them(known, fixes, is_said):
    tallies = Tallies(runs=20, failed_runs=10, known=Counter({"a-bug": known}))

    ended = outcome(result=Result(tallies), plan=replace(outcome().plan, fixes=fixes))

    line = f"{known} of 10 failed runs are of known bugs: --with-fix all searches behind them"
    assert (line in ended.lines()) == is_said
