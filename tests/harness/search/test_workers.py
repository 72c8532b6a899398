"""Worker processes: the death, the silence or the interrupt of one costs its current run and nothing else."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.core.oplog import Header, OpLog
from harness.core.ops import Drain, Step, Submit
from harness.core.registry import OWN
from harness.search.campaign import Finding, Plan, Worker
from harness.search.findings import Settled
from harness.search.profiles import PROFILES
from harness.search.shrink import Budget
from harness.search.worker_process import NotSettled
from harness.search.workers import DEATHS_OF_A_BATCH, Crew
from tests.harness.commands.test_commands import swarden
from tests.harness.some_processes import processes_of, running, wait_until

RUNS = 12
PLAN = Plan(OWN, PROFILES["smoke"], seed=3, seconds=60, max_runs=RUNS, machine="engine")


class Saboteur:
    """Sends a signal to the first worker, once `after` runs have ended."""

    def __init__(self, number: signal.Signals, *, after: int = 2) -> None:
        self.number = number
        self.after = after
        self.struck: int | None = None

    def __call__(self, crew: Crew) -> None:
        if self.struck is None and crew.tallies[0].runs >= self.after and crew.workers[0].pid is not None:
            self.struck = crew.workers[0].pid
            os.kill(self.struck, self.number)


def settled_by(crew: Crew, out: Path) -> list[Settled]:
    """What the crew makes of its findings, none of which may be lost."""
    settled = list(crew.settle(out, Budget()))
    assert not [one for one in settled if isinstance(one, NotSettled)]
    return [one for one in settled if isinstance(one, Settled)]


def test_killed_worker_costs_its_run_and_is_replaced(tmp_path):
    """Its run is a finding with its log, if it was in one; all runs of the campaign are made."""
    saboteur = Saboteur(signal.SIGKILL)
    plan = replace(PLAN, out=tmp_path)

    with Crew(2, tmp_path, hang_seconds=60, tell=saboteur) as crew:
        result = crew.run(plan)
        settled = settled_by(crew, tmp_path)

    assert saboteur.struck is not None
    assert len(settled) + len(result.mishaps) <= 1
    assert all(one.fingerprint.startswith("crash/SIGKILL/") for one in settled)
    assert all(
        "worker 0 was killed by SIGKILL" in told for told in [*result.mishaps, *[str(one.story[0]) for one in settled]]
    )
    assert RUNS - 1 <= result.tallies.runs <= RUNS
    assert sorted(tmp_path.iterdir()) == [one.path for one in settled]


def test_stopped_worker_is_found_within_its_bound_and_replaced(tmp_path):
    """A process that gets no time makes no step; its run is a finding, if it was in one, and the others are made."""
    saboteur = Saboteur(signal.SIGSTOP)

    with Crew(2, tmp_path, hang_seconds=3, tell=saboteur) as crew:
        began = time.monotonic()
        result = crew.run(replace(PLAN, out=tmp_path))
        took = time.monotonic() - began

    told = [*[one.died for one in result.findings.values()], *result.mishaps]
    assert len(told) <= 1
    assert all("worker 0 stopped answering for 3 s" in died for died in told)
    assert RUNS - 1 <= result.tallies.runs <= RUNS
    assert took < 45
    assert saboteur.struck is not None
    with pytest.raises(ProcessLookupError):
        os.kill(saboteur.struck, 0)


def test_interrupted_crew_keeps_what_has_ended(tmp_path):
    """The first interrupt ends the runs under way, which are discarded; the second ends at once."""

    def interrupt(crew: Crew) -> None:
        if crew.tallies[0].runs >= 2 and not crew.is_interrupted:
            os.kill(os.getpid(), signal.SIGINT)

    with Crew(2, tmp_path, hang_seconds=60, tell=interrupt) as crew, crew.interruptible():
        result = crew.run(replace(PLAN, max_runs=None, out=tmp_path))
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)

    assert crew.is_interrupted
    assert result.tallies.runs >= 2
    assert (result.findings, result.diverged, result.mishaps) == ({}, [], [])
    assert list(tmp_path.iterdir()) == []


def test_finding_of_a_dead_worker_that_ends_when_run_again_is_kept_as_it_was_met(tmp_path):
    log = OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [Submit(), Drain()])
    finding = Finding("crash/SIGKILL/drain", log, 1.0, died="worker 0 was killed by SIGKILL in op 2, drain")

    with Crew(1, tmp_path, hang_seconds=60, tell=lambda _: None) as crew:
        crew.result.findings[finding.fingerprint] = finding
        [settled] = settled_by(crew, tmp_path)

    assert settled.path is not None
    assert OpLog.load(settled.path).ops == log.ops
    assert OpLog.load(settled.path).header.expected == "crash/SIGKILL/drain"
    assert list(tmp_path.iterdir()) == [settled.path]


def test_one_worker_settles_all_findings(tmp_path):
    log = OpLog(Header(engine=OWN, machine="engine", configs=[{}]), [Submit(), Drain()])
    findings = [Finding(f"crash/SIGKILL/{name}", log, 1.0, died="worker 0 was killed") for name in ("a", "b", "c")]

    with Crew(1, tmp_path, hang_seconds=60, tell=lambda _: None) as crew:
        crew.result.findings.update({finding.fingerprint: finding for finding in findings})
        settled = settled_by(crew, tmp_path)

    assert [one.fingerprint for one in settled] == [finding.fingerprint for finding in findings]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_workers_end_with_their_parent(tmp_path, number):
    """Whatever ends the parent: no worker goes on, none prints a traceback, none leaves its running log."""
    with running("fuzz", "--minutes", 5, "--workers", 2, "--out", "out", cwd=tmp_path) as parent:
        wait_until(lambda: len(list(tmp_path.glob("out/.*.running.oplog"))) == 2)

        parent.send_signal(number)
        _, told = parent.communicate(timeout=60)

        wait_until(lambda: not processes_of(parent.pid))
    assert b"Traceback" not in told
    assert list(tmp_path.glob("out/*")) == []


DYING = """
from harness.core.mutant import Hunk, Mutant

HAS_WORK = "engine_under_test.engine:Engine.has_work"
HEALTHY = "return self.scheduler.has_work"
CRASHES = "return __import__('os').kill(__import__('os').getpid(), 11)"
HANGS = "return any(iter(int, 1))"
LAWS = ("work_makes_progress",)
crashes = Mutant("crashes", "made up: reads where nothing is", (Hunk(HAS_WORK, HEALTHY, CRASHES),), LAWS)
hangs = Mutant("hangs", "made up: looks for the end of an endless list", (Hunk(HAS_WORK, HEALTHY, HANGS),), LAWS)
"""


@pytest.mark.parametrize(
    ("mutant", "kind", "told"),
    [
        pytest.param("crashes", "crash/SIGSEGV", "was killed by SIGSEGV", id="crash"),
        pytest.param("hangs", "hang", "stopped answering for 3 s", id="endless-step"),
    ],
)
def test_engine_that_takes_its_process_down_is_a_finding_with_its_place(tmp_path, monkeypatch, mutant, kind, told):
    """Where each run dies, the worker goes on with its next batch; repeated, the log dies in the same way."""
    (tmp_path / "dying.py").write_text(DYING)
    monkeypatch.setenv("SWARDEN_MUTANTS", str(tmp_path / "dying.py"))
    out = tmp_path / "out"
    out.mkdir()

    with Crew(1, out, hang_seconds=3, tell=lambda _: None) as crew:
        result = crew.run(replace(PLAN, mutant=mutant, out=out))
        findings = settled_by(crew, out)

    assert {one.fingerprint for one in findings} <= {f"{kind}/{op}" for op in ("step", "submit", "drain", "flush")}
    for one in findings:
        story = "\n".join(map(str, one.story))
        assert f"worker 0 {told} in op " in story
        assert "engine.py" in story
        assert f"when the run is repeated, the process {told}" in story
    assert {OpLog.load(path).header.expected for path in out.iterdir()} == {one.fingerprint for one in findings}
    assert result.mishaps == []
    assert result.tallies.failed_runs == 2 * DEATHS_OF_A_BATCH


def test_first_crash_ends_a_campaign_that_stops_on_first(tmp_path, monkeypatch):
    (tmp_path / "dying.py").write_text(DYING)
    monkeypatch.setenv("SWARDEN_MUTANTS", str(tmp_path / "dying.py"))

    with Crew(1, tmp_path, hang_seconds=60, tell=lambda _: None) as crew:
        result = crew.run(replace(PLAN, mutant="crashes", stop_on_first=True))

    assert result.tallies.failed_runs == 1


def test_idle_worker_that_dies_while_a_finding_is_settled_costs_nothing(tmp_path):
    """Two workers and one finding: one of them has nothing to do."""
    plan = Plan(OWN, PROFILES["smoke"], 11, 60, machine="engine", mutant="B46", stop_on_first=True)
    [found] = Worker(plan, lambda _: None).work().findings.values()

    def kill_the_idle(crew: Crew) -> None:
        if crew.workers[1].pid == first_pid:
            os.kill(first_pid, signal.SIGKILL)

    with Crew(2, tmp_path, hang_seconds=60, tell=kill_the_idle) as crew:
        first_pid = crew.workers[1].pid or 0
        crew.result.findings[found.fingerprint] = found
        [settled] = settled_by(crew, tmp_path)

    assert settled.fingerprint == found.fingerprint
    assert settled.ops <= len(found.log.ops)


def test_log_of_a_crash_is_replayed_in_a_process_of_its_own(tmp_path):
    """FAILED with the bug planted, and FIXED without it; the command itself lives."""
    (tmp_path / "dying.py").write_text(DYING)
    header = Header(engine=OWN, machine="engine", configs=[{}], mutant="crashes", expected="crash/SIGSEGV/step")
    OpLog(header, [Submit(), Step()]).save(tmp_path / "sick.oplog")
    OpLog(msgspec.structs.replace(header, mutant=None), [Submit(), Step()]).save(tmp_path / "well.oplog")

    told = swarden("replay", "sick.oplog", "well.oplog", cwd=tmp_path, SWARDEN_MUTANTS="dying.py")

    assert [line for line in told.stdout.splitlines() if ".oplog" in line] == ["FAILED sick.oplog", "FIXED well.oplog"]
    assert "run in a process of its own: worker died: SIGSEGV" in told.stdout
    assert told.returncode == 1
