"""swarden repro: what it refuses, and the test of our own engine."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from swarden.harness.core.registry import target_of
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.program import flags_of
from swarden.harness.report.known_bug import issue
from tests.harness.some_processes import swarden
from tests.pages import ENGINES, own_bugs

OPLOG = Path(__file__).parents[2] / "quality/oplogs/B18.oplog"
FIELDS = "class ServerArgs:\n    page_size: int\n    max_total_tokens: int\n    disable_overlap_schedule: bool\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-bug", "--as", "script"], "no-such-bug: no known bug; name one of "),
        (["no-such.oplog", "--as", "script"], "no-such.oplog: cannot be read: No such file or directory"),
        ([OPLOG, "--as", "script"], "--as script: swarden has no such program; want pytest or issue"),
        ([OPLOG, "--as", "pytest", "-o", OPLOG], f"--out: {OPLOG} exists; name a new file"),
        ([OPLOG, "--as", "pytest", "--on", "vllm"], "--on, --with-fix: are for a run; add --run"),
        ([OPLOG, "--as", "issue", "--run"], "--run: issue does not run here; write it --as script"),
        ([OPLOG, "--as", "pytest", "--run", "--with-fix"], f"--with-fix: {OPLOG} is no known bug; name one"),
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
    assert b"assert failure is None" in tested.stdout


def test_server_gets_only_options_that_the_release_has(tmp_path):
    (tmp_path / "srt").mkdir()
    (tmp_path / "srt/server_args.py").write_text(FIELDS)
    config = SglangConfig(page_size=16, chunk_len=16, overlap=False)

    assert flags_of(config, tmp_path) == ["--page-size 16", "--max-total-tokens 1024", "--disable-overlap-schedule"]
    assert flags_of(msgspec.structs.replace(config, overlap=True), tmp_path) == [
        "--page-size 16",
        "--max-total-tokens 1024",
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_issue_has_all_that_a_maintainer_needs_and_no_word_of_swarden(engine):
    for bug in own_bugs(engine):
        if bug.document is None:
            continue
        text = issue(bug, target_of(engine), "print()\n")
        headings = [line for line in text.splitlines() if line.startswith("## ")]

        assert text.startswith(f"# {bug.title}\n")
        assert headings[:5] == ["## Environment", "## Steps", "## Program", "## Expected", "## Actual"]
        assert "swarden" not in text
