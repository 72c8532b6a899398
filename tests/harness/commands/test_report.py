"""The page of an archive, and of the findings of a campaign."""

import re
import shutil
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from swarden.harness.commands import report as command
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import Archive, EngineOfNight, FindingOfNight, Night, Sighting, Status
from swarden.harness.nightly.night_records import Canary, PhaseRecord
from swarden.harness.nightly.page import RunPart
from swarden.harness.nightly.page import page_of as page_of_archive
from swarden.harness.search.archive_files import save
from swarden.harness.search.mutes import Mute
from swarden.harness.search.result import Tallies
from tests.harness.report.html import parsed
from tests.harness.some_commands import swarden

OPLOGS = Path(__file__).parents[2] / "quality" / "oplogs"
NIGHTS = ("2026-11-23-01-aaaa", "2026-11-24-01-bbbb")
OPEN, FIXED, QUIET = "shared_pages_match_tree_path/full page/not_on_the_path", "engine/fixed", "stuck/drain"
HOSTILE = "<script>alert(1)</script>\x1b[2J"


def add_finding(archive, fingerprint, statuses, log=None, **fields):
    """A finding with a status in each night; `log` is the id of the planted bug whose op-log it has."""
    found = archive.finding("swarden", fingerprint)
    names: dict[str, Any] = {}
    if log is not None:
        shutil.copy(OPLOGS / f"{log}.oplog", found.folder)
        (found.folder / f"{log}.txt").write_text(f"the story of {log}")
        names = {"log": f"{log}.oplog"}
    for night, status in zip(NIGHTS[-len(statuses) :], statuses, strict=True):
        found.add(Sighting(night=night, engine="swarden", version="0.1.0", status=status, **names, **fields))
    return FindingOfNight(folder=found.name, fingerprint=fingerprint, sighting=found.sightings[-1])


def a_night(name, findings=(), **fields):
    tallies = Tallies(
        runs=5000,
        steps=120_000,
        probes=Counter(retracted=7, preempted=1),
        evaluated=Counter(unit_has_one_owner=119_000),
        not_applicable=Counter(unit_has_one_owner=20, node_locks_match_receipts=900),
        ops=Counter(submit=100),
        noops=Counter(submit=25),
        fired=Counter({"host.slow": 12}),
    )
    engine = EngineOfNight(
        engine="swarden",
        version="0.1.0",
        source_hash="",
        tallies=tallies,
        cpu_seconds=100.0,
        wanted={"retracted": 5, "preempted": 5},
        owed=["probe preempted: seen in 1 runs, want at least 5"],
    )
    settings = {
        "name": name,
        "command": "swarden nightly",
        "swarden": "0.1.0",
        "seed": 7,
        "profile": "nightly",
        "started": "2026-11-24T01:00:00Z",
        "ended": "2026-11-24T02:00:00Z",
        "exit_code": ExitCode.VIOLATED,
        "phases": [PhaseRecord(name="traffic", line="5000 runs", seconds=60.0, cpu_seconds=0.5)],
        "canaries": [Canary(engine="swarden", mutant="B43", law="reserved_units_never_run_out", runs=1)],
    }
    return Night(engines=[engine], findings=list(findings), **(settings | fields))


def save_night(archive, night):
    save(archive.nights_folder / night.name / "night.json", night, archive.root)


def an_archive(root):
    """Two nights, and three findings: one open with an op-log, one fixed, one in quarantine."""
    archive = Archive(root)
    shown = [
        add_finding(archive, FIXED, [Status.RECURRING, Status.FIXED]),
        add_finding(archive, OPEN, [Status.NEW], "B18"),
        add_finding(archive, QUIET, [Status.NEW, Status.RECURRING]),
    ]
    archive.finding("swarden", QUIET).put_in_quarantine(Mute(reason="known limit", until=date(2027, 1, 1)))
    save_night(archive, a_night(NIGHTS[0]))
    save_night(archive, a_night(NIGHTS[1], shown))
    return archive


@pytest.fixture
def archive(tmp_path):
    return an_archive(tmp_path / "archive")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of an archive with a kill matrix and a corpus of one log."""
    folder = tmp_path_factory.mktemp("report")
    archive = an_archive(folder / "archive")
    (archive.root / "kill-matrix.md").write_text("a_law  ..#..")
    corpus = archive.corpus_of("swarden")
    corpus.mkdir(parents=True)
    header = Header(engine=OWN, machine="engine", configs=[{}])
    OpLog(header, [Submit(), Drain()]).save(corpus / "0001.oplog")
    return page_of(archive.root, folder, "--coverage", 20)


def page_of(folder, tmp_path, *options):
    run = swarden("report", folder, "-o", tmp_path / "page.html", *options, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    return parsed((tmp_path / "page.html").read_text())


def page_without_runs(folder):
    return parsed(page_of_archive(folder, lambda _: {}, lambda *_: None))


def section(page, title):
    """The tables after the heading with this title, up to the next one."""
    children = page.all("main")[0].children
    [start] = [index for index, child in enumerate(children) if child.tag == "h2" and child.text.startswith(title)]
    ends = [index for index, child in enumerate(children) if child.tag == "h2" and index > start]
    return [table for child in children[start : ends[0] if ends else None] for table in [child, *child.all("table")]]


def rows_of(tables):
    return [
        [cell.text for cell in row.all("td")] for table in tables if table.tag == "table" for row in table.all("tr")
    ]


def test_page_has_each_finding_with_its_run_the_most_urgent_first(page):
    found = page.all("details", "finding")
    names = [article.all("span", "name")[0].text for article in found]
    assert names == [OPEN, FIXED, QUIET]
    assert [article.all("span", "chip")[0].text for article in found] == ["new", "fixed", "recurring"]
    assert found[0].all("span", "about")[0].text == f"swarden 0.1.0 · 3 ops · 1 night, {NIGHTS[1]}"
    assert found[0].all("p", "claim")[0].text.startswith("shared_pages_match_tree_path: ")
    assert len(found[0].all("tbody")[0].all("tr")) == 7
    assert found[2].all("span", "about")[0].text.endswith("quarantined until 2027-01-01: known limit")
    assert all("open" not in article.attributes for article in found)


def test_page_has_the_last_night_with_its_verdict_reasons_and_figures(page):
    assert page.all("h1")[0].text == f"Night {NIGHTS[1]} violated"
    assert page.all("ul", "reasons")[0].text == "swarden: probe preempted: seen in 1 runs, want at least 5"
    tiles = {tile.all("dt")[0].text: tile.all("dd")[0].text for tile in page.all("dl", "tiles")[0].all("div")}
    assert tiles == {
        "open findings": "2",
        "new": "1",
        "recurring": "1",
        "fixed": "1",
        "runs": "5,000",
        "engine steps": "120,000",
        "canaries found": "1 of 1",
    }
    assert ["traffic", "60.0", "0.50", "5000 runs"] in rows_of(section(page, "What ran"))


def test_page_has_the_status_of_each_finding_in_each_night_and_the_throughput(page):
    history, nights = [table for table in section(page, "The archive over the nights") if table.tag == "table"]
    cells = {
        row.all("td")[0].text: [[icon.classes[1] for icon in cell.all("i")] for cell in row.all("td")[1:]]
        for row in history.all("tbody")[0].all("tr")
    }
    assert cells == {
        "verdict": [["v-warn"], ["v-bad"]],
        OPEN: [[], ["s-new"]],
        FIXED: [["s-recurring"], ["s-fixed"]],
        QUIET: [["s-new"], ["s-recurring"]],
    }
    newest = nights.all("tbody")[0].all("tr")[0]
    assert [cell.text for cell in newest.all("td")] == [
        *(NIGHTS[1], "violated", "swarden 0.1.0", "5,000", "120,000", "0", "1,200"),
        "B43 found by reserved_units_never_run_out after 1 run",
    ]


def test_page_has_probes_with_floors_faults_and_the_laws_by_engine(page):
    """A probe below its floor is marked; a law that was never evaluated on an engine has a dash."""
    coverage = section(page, "Coverage of swarden")
    assert ["preempted", "1", "5"] in rows_of(coverage)
    assert [row.text for table in coverage for row in table.all("tr", "failed") if table.tag == "table"] == [
        "preempted 1 5"
    ]
    assert ["submit", "100", "25%"] in rows_of(coverage)
    assert ["host.slow", "12"] in rows_of(coverage)
    laws = rows_of(section(page, "Laws and contracts"))
    assert ["unit has one owner", "119,000", "20"] in laws
    assert ["node locks match receipts", "\u2013", "900"] in laws


def test_page_has_the_lines_of_the_engine_that_its_corpus_runs(page):
    code = page.all("details", "code")[0]

    assert code.all("summary")[0].text.startswith("Code that 1 of the 1 op-logs of the corpus run: ")
    shares = {row.all("td")[0].text: int(row.all("td")[3].text.rstrip("%")) for row in code.all("tbody")[0].all("tr")}
    assert 0 < shares["cache/tree.py"] < shares["pools/ledger.py"] <= 100
    assert "host/copy_jobs.py" not in shares  # its functions did not run
    [tree] = [row for row in code.all("tr") if row.text.startswith("cache/tree.py")]
    assert re.search(r"\d+-\d+", tree.all("td")[4].text)


def test_unreadable_file_of_an_archive_is_named_and_the_rest_is_shown(archive):
    broken = archive.nights_folder / NIGHTS[0] / "night.json"
    broken.write_text("{")

    page = page_without_runs(archive.root)

    assert str(broken) in page.all("ul", "reasons")[0].text
    assert page.all("h1")[0].text.startswith(f"Night {NIGHTS[1]}")


def test_night_that_has_not_ended_is_not_shown_as_green(archive):
    later = "2026-11-25-01-cccc"
    save_night(archive, a_night(later, exit_code=None, ended=""))

    page = page_without_runs(archive.root)

    assert page.all("h1")[0].text == f"Night {NIGHTS[1]} violated"
    assert any(later in row[0] and row[1] == "not ended" for row in rows_of(section(page, "The archive")) if row)


def test_page_of_a_campaign_has_its_op_logs_and_what_cannot_be_read(tmp_path):
    (tmp_path / "findings" / "swarden").mkdir(parents=True)
    shutil.copy(OPLOGS / "B18.oplog", tmp_path / "findings" / "swarden")
    (tmp_path / "findings" / "torn.oplog").write_text("{")

    page = page_of(tmp_path / "findings", tmp_path)

    first, second = page.all("details", "finding")
    assert first.all("span", "name")[0].text == OPEN
    assert first.all("table", "timeline")
    assert (second.all("span", "chip")[0].text, second.all("span", "name")[0].text) == ("error", "torn")
    assert "torn.oplog:1: " in second.all("p", "note")[0].text


def test_run_that_ends_its_process_is_named_and_the_other_runs_are_shown(tmp_path, monkeypatch):
    """A run that takes too long is named, too; the other op-logs run in a new process."""
    good, deadly, slow = (tmp_path / f"{name}.oplog" for name in ("good", "deadly", "slow"))
    for path in (good, deadly, slow):
        shutil.copy(OPLOGS / "B18.oplog", path)
    monkeypatch.setattr(command, "_send_parts", send_or_die)

    parts = dict(command._parts([deadly, slow, good], seconds=3))

    assert parts[deadly].why_not == "the run ended its process"
    assert parts[slow].why_not == "the run took more than 3 s"
    assert parts[good].html.startswith("good")


def send_or_die(parent, paths):
    """Stands for runs of which one ends its process and one does not end."""
    parent.beat()
    for path in paths:
        if path.stem == "deadly":
            sys.exit()
        if path.stem == "slow":
            Event().wait()
        parent.send(RunPart(html=path.stem))


def test_folder_without_nights_and_op_logs_is_a_mistake(tmp_path):
    """Op-logs in folders further below are ignored."""
    (tmp_path / "other" / "swarden").mkdir(parents=True)
    for folder in ("other", "other/swarden"):
        shutil.copy(OPLOGS / "B18.oplog", tmp_path / folder)
    run = swarden("report", tmp_path, cwd=tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.endswith(
        "has no nights and no op-logs; want an archive, or the folder of a campaign's findings\n"
    )


def test_text_of_an_archive_is_escaped(tmp_path):
    """No text of its files becomes an element of the page, and none has a control character."""
    archive = Archive(tmp_path / "archive")
    finding = add_finding(archive, HOSTILE, [Status.ERROR], why=HOSTILE)
    archive.finding("swarden", HOSTILE).put_in_quarantine(Mute(reason=HOSTILE, until=date(2027, 1, 1)))
    (archive.root / "kill-matrix.md").write_text(HOSTILE)
    phase = PhaseRecord(name=HOSTILE, line=HOSTILE, seconds=0.0, cpu_seconds=0.0)
    canary = Canary(engine="swarden", mutant=HOSTILE, law=HOSTILE)
    texts = {"command": HOSTILE, "profile": HOSTILE, "errors": [HOSTILE], "started": HOSTILE}
    save_night(archive, a_night(NIGHTS[1], [finding], phases=[phase], canaries=[canary], **texts))

    page = page_of(archive.root, tmp_path)

    assert page.all("script") == []
    assert "\x1b" not in (tmp_path / "page.html").read_text()
    assert page.text.count(r"<script>alert(1)</script>\x1b[2J") >= 9
