"""`swarden nightly` and `swarden archive`, as a user calls them."""

import json
import shlex
import shutil
import signal
from datetime import date
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.nightly.archive import Archive, Night, Sighting, Status
from swarden.harness.search.archive_files import read
from swarden.harness.search.mutes import Mute
from tests.harness.commands.test_commands import OPLOGS
from tests.harness.search.test_workers import DYING
from tests.harness.some_commands import swarden
from tests.harness.some_processes import processes_of, running, swarden_process, wait_until

SMALL = ("nightly", "--profile", "smoke", "--workers", 1, "--archive", "a")
SEED = 1  # of the nights: the canary that it chooses is found within a few runs
LAW = "requests_are_in_one_queue"  # finds B46


def test_planted_bug_is_found_in_one_night_and_fixed_in_the_next(tmp_path):
    """Each night finds its canary and prints a line for each phase; JUnit and events go to the user's files too."""
    first = swarden(
        *SMALL, "--runs", 8, "--seed", SEED, "--mutant", "B46", "--junit", "j.xml", "--events", "e.jsonl", cwd=tmp_path
    )
    second = swarden(*SMALL, "--runs", 1, "--seed", SEED, "--json", cwd=tmp_path)

    lines = [line.partition(": ")[0] for line in first.stdout.splitlines()]
    phases = ["replay", "canary", "traffic", "settle", "report"]
    assert (lines, first.returncode) == (phases, 1), first.stderr
    assert [line.split()[0] for line in first.stderr.splitlines() if " begins: " in line] == phases
    assert (tmp_path / "j.xml").read_text().count("<failure") >= 1
    assert {json.loads(line)["event"] for line in (tmp_path / "e.jsonl").read_text().splitlines()} >= {"phase", "runs"}
    night = json.loads(second.stdout)
    assert second.returncode == 0, second.stderr
    assert {finding["sighting"]["status"] for finding in night["findings"]} == {Status.FIXED}
    assert any(finding["fingerprint"].startswith(LAW) for finding in night["findings"])
    assert all(canary["law"] for canary in night["canaries"])
    [finding] = [finding for finding in Archive(tmp_path / "a").findings([]) if finding.fingerprint.startswith(LAW)]
    assert finding.log is not None
    assert swarden("replay", finding.log, cwd=tmp_path).returncode == 1  # with the mutant, which the log names
    assert "replay: swarden replay a/findings/" in finding.log.with_suffix(".txt").read_text()


def test_killed_night_continues_and_makes_the_runs_of_an_undisturbed_one(tmp_path):
    """kill -9 of the coordinator in mid-campaign; no process and no folder is left, and no run is counted twice."""
    of_demo = ("--engine", "demo", "--runs", 64, "--seed", SEED)  # two shards
    whole = swarden(*SMALL, *of_demo, "--json", cwd=tmp_path)
    (tmp_path / "tmp").mkdir()
    with running(*SMALL, "--archive", "b", *of_demo, cwd=tmp_path, TMPDIR=str(tmp_path / "tmp")) as coordinator:
        wait_until(lambda: any(tmp_path.glob("b/nights/*/shards/*.json")))
        coordinator.send_signal(signal.SIGKILL)
        coordinator.communicate()
        wait_until(lambda: not processes_of(coordinator.pid))
    assert list(tmp_path.glob("tmp/*")) == []
    [folder] = tmp_path.glob("b/nights/*")
    assert read(folder / "night.json", Night, folder).exit_code is None

    rest = swarden("nightly", "--resume", folder, "--workers", 1, "--json", cwd=tmp_path)

    assert (whole.returncode, rest.returncode) == (1, 1), (whole.stderr, rest.stderr)  # the demo has bugs
    figures = [json.loads(run.stdout)["engines"][0] for run in (whole, rest)]
    assert figures[0]["tallies"] == figures[1]["tallies"]
    assert figures[0]["tallies"]["runs"] == 64
    assert list(folder.glob("shards/*")) == []


def test_interrupted_night_prints_the_command_that_continues_it(tmp_path):
    with running(*SMALL, "--engine", "demo", "--minutes", 5, cwd=tmp_path) as coordinator:
        wait_until(lambda: any(tmp_path.glob("a/nights/*/shards/*.json")))
        coordinator.send_signal(signal.SIGINT)
        _, errors = coordinator.communicate()

    [folder] = tmp_path.glob("a/nights/*")
    line = f"the night has not ended; to continue: swarden nightly --resume {folder.relative_to(tmp_path)}"
    assert line in errors.decode().splitlines()
    assert coordinator.returncode == 130


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("nightly --resume nowhere", "nowhere/night.json: cannot be read: No such file", id="no-night"),
        pytest.param("nightly --profile long", "--profile: 'long' is not one of smoke, default, nightly", id="profile"),
        pytest.param("archive show leak", "leak: .swarden/archive has no such finding; see", id="no-finding"),
        pytest.param(
            "archive quarantine x --reason r --until soon", "--until: 'soon' is not a date; write one as", id="date"
        ),
        pytest.param("nightly --scheduler nowhere:1", "--scheduler: nowhere:1 does not answer", id="no-scheduler"),
    ],
)
def test_misuse_is_one_line_and_exits_with_two(tmp_path, line, told):
    run = swarden(*shlex.split(line), cwd=tmp_path)

    assert run.returncode == 2
    assert any(line.startswith(f"swarden: {told}") for line in run.stderr.splitlines()), run.stderr
    assert "Traceback" not in run.stderr


# --- the archive


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The folder of an archive with one finding, an imported op-log of this repository."""
    folder = tmp_path_factory.mktemp("imported")
    run = swarden("archive", "import", OPLOGS / "B18.oplog", "--archive", "a", cwd=folder)
    assert run.returncode == 0, run.stderr
    return folder / "a"


@pytest.fixture
def archived(imported, tmp_path):
    """The finding of an archive of the test's own, a copy."""
    shutil.copytree(imported, tmp_path / "a")
    [finding] = Archive(tmp_path / "a").findings([])
    return finding


def test_imported_log_is_a_new_finding_with_its_story_and_its_test(archived, tmp_path):
    listed = swarden("archive", "list", "--archive", "a", cwd=tmp_path)
    shown = swarden("archive", "show", "shared_pages", "--archive", "a", cwd=tmp_path)

    assert listed.stdout.startswith(f"new: swarden {archived.fingerprint}: 1 night, ")
    assert "shared_pages_match_tree_path: The shared part of a record is as long as" in shown.stdout
    assert {path.suffix for path in archived.folder.iterdir()} == {".oplog", ".py", ".txt", ".json", ""}


def test_quarantine_that_has_ended_is_not_listed(archived, tmp_path):
    archived.put_in_quarantine(Mute(reason="issue 1", until=date(2020, 1, 31)))

    listed = swarden("archive", "list", "--archive", "a", cwd=tmp_path)
    shown = swarden("archive", "show", archived.name, "--archive", "a", cwd=tmp_path)

    assert listed.stdout.startswith("new: ")
    assert "quarantine ended on 2020-01-31: issue 1" in shown.stdout.splitlines()


@pytest.mark.parametrize(
    ("before", "status"),
    [pytest.param(Status.RECURRING, "recurring", id="open"), pytest.param(Status.FIXED, "reopened", id="fixed")],
)
def test_import_comes_behind_the_nights_of_its_day(archived, tmp_path, before, status):
    """The status of an imported finding follows from the nights of that day."""
    night = f"{archived.sightings[0].night[:10]}-01-aaaa"
    archived.add(Sighting(night=night, engine=OWN, status=before, log="other.oplog"))
    (tmp_path / "a/nights" / night).mkdir(parents=True)

    run = swarden("archive", "import", OPLOGS / "B18.oplog", "--archive", "a", cwd=tmp_path)

    [again] = Archive(tmp_path / "a").findings([])
    assert run.stdout.startswith(f"{status}: "), run.stderr
    assert (again.status, again.log) == (status, archived.log)
    assert night < again.sightings[-1].night < f"{night[:10]}-02-aaaa"


def test_quarantine_is_listed_with_its_date(archived, tmp_path):
    put = swarden(
        "archive", "quarantine", archived.name, "--reason", "issue 1", "--until", "2099-01-31", "--archive", "a",
        cwd=tmp_path,
    )  # fmt: skip

    listed = swarden("archive", "list", "--archive", "a", cwd=tmp_path)

    assert put.returncode == 0, put.stderr
    assert listed.stdout.startswith("new (quarantined until 2099-01-31): ")


def test_verify_names_each_file_that_cannot_be_read_and_removes_none(archived, tmp_path):
    healthy = swarden("archive", "verify", "--archive", "a", cwd=tmp_path)
    archived.log.write_bytes(archived.log.read_bytes()[:-9])
    (tmp_path / "a/nights/x").mkdir(parents=True)
    (tmp_path / "a/nights/x/night.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))

    damaged = swarden("archive", "verify", "--archive", "a", cwd=tmp_path)

    assert (healthy.stdout, healthy.returncode) == ("1 finding, 0 nights, 0 errors\n", 0)
    assert damaged.returncode == 2
    assert [line.split(":")[0] for line in damaged.stdout.splitlines()] == [
        f"ERROR {archived.log.relative_to(tmp_path)}",
        "ERROR a/nights/x/night.json",
        "1 finding, 0 nights, 2 errors",
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_prefix_of_two_findings_is_an_error_that_names_both(tmp_path):
    archive = Archive(tmp_path / "a")
    for name in ("law/one", "law/two"):
        archive.finding(OWN, name).add(Sighting(night="2026-11-25-01-aaaa", engine=OWN, status=Status.NEW))

    run = swarden("archive", "show", "law", "--archive", "a", cwd=tmp_path)

    assert run.returncode == 2
    assert "law: 2 findings begin so; name the folder of one: swarden-law-one-" in run.stderr


@pytest.mark.parametrize("expected", ["crash/SIGSEGV/step", None])
def test_log_that_crashes_is_imported_without_a_test(tmp_path, expected):
    """The command survives, and so does a later run of pytest on the archive."""
    (tmp_path / "dying.py").write_text(DYING)
    header = Header(engine="demo", configs=[{}], mutant="crashes", expected=expected)
    OpLog(header, [Submit(), Step()]).save(tmp_path / "crashing.oplog")

    run = swarden_process(
        "archive", "import", "crashing.oplog", "--archive", "a", cwd=tmp_path, SWARDEN_MUTANTS="dying.py"
    )

    assert run.returncode == 0, run.stderr
    [finding] = Archive(tmp_path / "a").findings([])
    assert finding.status is Status.NEW
    assert finding.log is not None
    assert load_log(finding.log).header.expected == finding.fingerprint == (expected or "crash/SIGSEGV")
    assert list(finding.folder.glob("test_*.py")) == []


def test_log_without_a_failure_is_not_imported(tmp_path):
    OpLog(Header(engine=OWN, configs=[{}]), [Submit(), Step()]).save(tmp_path / "healthy.oplog")

    run = swarden("archive", "import", "healthy.oplog", "--archive", "a", cwd=tmp_path)

    assert run.returncode == 2
    assert not Path(tmp_path / "a").exists()
