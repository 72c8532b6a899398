"""The reports of a night: Markdown, JUnit and OpenMetrics."""

import re
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import Archive
from swarden.harness.nightly.events import schema
from swarden.harness.nightly.night_records import CANARY_RUNS, Canary
from swarden.harness.nightly.reports import junit, markdown, metrics
from swarden.harness.search.mutes import Mute
from tests.harness.nightly.some_nights import DOUBLE_FREE, FAILED, LEAK, night_of, shard_result, table

DOCS = Path(__file__).parents[3] / "docs"
METRIC = re.compile(r'swarden_night_\w+(\{\w+="[^"\n]*"(,\w+="[^"\n]*")*\})? -?[\d.e+]+')


@pytest.fixture
def second_night(tmp_path):
    """A night in which the canary was missed, one finding is new, and a known one is in quarantine."""
    night_of(tmp_path, table(lambda *_: shard_result(LEAK)))
    archive = Archive(tmp_path)
    archive.finding(OWN, LEAK).put_in_quarantine(Mute(reason="<b>known</b> | upstream", until=date(9999, 12, 31)))
    answers = table(
        lambda *_: shard_result(LEAK, DOUBLE_FREE),
        replay_log=FAILED,
        find_canary=Canary(engine=OWN, mutant="B46", runs=CANARY_RUNS),
    )
    return night_of(tmp_path, answers)


def test_reports_are_in_the_folder_of_the_night(tmp_path):
    night = night_of(tmp_path, table())

    folder = tmp_path / "nights" / night.name
    assert {path.name for path in folder.iterdir()} == {"night.json", "report.md", "junit.xml", "metrics.txt", "shards"}
    assert (folder / "report.md").read_text().startswith(f"# Night {night.name}: not judged\n")


def test_new_findings_come_before_known_ones(second_night):
    lines = [line for line in markdown(second_night).splitlines() if line.startswith(("| new ", "| recurring "))]

    assert [line.split()[1] for line in lines] == ["new", "recurring"]


def test_text_of_files_is_not_interpreted_by_markdown(second_night):
    """A bar would begin another cell of the table."""
    page = markdown(second_night)

    assert r"\<b\>known\</b\> \| upstream" in page
    assert "<b>" not in page


def test_junit_has_a_case_for_each_finding_canary_and_engine(second_night):
    [engine, archive] = ElementTree.fromstring(junit(second_night, {}))

    found = {case.get("name"): [child.tag for child in case] for case in engine}
    assert found == {DOUBLE_FREE: ["failure"], LEAK: ["skipped"], "B46": ["failure"], "smoke": ["skipped"]}
    assert (engine.get("tests"), engine.get("failures"), engine.get("skipped")) == ("4", "2", "2")
    assert archive.get("tests") == "0"


@pytest.mark.parametrize("refused", ["\x1b[31m\x00", "\ufffe", "\uffff", "\ud800"], ids=ascii)
def test_junit_of_text_that_xml_does_not_allow_can_be_parsed(second_night, refused):
    """Such text stands in each place that has a text of a file."""
    second_night.errors = [f"{refused}: <damaged> & torn"]
    second_night.name = second_night.profile = second_night.engines[0].engine = refused
    second_night.findings = [msgspec.structs.replace(finding, fingerprint=refused) for finding in second_night.findings]

    root = ElementTree.fromstring(junit(second_night, {finding.folder: refused for finding in second_night.findings}))

    assert root.find("testsuite[@name='archive']/testcase/error") is not None


def test_failure_in_junit_has_its_story_and_the_command_that_replays_it(tmp_path):
    night = night_of(tmp_path, table(lambda *_: shard_result(LEAK)))

    failure = ElementTree.parse(tmp_path / "nights" / night.name / "junit.xml").find(".//failure")

    assert failure is not None
    [story, command] = (failure.text or "").splitlines()
    assert story == "a story"
    assert load_log(Path(command.removeprefix("replay: swarden replay "))).header.expected == LEAK


def test_metrics_are_openmetrics_text(second_night):
    text = metrics(second_night)

    lines = text.splitlines()
    assert text.endswith("# EOF\n")
    assert [line for line in lines if not line.startswith("# ") and not METRIC.fullmatch(line)] == []
    assert f"swarden_night_exit_code {ExitCode.VIOLATED.value}" in lines
    assert 'swarden_night_findings{engine="swarden",status="recurring",quarantined="true"} 1' in lines
    assert 'swarden_night_canary_found{engine="swarden",mutant="B46"} 0' in lines


def test_published_schema_of_the_events_is_that_of_the_code():
    """Written by: python -c 'from swarden.harness.nightly.events import schema; print(schema().decode(), end="")'"""
    published = (DOCS / "events.schema.json").read_bytes()

    assert msgspec.json.decode(published) == msgspec.json.decode(schema())
