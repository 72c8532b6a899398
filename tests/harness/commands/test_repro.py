"""swarden repro: what it refuses, and the test of our own engine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from docs.make.pages import ENGINES, ROOT, own_bugs
from swarden.harness.core.admission import parse_log
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Submit
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.registry import target_of
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.options import flags_of
from swarden.harness.engines.sglang.program import SOURCE, program_of
from swarden.harness.report.known_bug import CASE, issue
from swarden.harness.report.program import program_text
from swarden.harness.report.vulnerability import WARNING
from tests.harness.some_bugs import (
    BUG,
    LONG,
    LONG_OUTPUT,
    ODD,
    OF_BLOCKS,
    STUCK,
    WHOLE,
    swarden_with_bugs,
    write_log,
)
from tests.harness.some_commands import swarden

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
    assert b"assert not story" in tested.stdout


def test_server_gets_only_options_that_the_release_has(tmp_path):
    (tmp_path / "srt").mkdir()
    (tmp_path / "srt/server_args.py").write_text(FIELDS)
    config = SglangConfig(page_size=16, chunk_len=16, overlap=False)

    assert flags_of(config, tmp_path) == ["--page-size 16", "--max-total-tokens 1024", "--disable-overlap-schedule"]
    assert flags_of(msgspec.structs.replace(config, overlap=True), tmp_path) == [
        "--page-size 16",
        "--max-total-tokens 1024",
    ]


SGLANG_LOGS = ROOT / "harness/engines/sglang/findings"


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


@pytest.mark.parametrize(
    ("requests", "code", "said"),
    [
        pytest.param([ODD], 0, "'num_blocks': 40", id="bug-of-any-size"),
        pytest.param([WHOLE], 2, "does not fail on blockserve", id="bug-of-the-size"),
    ],
)
def test_finding_is_written_with_other_settings_if_it_still_shows(requests, code, said, tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)

    path = write_log(tmp_path / "some.oplog", *requests)
    run = run_swarden("repro", path.name, "--as", "pytest", "--set", "num_blocks=40")

    assert run.returncode == code, run.stderr
    assert said in (run.stderr or run.stdout)


REPRO = ("repro", "--engine", "blockserve", "--as", "pytest")


def test_known_bug_that_does_not_show_with_other_settings_is_refused(tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)
    write_log(tmp_path / f"blockserve/findings/{OF_BLOCKS}.oplog", WHOLE)

    run = run_swarden(*REPRO, OF_BLOCKS, "--set", "num_blocks=40")

    assert (run.returncode, run.stdout) == (2, "")
    assert "does not fail on blockserve; want other values with --set" in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("fingerprint", "code", "said"),
    [(STUCK, 0, ""), ("another/drain", 2, f"{OF_BLOCKS}: fails with {STUCK} on blockserve, not as the bug")],
)
def test_known_bug_is_written_only_if_it_has_one_of_its_fingerprints(fingerprint, code, said, tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)
    write_log(tmp_path / f"blockserve/findings/{OF_BLOCKS}.oplog", ODD)
    file = tmp_path / f"blockserve/findings/{OF_BLOCKS}.toml"
    file.write_text(file.read_text().replace(STUCK, fingerprint))

    run = run_swarden(*REPRO, OF_BLOCKS, "--set", "num_blocks=40")

    assert (run.returncode, bool(run.stdout)) == (code, code == 0)
    assert run.stderr.startswith(f"swarden: {said}" if said else "")


def test_bug_of_no_installed_release_is_an_issue_without_its_program(tmp_path):
    name = "checkpoint-of-another-prompt"
    bug = next(bug for bug in own_bugs("server") if bug.name == name)

    run = swarden("repro", name, "--as", "issue", cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    assert run.stdout == issue(bug, target_of("server"), "")


def test_program_of_a_log_with_fixes_is_refused():
    path = SGLANG_LOGS / "prompt-never-admitted.oplog"
    log = parse_log(path.read_bytes(), path).with_fixes(["second-chunked-request"])

    with pytest.raises(NoProgram, match="fixes"):
        program_of(log, [])


def test_program_of_a_log_with_several_sequences_is_refused():
    path = SGLANG_LOGS / "prompt-never-admitted.oplog"
    log = parse_log(path.read_bytes(), path)

    with pytest.raises(NoProgram, match="several sequences"):
        program_of(OpLog(log.header, [*log.ops, Submit(sequences=2)]), [])


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
CALLS: list[dict[str, Any]] = [
    {"name": "open_session"},
    {
        "name": "generate",
        "input_ids": [1, 2, 3],
        "max_new_tokens": 1,
        "stop_token_ids": [5],
        "priority": 1,
        "session": 1,
        "offset": 0,
    },
    *[{"name": name} for name in ("flush", "pause", "resume")],
    {"name": "step", "count": 1},
    {"name": "abort", "number": 1},
    {"name": "close_session", "session": 1},
]


class Healthy(BaseHTTPRequestHandler):
    """Answers every request."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'"id"')

    def log_message(self, *args: object) -> None: ...


class Dying(Healthy):
    """Closes the connection of each prompt, as a server whose scheduler has died."""

    def do_POST(self) -> None:
        if self.path != "/generate":
            super().do_POST()


class Refusing(Healthy):
    """Refuses sessions, as a server without them."""

    def do_POST(self) -> None:
        if self.path == "/open_session":
            self.send_error(400)
        else:
            super().do_POST()


@contextmanager
def serving(kind: type[Healthy]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("kind", "code", "line"),
    [(Healthy, 0, "no bug"), (Dying, 1, "BUG: request-1: "), (Refusing, 2, "not run to the end: HTTPError: ")],
)
def test_client_of_a_server_says_whether_the_server_lives(kind, code, line, tmp_path):
    path = tmp_path / "client.py"
    path.write_text(program_text(Program(SOURCE, {"LAUNCH": "serve"}, CALLS), "", "sglang"))

    with serving(kind) as address:
        ran = subprocess.run([sys.executable, path, address], capture_output=True, text=True)
    without = subprocess.run([sys.executable, path, address], capture_output=True, text=True)

    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout.splitlines()[-1].startswith(line)
    assert without.returncode == 2
    assert without.stdout.startswith(f"no server at {address}: ")
