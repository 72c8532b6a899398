"""The live lines of a campaign, on a terminal alone."""

import os
import pty
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.progress import Progress

from swarden.harness.commands.events import EventLines
from swarden.harness.commands.progress import ProgressDisplay, found_line, reached_line
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.search.campaign import Plan
from swarden.harness.search.result import Finding, Reached, Result, Tallies
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.harness.search.workers import WorkerGroup
from tests.harness.some_commands import swarden

RUN = ("fuzz", "--engine", "demo", "--runs", 20, "--workers", 1, "--seed", 2)
LOG = OpLog(Header(engine="demo", configs=[{}]), [])


def test_line_of_failures_has_the_latest_new_one_and_the_runs_of_known_bugs():
    findings = {name: Finding(name, LOG, 1.0, "demo") for name in ("law/pool/leaked", "law/row/lost")}
    result = Result(Tallies(known=Counter({"one-bug": 3, "another": 1})), findings)

    assert found_line(result) == "2 new failures, the latest law/row/lost; 4 runs failed by 2 known bugs"
    assert found_line(Result()) == "0 new failures; 0 runs failed by known bugs"


def test_line_of_rare_states_has_those_that_are_missing_and_the_plateau():
    target = target_of("swarden")
    first, *others = target.machines["engine"].probes
    tallies = Tallies(machine_runs=Counter(engine=9), probes=Counter(dict.fromkeys(others, 2)))

    assert reached_line(Result(tallies, reached=Reached(runs_since_new=7)), target) == (
        f"1 rare state missing, such as {first}; nothing new in the last 7 runs"
    )
    tallies.probes[first] = 1
    assert reached_line(Result(tallies), target) == f"rarest state: {first}"


@pytest.mark.parametrize(("silent_s", "is_named"), [(0.0, False), (60.0, True)])
def test_long_boot_is_named_once_in_a_pipe(capsys, silent_s, is_named):
    plan = Plan(engine="demo", profile=PROFILES["smoke"], seed=1, seconds=60.0)
    group = WorkerGroup(1, Path(), hang_seconds=60.0)
    group.started_at -= silent_s
    display = ProgressDisplay(plan, Progress(disable=True), EventLines(None))

    display.update(group)
    display.update(group)

    assert capsys.readouterr().err == "starting 1 worker: loading demo (this can take a minute)\n" * is_named


def test_terminal_has_live_lines_and_a_pipe_has_none(tmp_path):
    shown = _on_terminal(RUN, tmp_path)

    for text in ("demo: ", " steps, ", " a second; ", "new failure"):
        assert text in shown
    assert " a second; " not in swarden(*RUN, cwd=tmp_path).stderr


def test_lines_of_a_night_are_on_standard_output_beside_a_live_line(tmp_path):
    """A live line on standard error takes the prints on standard output for its own, as long as it stands."""
    night = ("nightly", "--engine", "demo", "--runs", 1, "--workers", 1, "--profile", "smoke")

    shown = _on_terminal(night, tmp_path)

    phases = ["replay", "canary", "traffic", "settle", "report"]
    assert [line.partition(":")[0] for line in (tmp_path / "stdout").read_text().splitlines()] == phases
    assert "traffic begins: " in shown
    assert "report: " not in shown


def _on_terminal(arguments, folder):
    """What a command shows on a terminal; standard output is a file in the folder."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "swarden", *map(str, arguments)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "160"}
    out = (folder / "stdout").open("w")
    with out, subprocess.Popen(command, cwd=folder, stderr=slave, stdout=out, env=environment):
        os.close(slave)
        return b"".join(iter(lambda: _read(master), b"")).decode()


def _read(terminal):
    """What a terminal gets; nothing when its other end is closed."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
