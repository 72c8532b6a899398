"""A campaign, a night and a backtest with the same failures have the same verdict and exit code."""

from collections import Counter

import pytest

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import EngineOfNight, FindingOfNight, Night, Sighting, Status
from swarden.harness.nightly.verdict import judgement_of
from swarden.harness.releases.backtest_results import Frozen, Pair
from swarden.harness.releases.backtest_results import Outcome as OfFinding
from swarden.harness.releases.backtest_results import judgement_of as judgement_of_pairs
from swarden.harness.search.judgement import NOT_JUDGED, ONLY_KNOWN, VERDICTS
from swarden.harness.search.result import Result, Tallies
from tests.harness.search.test_outcome import outcome, report

LEAK, STUCK, BUG = "unit_has_one_owner/page/leaked", "stuck/drain", "a-known-bug"


def of_campaign(new, known):
    return outcome(findings=[*map(report, new)], result=Result(Tallies(runs=10, known=Counter(known)))).judgement


def of_night(new, known):
    sighting = Sighting(night="2026-11-25-01-aaaa", engine=OWN, status=Status.NEW)
    engine = EngineOfNight(engine=OWN, version="1", source_hash="", tallies=Tallies(known=Counter(known)))
    findings = [FindingOfNight(folder="a", fingerprint=name, sighting=sighting) for name in new]
    night = Night(name="a", command="", swarden="", seed=1, profile="", started="", engines=[engine], findings=findings)
    return judgement_of(night)


def of_backtest(new, known):
    judged = [frozen(name, OfFinding.STILL) for name in new]
    judged += [frozen(LEAK, OfFinding.STILL, bug) for bug in known]
    judged.append(frozen(LEAK, OfFinding.FOUND))
    return judgement_of_pairs([Pair(old="1", new="2", judged=judged), Pair(old="2", new="3", is_same=True)])


def frozen(name, outcome, bug=""):
    return Frozen(fingerprint=name, log="a", blake2b="", ops=1, bug=bug, outcome=outcome)


def test_backtest_whose_logs_cannot_be_run_on_the_newest_release_is_not_green():
    pair = Pair(old="1", new="2", judged=[frozen(LEAK, OfFinding.NOT_JUDGED)])

    assert judgement_of_pairs([pair]) == (ExitCode.CLEAN, NOT_JUDGED)


@pytest.mark.parametrize("judgement", [of_campaign, of_night, of_backtest])
@pytest.mark.parametrize(
    ("new", "known", "expected"),
    [
        pytest.param([], [], (ExitCode.CLEAN, "green"), id="clean"),
        pytest.param([], [BUG], (ExitCode.CLEAN, ONLY_KNOWN), id="only-known"),
        pytest.param([LEAK], [BUG], (ExitCode.VIOLATED, VERDICTS[ExitCode.VIOLATED]), id="open"),
        pytest.param([STUCK], [BUG], (ExitCode.STUCK, VERDICTS[ExitCode.STUCK]), id="stuck"),
    ],
)
def test_same_failures_have_the_same_verdict_wherever_they_are_found(judgement, new, known, expected):
    assert judgement(new, known) == expected
