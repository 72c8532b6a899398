"""Worker processes: a death, a hang or an interrupt of a worker loses its current run only."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.mutant_file import VARIABLE
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Step, Submit
from swarden.harness.core.process import BOOT_S
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.harness.search.workers import DEATHS_OF_A_BATCH, WorkerGroup, interruptible
from tests.harness.some_processes import processes_of, running, swarden_process, wait_until
from tests.harness.some_targets import FIXED

RUNS = 32
PLAN = Plan(engine="demo", profile=PROFILES["smoke"], seed=3, max_runs=RUNS, mutant="fixed")  # it needs no torch
LOG = OpLog(Header(engine="demo", configs=[{}]), [Submit(), Drain()])
DYING = f"""
{FIXED}
HAS_WORK = "swarden.harness.engines.demo.engine:Engine.has_work"
HEALTHY = "return bool(self.waiting"
CRASHES = f"__import__('os').kill(__import__('os').getpid(), 11); {{HEALTHY}}"
HANGS = f"any(iter(int, 1)); {{HEALTHY}}"
HOARDS = f"bytearray(1 << 32); {{HEALTHY}}"
KILLS = "__import__('os').kill(__import__('os').getpid(), 9)"
CALLS = "globals().setdefault('calls', [])"
DIES_LATE = f"{{CALLS}}.append(0) or len({{CALLS}}) > 100 and {{KILLS}}; {{HEALTHY}}"
LAWS = ("work_makes_progress",)
crashes = Mutant("crashes", "made up: reads where nothing is", (Hunk(HAS_WORK, HEALTHY, CRASHES),), LAWS)
hangs = Mutant("hangs", "made up: looks for the end of an endless list", (Hunk(HAS_WORK, HEALTHY, HANGS),), LAWS)
dies_late = Mutant("dies_late", "made up: dies in its 101st call", (Hunk(HAS_WORK, HEALTHY, DIES_LATE),), LAWS)
hoards = Mutant("hoards", "made up: allocates 4 GiB", (Hunk(HAS_WORK, HEALTHY, HOARDS),), LAWS)
"""


@pytest.fixture(autouse=True)
def mutants(tmp_path_factory, monkeypatch):
    """The file with these mutants; the worker processes know it."""
    path = tmp_path_factory.mktemp("mutants") / "dying.py"
    path.write_text(DYING)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


class Saboteur:
    """Sends a signal to the first worker after `after` runs."""

    def __init__(self, number: signal.Signals, *, after: int = 2) -> None:
        self.number = number
        self.after = after
        self.victim: int | None = None

    def __call__(self, group: WorkerGroup) -> None:
        if self.victim is None and group.tallies[0].runs >= self.after and group.workers[0].pid is not None:
            self.victim = group.workers[0].pid
            os.kill(self.victim, self.number)


def reports_of(group: WorkerGroup, out: Path) -> list[Finding]:
    """The reports of all findings; every finding must have one."""
    reports = [report for report in group.report_findings(out, ShrinkBudget()) if report is not None]
    assert not [report for report in reports if report.why_flaky]
    return reports


def test_killed_worker_loses_its_run_and_is_replaced(tmp_path):
    """If the worker was in a run, the run is a finding with its log; all runs of the campaign are made."""
    saboteur = Saboteur(signal.SIGKILL)
    plan = replace(PLAN, out=tmp_path)

    with WorkerGroup(2, tmp_path, hang_seconds=60, on_progress=saboteur) as group:
        result = group.run(plan)
        reports = reports_of(group, tmp_path)

    assert saboteur.victim is not None
    assert len(reports) + len(result.unexplained_deaths) <= 1
    assert all(report.fingerprint.startswith("crash/SIGKILL/") for report in reports)
    messages = [*result.unexplained_deaths, *[str(report.story[0]) for report in reports]]
    assert all("worker 0 was killed by SIGKILL" in message for message in messages)
    assert RUNS - 1 <= result.tallies.runs <= RUNS
    assert sorted(tmp_path.iterdir()) == [report.path for report in reports]


def test_stopped_worker_is_replaced_after_the_hang_timeout(tmp_path):
    """A stopped process makes no step; its current run is a finding, and all other runs are made."""
    saboteur = Saboteur(signal.SIGSTOP)

    with WorkerGroup(2, tmp_path, hang_seconds=3, on_progress=saboteur) as group:
        result = group.run(replace(PLAN, out=tmp_path))

    messages = [*[finding.died for finding in result.findings.values()], *result.unexplained_deaths]
    assert len(messages) <= 1
    assert all("worker 0 stopped answering for 3 s" in message for message in messages)
    assert RUNS - 1 <= result.tallies.runs <= RUNS
    assert saboteur.victim is not None
    with pytest.raises(ProcessLookupError):
        os.kill(saboteur.victim, 0)


def test_worker_that_boots_its_engine_is_not_killed_as_hung(tmp_path):
    """Until its first heartbeat the limit is BOOT_S, not the limit of a step."""
    pids: set[int | None] = set()

    def boot_for_long(group: WorkerGroup) -> None:
        if not pids:
            group.workers[0].silent_s = BOOT_S / 2
            group.workers[0].kill_if_hung(1)
        pids.add(group.workers[0].pid)

    with WorkerGroup(1, tmp_path, hang_seconds=60, on_progress=boot_for_long) as group:
        result = group.run(replace(PLAN, max_runs=1))

    assert (len(pids), len(result.boots), result.tallies.runs) == (1, 1, 1)


def test_interrupted_workers_keep_finished_runs(tmp_path):
    """The first interrupt discards the current runs; the second raises KeyboardInterrupt at once."""

    def interrupt(group: WorkerGroup) -> None:
        if group.tallies[0].runs >= 2 and not group.is_interrupted:
            os.kill(os.getpid(), signal.SIGINT)

    with WorkerGroup(2, tmp_path, hang_seconds=60, on_progress=interrupt) as group, interruptible([group]):
        result = group.run(replace(PLAN, max_runs=None, seconds=60, out=tmp_path))
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)

    assert group.is_interrupted
    assert result.tallies.runs >= 2
    assert (result.findings, result.diverged, result.unexplained_deaths) == ({}, [], [])
    assert list(tmp_path.iterdir()) == []


def test_finding_of_a_dead_worker_that_passes_again_is_written_unshrunk(tmp_path):
    finding = Finding("crash/SIGKILL/drain", LOG, 1.0, died="worker 0 was killed by SIGKILL in op 2, drain")

    with WorkerGroup(1, tmp_path, hang_seconds=60, on_progress=lambda _: None) as group:
        group.result.findings[finding.fingerprint] = finding
        [report] = reports_of(group, tmp_path)

    assert report.path is not None
    assert load_log(report.path).ops == LOG.ops
    assert load_log(report.path).header.expected == "crash/SIGKILL/drain"
    assert list(tmp_path.iterdir()) == [report.path]


def test_worker_that_dies_in_a_shrink_leaves_its_smallest_log(tmp_path):
    plan = replace(PLAN, seed=11, mutant=None, stop_on_first=True, out=tmp_path)
    [found] = Worker(plan, lambda _: None).work().findings.values()
    dying = found.changed(log=found.log.with_header(mutant="dies_late"))

    with WorkerGroup(1, tmp_path, hang_seconds=60) as group:
        [report] = group.report([dying], tmp_path, ShrinkBudget())

    assert 1 < report.ops < len(found.log.ops)
    assert report.path is not None
    assert list(tmp_path.iterdir()) == [report.path]
    assert load_log(report.path).ops == report.log.ops
    assert report.story[-2].text == "when the run is repeated, the process was killed by SIGKILL"


def test_one_worker_reports_all_findings(tmp_path):
    findings = [Finding(f"crash/SIGKILL/{name}", LOG, 1.0, died="worker 0 was killed") for name in ("a", "b", "c")]

    with WorkerGroup(1, tmp_path, hang_seconds=60, on_progress=lambda _: None) as group:
        group.result.findings.update({finding.fingerprint: finding for finding in findings})
        reports = reports_of(group, tmp_path)

    assert [report.fingerprint for report in reports] == [finding.fingerprint for finding in findings]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_workers_end_with_their_parent(tmp_path, mutants, number):
    """After the parent has ended, no worker runs, prints a traceback or leaves its running log."""
    fuzz = ("fuzz", "--engine", "demo", "--mutant", "fixed", "--minutes", 5, "--workers", 2, "--out", "out")
    with running(*fuzz, cwd=tmp_path, SWARDEN_MUTANTS=str(mutants)) as parent:
        wait_until(lambda: len(list(tmp_path.glob("out/.*.running.oplog"))) == 2)

        parent.send_signal(number)
        _, errors = parent.communicate()

        wait_until(lambda: not processes_of(parent.pid))
    assert b"Traceback" not in errors
    assert list(tmp_path.glob("out/*")) == []


@pytest.mark.parametrize(
    ("mutant", "kind", "message", "deaths"),
    [
        pytest.param("crashes", "crash/SIGSEGV", "was killed by SIGSEGV", 2 * DEATHS_OF_A_BATCH, id="crash"),
        pytest.param("hangs", "hang", "stopped answering for 1 s", 1, id="endless-step"),
    ],
)
def test_engine_that_kills_its_process_is_a_finding_with_its_stack(tmp_path, mutant, kind, message, deaths):
    """If every run dies, the worker skips to its next batch; the repeated log dies in the same way."""
    out = tmp_path / "out"
    out.mkdir()

    with WorkerGroup(1, out, hang_seconds=1 if kind == "hang" else 20, on_progress=lambda _: None) as group:
        result = group.run(replace(PLAN, mutant=mutant, out=out, max_runs=12, stop_on_first=deaths == 1))
        findings = reports_of(group, out)

    assert {one.fingerprint for one in findings} <= {f"{kind}/{op}" for op in ("step", "submit", "drain", "flush")}
    for one in findings:
        assert not any("\\n" in str(line) for line in one.story)
        story = "\n".join(map(str, one.story))
        assert f"worker 0 {message} in op " in story
        assert "engine.py" in story
        assert f"when the run is repeated, the process {message}" in story
    assert {load_log(path).header.expected for path in out.iterdir()} == {finding.fingerprint for finding in findings}
    assert result.unexplained_deaths == []
    assert result.tallies.failed_runs == deaths


def test_allocation_beyond_the_memory_limit_of_a_worker_is_a_finding(tmp_path):

    with WorkerGroup(1, tmp_path, hang_seconds=60, memory_bytes=3 << 30) as group:
        result = group.run(replace(PLAN, mutant="hoards", stop_on_first=True))

    assert {name.split("/")[0] for name in result.findings} == {"MemoryError"}


def test_first_crash_ends_a_campaign_that_stops_on_first(tmp_path):

    with WorkerGroup(1, tmp_path, hang_seconds=60, on_progress=lambda _: None) as group:
        result = group.run(replace(PLAN, mutant="crashes", stop_on_first=True))

    assert result.tallies.failed_runs == 1


def test_death_of_an_idle_worker_loses_no_finding(tmp_path):
    """One of two workers is idle while the other reports the only finding."""
    plan = Plan(engine="demo", profile=PROFILES["smoke"], seed=11, seconds=60, stop_on_first=True)
    [found] = Worker(plan, lambda _: None).work().findings.values()

    def kill_the_idle(group: WorkerGroup) -> None:
        if group.workers[1].pid == first_pid:
            os.kill(first_pid, signal.SIGKILL)

    with WorkerGroup(2, tmp_path, hang_seconds=60, on_progress=kill_the_idle) as group:
        first_pid = group.workers[1].pid or 0
        group.result.findings[found.fingerprint] = found
        [report] = reports_of(group, tmp_path)

    assert report.fingerprint == found.fingerprint
    assert report.ops <= len(found.log.ops)


def test_log_of_a_crash_is_replayed_in_a_process_of_its_own(tmp_path, mutants):
    """The log has FAILED with the bug planted, and is FIXED without it; the command survives."""
    header = Header(engine="demo", configs=[{}], mutant="crashes", expected="crash/SIGSEGV/step")
    OpLog(header, [Submit(), Step()]).save(tmp_path / "sick.oplog")
    OpLog(msgspec.structs.replace(header, mutant=None), [Submit(), Step()]).save(tmp_path / "well.oplog")

    replay = swarden_process("replay", "sick.oplog", "well.oplog", cwd=tmp_path, SWARDEN_MUTANTS=str(mutants))

    assert [line for line in replay.stdout.splitlines() if ".oplog" in line] == [
        "FAILED sick.oplog",
        "FIXED well.oplog",
    ]
    assert "run in a process of its own, which was killed by SIGSEGV" in replay.stdout
    assert replay.returncode == 1
