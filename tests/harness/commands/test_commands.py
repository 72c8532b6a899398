"""The command line: output and exit codes."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.admission import load_log
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Recipe, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import log_of, run_log
from swarden.harness.engines.own.models import MODELS
from tests.harness.some_commands import swarden
from tests.harness.some_processes import swarden_process

CONFIG = EngineConfig(page_size=2, full_pages=64, swa_pages=6, sliding_window=2)
OPLOGS = Path(__file__).parents[2] / "quality" / "oplogs"
OPS = (Submit(recipe=Recipe(path=(0, 0, 0)), max_new_tokens=4), Submit(max_new_tokens=2), Drain())


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """The op-log of a run with a planted bug."""
    bare = OpLog(Header(engine=OWN, machine="engine", configs=[CONFIG.to_mapping()], mutant="B18"), OPS)
    path = tmp_path / "failing.oplog"
    log_of(bare.header, run_log(bare, keep_digests=True)).save(path)
    return path


def test_shrink_writes_a_smaller_log_and_keeps_the_original(failing, tmp_path):
    """The smaller log fails with the same fingerprint."""
    before = failing.read_bytes()

    run = swarden("shrink", failing, "--json", cwd=tmp_path)

    result = json.loads(run.stdout)
    small = load_log(Path(result["path"]))
    assert run.returncode == 0, run.stderr
    assert failing.read_bytes() == before
    assert small.header.expected == result["fingerprint"]
    assert len(small.ops) == result["ops"] <= len(OPS)


@pytest.mark.parametrize("command", [["show", "--html"], ["shrink"]], ids=" ".join)
def test_folder_as_output_is_a_mistake(failing, tmp_path, command):
    (tmp_path / "folder").mkdir()

    run = swarden(*command, failing, "--out", tmp_path / "folder", cwd=tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"swarden: --out: {tmp_path / 'folder'} is a folder; name a file\n"


def test_op_log_from_a_pipe_is_replayed(failing, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as other:
        other.submit((tmp_path / "pipe").write_bytes, failing.read_bytes())
        run = swarden("replay", tmp_path / "pipe", cwd=tmp_path)

    assert run.returncode == 1, run.stderr


def test_shrink_explains_what_the_failure_needs_in_words_and_as_json(failing, tmp_path):
    text = swarden("shrink", failing, "--explain", "--replays", 9, cwd=tmp_path).stdout
    result = json.loads(swarden("shrink", failing, "--explain", "--replays", 9, "--json", cwd=tmp_path).stdout)

    assert "\nthe failure needs, by 9 replays of logs that differ in one thing; the budget was used up, " in text
    assert "\n  op 1 before op 2\n" in text
    assert (result["explanation"]["replays"], result["explanation"]["complete"]) == (9, False)
    assert [1, 2] in result["explanation"]["ordered"]


@pytest.mark.parametrize(
    ("arguments", "written"),
    [pytest.param((), "failing.html", id="beside"), pytest.param(("-o", "o.html"), "o.html", id="out")],
)
def test_show_writes_a_page_with_the_rights_of_the_log(failing, tmp_path, arguments, written):
    failing.chmod(0o600)

    run = swarden("show", failing, "--html", *arguments, cwd=tmp_path)

    page = tmp_path / written
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("written: ")
    assert "<h1>failing.oplog</h1>" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("command", ["replay", "show"])
def test_output_has_the_mutant_the_configuration_and_the_prompts(failing, tmp_path, command):
    """Settings with their defaults are left out, but for the main ones."""
    lines = swarden(command, failing, cwd=tmp_path).stdout.splitlines()

    assert [line.split(" (")[0] for line in lines if line.startswith("mutant: ")] == [
        "mutant: B18 is planted in swarden.engine_under_test.cache.tree:RadixTree._recover"
    ]
    [configuration] = [line.split(", ") for line in lines if line.startswith("configuration: ")]
    assert configuration[:4] == ["configuration: page_size 2", "full_pages 64", "swa_pages 6", "sliding_window 2"]
    assert [line.partition(", ")[0] for line in lines if line.startswith("request r")] == [
        "request r1: prompt of 12 tokens",
        "request r2: prompt of 4 tokens (all as in r1)",
    ]


def test_show_prints_the_prompt_of_each_submit(tmp_path):
    """Token ids are printed literally, recipes as text."""
    ops = (Submit(tokens=(7, 8, 9)), Submit(recipe=Recipe(path=(0, 1), cut=1, continues=0), max_new_tokens=2))
    OpLog(Header(engine=OWN, machine="engine", configs=[{}]), ops).save(tmp_path / "two.oplog")

    run = swarden("show", "two.oplog", cwd=tmp_path)

    assert "submit tokens 7 8 9, 1 new  " in run.stdout
    assert "submit 8 tokens by path 0.1 after the 1st prompt less 1, 2 new  " in run.stdout


def test_show_with_a_step_prints_the_whole_state_at_that_step(failing, tmp_path):
    """The state has equations, free lists, requests, records and nodes."""
    run = swarden("show", failing, "--step", 1, cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("mutant: B18 is planted in ")
    assert "\nstep 1\nfull: capacity 64 = free " in run.stdout
    assert "record of request r1: row " in run.stdout
    assert "node n" in run.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("replay nowhere.oplog", "ERROR nowhere.oplog: cannot be read: No such file or directory; name an op-log"),
        ("show some.oplog --html --step 2", "swarden: --html: the page has all steps and engines; leave out --step"),
        ("show some.oplog -o page.html", "swarden: --out: is the path of a page; add --html"),
        ("fuzz --machine toaster", "swarden: --machine: 'toaster' is not one of engine"),
        ("fuzz --model huge-gemma3", f"swarden: --model: 'huge-gemma3' is not one of {', '.join(MODELS)}"),
        ("fuzz --model tiny-gemma3 --machine pd", "swarden: --model: machine pd runs no model; these do: engine"),
        ("fuzz --mutant S116", "swarden: mutant S116: not searched, tests/quality/test_model_mutants.py detects it; "),
        ("fuzz --mutant B0", "swarden: mutant B0: not in the catalogue, nor in "),
        ("fizz", "swarden: No such command 'fizz'."),
        ("replay x.oplog --events nowhere/events", "swarden: --events: nowhere/events cannot be written: No such file"),
    ],
)
def test_misuse_is_one_line_and_exit_code_two(line, message, tmp_path):
    """There is no traceback, and no file is written."""
    run = swarden(*line.split(), cwd=tmp_path)

    lines = (run.stdout + run.stderr).strip().splitlines()
    assert run.returncode == 2
    assert [line[: len(message)] for line in lines] == [message]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """The op-log of two engines; the second one has fewer ops."""
    ops = (Submit(max_new_tokens=2), Submit(engine=1, max_new_tokens=1), Step(count=2), Step(engine=1), Drain(engine=1))
    path = tmp_path / "pair.oplog"
    OpLog(Header(engine=OWN, machine="engine", configs=[CONFIG.to_mapping()] * 2), ops).save(path)
    return path


def test_show_prints_a_table_for_each_engine(pair, tmp_path):
    """With --side only the table of that engine is printed."""
    both, second = swarden("show", pair, cwd=tmp_path), swarden("show", pair, "--side", 1, cwd=tmp_path)

    assert (both.returncode, second.returncode) == (0, 0), both.stderr + second.stderr
    assert [line for line in both.stdout.splitlines() if line.startswith("engine ")] == ["engine 0", "engine 1"]
    assert second.stdout.endswith(both.stdout[both.stdout.index("engine 1\n") :])
    assert "engine 0\n" not in second.stdout


def test_show_of_another_engine_also_prints_the_failed_engine_with_its_configuration(tmp_path):
    run = swarden("show", OPLOGS / "B73.oplog", "--side", 0, cwd=tmp_path)

    assert run.returncode == 0, run.stderr
    of_the_second = run.stdout.partition("engine 1 (decode)\nconfiguration: ")[2]
    assert ", role decode\n" in of_the_second
    assert "\nengine 1 (decode) failed at op 2 (step), after engine step 1\n" in of_the_second


def test_show_names_the_engine_that_lacks_a_step(tmp_path):
    run = swarden("show", OPLOGS / "B73.oplog", "--side", 0, "--step", 1, cwd=tmp_path)

    assert run.returncode == 2
    assert ": engine 0 (prefill): has no engine step 1; the last is 0" in run.stderr


def test_events_of_a_replay_are_lines_of_json(pair, tmp_path):
    """Each event has its op, its engine and the step of that engine."""
    run = swarden("replay", pair, "--events", "events.jsonl", cwd=tmp_path)

    first, *events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    launched = [line for line in events if line["event"] == "Launched"]
    assert run.returncode == 0, run.stderr
    assert first == {"event": "replay", "path": str(pair)}
    assert [(line["op"], line["engine"], line["step"]) for line in launched] == [(3, 0, 1), (3, 0, 2), (4, 1, 1)]
    assert {line["owner"] for line in events if line["event"] == "Taken"} == {"request r1"}


def test_full_disk_for_the_events_does_not_stop_the_replay(failing, tmp_path):
    run = swarden("replay", failing, "--events", "/dev/full", cwd=tmp_path)

    assert run.returncode == 1
    assert run.stdout.startswith(f"FAILED {failing}")
    assert run.stderr == "--events: no further lines: No space left on device\n"


def test_replay_with_another_digest_exits_with_four(failing, tmp_path):
    """Another digest with the same build is nondeterminism."""
    log = load_log(failing)
    OpLog(log.header, log.ops, ["c0ffee", *(log.digests or ())[1:]]).save(tmp_path / "other.oplog")

    run = swarden("replay", "other.oplog", cwd=tmp_path)

    assert run.returncode == 4, run.stderr
    assert "not deterministic: op 1 (Submit): digest " in run.stdout


@pytest.mark.parametrize("command", [("show",), ("replay",)], ids=" ".join)
def test_closed_standard_output_prints_no_error(failing, tmp_path, command):
    """The read end of the pipe is closed before the command starts."""
    reading, writing = os.pipe()
    os.close(reading)

    run = swarden_process(*command, failing, cwd=tmp_path, stdout=writing)
    os.close(writing)

    assert (run.returncode, run.stderr) == (2, "")


def test_error_of_a_full_disk_is_one_line(failing, tmp_path):
    with Path("/dev/full").open("w") as full:
        run = swarden_process("show", failing, cwd=tmp_path, stdout=full.fileno())

    assert run.returncode == 2
    assert run.stderr == "swarden: standard output cannot be written: No space left on device\n"


def test_torn_log_is_an_error_and_the_other_logs_are_replayed(failing, tmp_path):
    """The exit code of misuse takes precedence over FAILED."""
    torn = tmp_path / "torn.oplog"
    torn.write_bytes(failing.read_bytes()[:-30])

    run = swarden("replay", torn, failing, cwd=tmp_path)

    assert run.returncode == 2
    assert [line.split()[0] for line in run.stdout.splitlines() if line.startswith(("ERROR", "FAILED"))] == [
        "ERROR",
        "FAILED",
    ]
    assert torn.read_bytes() == failing.read_bytes()[:-30]


def test_log_of_another_version_is_replayed_only_with_engine(failing, tmp_path):
    log = load_log(failing)
    older = log.with_header(version="0.0.9")
    older.save(tmp_path / "older.oplog")

    refused = swarden("replay", "older.oplog", cwd=tmp_path)
    asked = swarden("replay", "--engine", "swarden", "older.oplog", cwd=tmp_path)

    assert refused.returncode == 2
    assert "ERROR older.oplog: was written for swarden 0.0.9, here is " in refused.stdout
    assert asked.returncode == 1
    assert "replayed on swarden" in asked.stdout


@pytest.mark.parametrize("command", ["show", "shrink"])
def test_log_of_a_version_that_is_not_installed_is_neither_shown_nor_shrunk(failing, tmp_path, command):
    """On another version its ops would be another run."""
    log = load_log(failing)
    log.with_header(version="0.0.9").save(tmp_path / "older.oplog")

    run = swarden(command, "older.oplog", cwd=tmp_path)

    [line] = run.stderr.splitlines()
    assert (run.returncode, run.stdout) == (2, "")
    assert line.startswith("swarden: older.oplog: was written for swarden 0.0.9, here is ")
    assert line.endswith("; install that version")


def test_log_of_an_engine_that_is_not_installed_is_an_error(failing, tmp_path):
    text = failing.read_text().replace('"engine":"swarden"', '"engine":"toy"')
    (tmp_path / "toy.oplog").write_text(text)

    run = swarden("replay", "toy.oplog", cwd=tmp_path)

    assert run.returncode == 2
    assert run.stdout.startswith("ERROR toy.oplog:1: the header: engine 'toy' is not installed; install its package")
