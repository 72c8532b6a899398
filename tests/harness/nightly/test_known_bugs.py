"""A night counts the failures of known bugs apart, and says which they are."""

import json

import pytest

from tests.harness.some_bugs import OF_BLOCKS, OF_PROMPTS, STUCK, swarden_with_bugs


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """The record of a night on an engine with known bugs, its report, and its exit code."""
    swarden = swarden_with_bugs(tmp_path_factory.mktemp("bugs"))
    run = swarden(
        "nightly", "--engine", "blockserve", "--runs", 24, "--workers", 1, "--profile", "smoke", "--seed", 3, "--json"
    )
    [report] = swarden.folder.glob(".swarden/archive/nights/*/report.md")
    return json.loads(run.stdout), report.read_text(), run.returncode


def test_night_names_its_known_bugs_and_is_violated(night):
    record, report, code = night
    [engine] = record["engines"]

    assert set(engine["tallies"]["known"]) <= {OF_BLOCKS, OF_PROMPTS, f"{OF_BLOCKS} + {OF_PROMPTS}"}
    assert engine["tallies"]["known"]
    assert "known: " in report
    assert code == 1


def test_findings_of_a_night_are_those_that_no_fix_cures(night):
    record, *_ = night
    tallies = record["engines"][0]["tallies"]

    assert {one["fingerprint"] for one in record["findings"]} <= {STUCK}
    assert sum(tallies["known"].values()) + sum(tallies["failures"].values()) == tallies["failed_runs"]
