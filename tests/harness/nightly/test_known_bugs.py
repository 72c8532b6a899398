"""A night counts the failures of known bugs apart, and says which they are."""

import json

import pytest

from docs.make.pages import ROOT
from swarden.harness.core.admission import load_log
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.replay import Verdict
from swarden.harness.report.story import StoryLine, StoryPart
from swarden.harness.search.archive_files import read, save
from swarden.harness.search.cures import DOES_NOT_HELP
from swarden.harness.search.keys import BEFORE_HASH, Key
from swarden.harness.search.result import Finding
from swarden.harness.search.verification import Cause
from tests.harness.some_bugs import OF_BLOCKS, OF_PROMPTS, STUCK, swarden_with_bugs

PATH = ROOT / "tests/quality/oplogs/B18.oplog"
CAUSE = Cause(namesakes={OF_BLOCKS: DOES_NOT_HELP}, fails_with=(OF_PROMPTS,), revealed=STUCK)


def test_finding_is_read_from_its_file_as_it_was(tmp_path):
    line = StoryLine(StoryPart.EVIDENCE, "block 3: owned by nobody", 2)
    finding = Finding(STUCK, load_log(PATH), 1.0, "swarden", cause=CAUSE, story=[line], key=Key(["a"]), passed=["b"])
    save(tmp_path / "a.json", finding.repeated(Verdict.FLAKY, 2, 3, "why", names=[STUCK]), tmp_path)

    read_back = read(tmp_path / "a.json", Finding, tmp_path)

    assert (read_back.log, read_back.cause, read_back.story) == (finding.log, CAUSE, [line])
    assert (read_back.key, read_back.passed, read_back.why_flaky) == (Key(["a"]), ["b"], "why")


def test_finding_of_an_older_journal_is_read(tmp_path):
    older = {
        "fingerprint": STUCK,
        "log": PATH.read_text(),
        "found_cpu_seconds": 1.0,
        "story": ["a line"],
        "recorded": "",
    }
    (tmp_path / "a.json").write_text(json.dumps(older))

    assert read(tmp_path / "a.json", Finding, tmp_path).log == load_log(PATH)


def test_finding_of_another_build_begins_its_shrink_again():
    finding = Finding(STUCK, load_log(PATH), 1.0, passed=["b"])

    admitted = finding.admitted(PATH, "swarden")

    assert (admitted.engine, admitted.passed) == ("swarden", ())


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """The record of a night on an engine with known bugs, its report, and its exit code."""
    swarden = swarden_with_bugs(tmp_path_factory.mktemp("bugs"))
    run = swarden(
        "nightly", "--engine", "blockserve", "--runs", 8, "--workers", 1, "--profile", "smoke", "--seed", 3, "--json"
    )
    [report] = swarden.folder.glob(".swarden/archive/nights/*/report.md")
    return json.loads(run.stdout), report.read_text(), run.returncode


def test_night_names_its_known_bugs_and_is_judged_by_its_finding(night):
    record, report, code = night
    [engine] = record["engines"]

    assert set(engine["tallies"]["known"]) <= {OF_BLOCKS, OF_PROMPTS, f"{OF_BLOCKS} + {OF_PROMPTS}"}
    assert engine["tallies"]["known"]
    assert all(f"| {names} | blockserve | " in report for names in engine["tallies"]["known"])
    assert code == ExitCode.STUCK


def test_findings_of_a_night_are_those_that_no_fix_cures(night):
    record, *_ = night
    tallies = record["engines"][0]["tallies"]

    assert {finding["fingerprint"].partition(BEFORE_HASH)[0] for finding in record["findings"]} <= {STUCK}
    assert sum(tallies["known"].values()) + sum(tallies["failures"].values()) == tallies["failed_runs"]
