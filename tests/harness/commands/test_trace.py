"""`swarden trace`: output and exit codes."""

import json
from functools import partial
from pathlib import Path

import pytest

from swarden.engine_under_test.strict import VARIABLE
from swarden.harness.commands.shrink import shrink
from swarden.harness.core.admission import load_log
from swarden.harness.core.replay import Verdict, replay
from tests.harness.some_commands import swarden
from tests.harness.traces.some_traces import LEAK, chatty_rows, row, write_trace

KEYS = """
    requests prompt_tokens output_tokens hit_share hit_share_beyond_first_block retractions steps seconds violations
    pools
"""


@pytest.fixture
def run(tmp_path):
    return partial(swarden, "trace", cwd=tmp_path)


@pytest.fixture
def path(tmp_path):
    return write_trace(tmp_path / "t.jsonl", chatty_rows(40))


def test_json_output_is_one_object(run, path):
    result = run(path, "--limit", 30, "--json")

    figures = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (0, "")
    assert list(figures) == KEYS.split()
    assert figures["requests"] == 30
    assert all(0 < figures[share] < 1 for share in ("hit_share", "hit_share_beyond_first_block"))
    assert [list(pool) for pool in figures["pools"].values()] == [["capacity", "peak", "evicted"]] * 2


def test_oracle_has_one_pool_that_never_evicts(run, path):
    figures = json.loads(run(path, "--oracle", "--json").stdout)

    assert list(figures["pools"]) == ["full"]
    assert figures["pools"]["full"]["evicted"] == 0


def test_output_without_json_is_a_table(run, path):
    result = run(path, "--limit", 30)

    assert result.returncode == 0
    assert "\n".join(line.split("  ")[0].strip() for line in result.stdout.splitlines()) == (
        "requests\nprompt tokens\noutput tokens\nhit share\nhit share beyond the first block\nretractions\n"
        "engine steps\nseconds\nviolations\nfull pages\nswa pages"
    )


def test_requests_that_were_cut_short_are_reported_on_standard_error(run, tmp_path):
    path = write_trace(tmp_path / "t.jsonl", [row([0, 1]), row(list(range(300)))])

    result = run(path, "--json")

    assert result.returncode == 0
    assert result.stderr == "requests cut short: 1, the first was rejected: the prompt needs 301 full pages of 256\n"


def test_violation_exits_with_1_and_prints_its_story(run, path):
    with LEAK.planted():
        result = run(path, "--json")

    assert result.returncode == 1
    assert json.loads(result.stdout)["violations"] > 0
    assert result.stderr.startswith("unit_has_one_owner: ")


def test_misuse_is_one_line(run, path):
    result = run(path, "--page-size", 7)

    assert "page_size: 7" in result.stderr
    assert (result.returncode, len(result.stderr.splitlines()), result.stdout) == (2, 1, "")


def test_invalid_row_is_refused_before_the_first_request(run, path):
    path.write_text(path.read_text() + "{}\n")

    result = run(path, "--json")

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"swarden: {path}:41: no timestamp; ")


def test_violation_of_a_strict_check_writes_a_log_that_replays_and_shrinks(run, path, tmp_path, monkeypatch):
    """The message names the op-log, which fails again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "audit")

    result = run(path, "--check-every", 0, "--mutant", "B13", "--json")

    [log] = Path(".swarden/strict").iterdir()
    assert result.returncode == 1
    assert result.stderr.splitlines()[0].startswith("engine error: AccountingError: units_move_only_by_their_owner: ")
    assert result.stderr.splitlines()[-1] == f"replay: swarden replay {log}"
    monkeypatch.delenv(VARIABLE)
    assert replay(load_log(log)).verdict is Verdict.FAILED
    shrink(log, seconds=5)
    assert len(load_log(log.with_suffix(".small.oplog")).ops) <= 4


@pytest.mark.parametrize("ratio", ["inf", "1e300", "1025"])
def test_host_ratio_without_bound_is_a_usage_error(run, path, ratio):
    result = run(path, "--host-ratio", ratio)

    assert (result.returncode, result.stderr) == (
        2,
        f"swarden: --host-ratio: {float(ratio)} is not a number up to 1024\n",
    )


def test_prompts_that_wait_have_a_limit(run, tmp_path):
    """They arrive at the same time, before any step."""
    rows = [row(list(range(32_000)))] * 2  # 512,000 tokens each, after scaling
    path = write_trace(tmp_path / "t.jsonl", [*rows, row(list(range(4000)))])

    result = run(path, "--full-pages", 128_000)

    assert (result.returncode, result.stderr) == (
        2,
        "swarden: op 3: the prompts have 1088000 tokens; want at most 1048576\n",
    )
