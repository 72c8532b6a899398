"""swarden repro: what it refuses, and the test of our own engine."""

import subprocess
import sys
from pathlib import Path

import pytest

from docs.make.pages import ENGINES, own_bugs
from swarden.harness.core.program import NoProgram
from swarden.harness.core.registry import target_of
from swarden.harness.report.known_bug import CASE, issue
from swarden.harness.report.vulnerability import WARNING
from swarden.harness.search import programs
from tests.harness.some_bugs import BUG, LONG, LONG_OUTPUT, STUCK, WHOLE, swarden_with_bugs, write_log
from tests.harness.some_commands import swarden

OPLOG = Path(__file__).parents[2] / "quality/oplogs/B18.oplog"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-bug", "--as", "script"], "no-such-bug: no known bug; name one of "),
        (["no-such.oplog", "--as", "script"], "no-such.oplog: cannot be read: No such file or directory"),
        ([OPLOG, "--as", "script"], "--as script: swarden has no such program; want pytest or issue"),
        ([OPLOG, "--as", "pytest", "-o", OPLOG], f"--out: {OPLOG} exists; name a new file"),
        ([OPLOG, "--as", "pytest", "--on", "vllm"], "--run, --on: pytest does not run here; write it --as script"),
        ([OPLOG, "--as", "issue", "--run"], "--run, --on: issue does not run here; write it --as script"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistake_is_one_line(arguments, said, tmp_path):
    run = swarden("repro", *arguments, cwd=tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"swarden: {said}")
    assert len(run.stderr.splitlines()) == 1


def test_test_of_our_own_engine_fails_with_the_bug(tmp_path):
    run = swarden("repro", OPLOG, "--as", "pytest", "-o", "test_it.py", cwd=tmp_path)
    tested = subprocess.run([sys.executable, "-m", "pytest", "-q", "test_it.py"], cwd=tmp_path, capture_output=True)

    assert (run.returncode, run.stdout) == (0, "")
    assert tested.returncode == 1
    assert b"assert not story" in tested.stdout


@pytest.mark.parametrize(
    ("requests", "code", "said"),
    [
        pytest.param([WHOLE], 0, "", id="failing"),
        pytest.param([(2, 2)], 2, "some.oplog: does not fail on blockserve", id="healthy"),
    ],
)
def test_op_log_that_does_not_fail_is_refused(requests, code, said, tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)

    run = run_swarden("repro", write_log(tmp_path / "some.oplog", *requests).name, "--as", "pytest")

    assert (run.returncode, bool(run.stdout)) == (code, code == 0)
    assert run.stderr.startswith(f"swarden: {said}" if said else "")


def test_issue_says_first_that_a_client_may_be_able_to_use_the_failure(tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)

    run = run_swarden("repro", write_log(tmp_path / "some.oplog", WHOLE).name, "--as", "issue")

    assert run.stdout.startswith(f"**{WARNING}")


def test_issue_of_an_op_log_that_kills_its_process_names_the_death(tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)
    deadly = BUG.format(condition=LONG_OUTPUT, fixed="__import__('os').abort()", fingerprint=STUCK)
    (tmp_path / "blockserve/findings/deadly-bug.toml").write_text(deadly)
    path = write_log(tmp_path / "some.oplog", LONG)
    expected = f'"expected": "{STUCK}"'
    path.write_text(path.read_text().replace(expected, '"fixes": ["deadly-bug"], "expected": "crash/SIGABRT"'))

    run = run_swarden("repro", path.name, "--as", "issue")

    assert run.returncode == 0, run.stderr
    assert "crash/SIGABRT: run in a process of its own, which was killed by SIGABRT" in run.stdout


def test_bug_of_no_installed_release_is_an_issue_without_its_program(tmp_path):
    name = "checkpoint-of-another-prompt"
    bug = next(bug for bug in own_bugs("server") if bug.name == name)

    run = swarden("repro", name, "--as", "issue", cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    assert run.stdout == issue(bug, target_of("server"), "")


def test_program_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(programs, "MOST_SECONDS", 0.5)

    with pytest.raises(NoProgram, match=r"its program did not end in 0\.5 s"):
        programs.ended_here("while True: pass", target_of("swarden"))


@pytest.mark.parametrize("engine", ENGINES)
def test_issue_has_all_that_a_maintainer_needs_in_order(engine):
    for bug in own_bugs(engine):
        if bug.document is None:
            continue
        text = issue(bug, target_of(engine), f"SETTINGS = 1\n\n\n{CASE}def run():\n    add()\n\n\nrun()\n")
        headings = [line for line in text.splitlines() if line.startswith("## ")]

        assert f"# {bug.title}\n\n{bug.document.client}" in text
        assert headings[0].startswith("## In the source of ")
        assert headings[1:] == ["## Calls", "## When", *["## Fix"] * ("## Fix" in text), "## Environment"]
        assert "SETTINGS" not in text.partition("<details>")[0]


def test_issue_shows_a_short_fix_as_a_diff_and_says_what_a_long_one_does():
    short, long = (target_of("sglang").known_bugs()[name] for name in (SHORT_FIX, LONG_FIX))

    assert long.document is not None
    assert "```diff\n--- a/python/sglang/" in issue(short, target_of("sglang"), "")
    assert "```diff" not in issue(long, target_of("sglang"), "")
    assert long.document.suggestion in issue(long, target_of("sglang"), "")


SHORT_FIX, LONG_FIX = "deferred-chunk-is-counted", "cached-prefix-locks-two-windows"
