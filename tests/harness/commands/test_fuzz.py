"""`swarden fuzz`: output, exit codes and files."""

import json
import shlex

import pytest

from swarden.harness.engines.own.faults import FAULTS
from tests.harness.some_commands import swarden

KEYS = """
    version command seed profile workers verdict why_not_judged interrupted runs replayed limited_runs steps seconds
    boot_seconds steps_per_second violations findings known refused probes checks noops owed never_due not_exercised
    runs_since_new diverged target_faults engine engine_version faults
"""


def test_clean_campaign_exits_with_zero_and_prints_only_json(tmp_path):
    """Standard output is one object with the documented keys; shares are from 0 to 1."""
    run = swarden("fuzz", "--profile", "smoke", "--runs", 4, "--workers", 1, "--seed", 5, "--json", cwd=tmp_path)

    result = json.loads(run.stdout)
    assert run.returncode == 0, run.stderr
    assert set(result) == {*KEYS.split()}
    assert (result["runs"], result["violations"], result["findings"]) == (4, 0, [])
    assert all(0 <= share <= 1 for share in result["noops"].values())
    assert list(result["faults"]) == list(FAULTS)
    assert list(tmp_path.glob(".swarden/findings/*")) == []


def test_campaign_prints_the_whole_command_that_runs_it_again(tmp_path):
    """The printed line, with --json, makes the same runs; it has every option that changes the runs."""
    first = swarden(
        "fuzz", "--engine", "demo", "--mutant", "one-token-too-many", "--runs", 8, "--workers", 1, "--seed", 5,
        "--profile", "smoke", "--out", "there", "--set", "block_size=4", "--shrink-seconds", 60, cwd=tmp_path,
    )  # fmt: skip
    [line] = [line for line in first.stderr.splitlines() if line.startswith("to run it again: swarden ")]

    again = swarden(*shlex.split(line.partition(" swarden ")[2]), "--json", cwd=tmp_path)

    result = json.loads(again.stdout)
    assert result["command"] == line.removeprefix("to run it again: ")
    assert f"{result['verdict']}: {result['runs']} runs, {result['steps']} engine steps in " in first.stdout
    assert (first.returncode, again.returncode) == (1, 1)


def test_finding_is_named_while_it_is_shrunk_and_not_shrunk_when_the_time_is_over(tmp_path):
    """It is repeated once, so it is confirmed and has its story."""
    run = swarden(
        "fuzz", "--engine", "demo", "--stop-on-first", "--workers", 1, "--seed", 1, "--json", "--shrink-seconds", 0,
        cwd=tmp_path,
    )  # fmt: skip

    [finding] = json.loads(run.stdout)["findings"]
    line = f"demo: shrinking {finding['fingerprint']}, found with {finding['ops']} ops, 1 of 1"
    assert line in run.stderr.splitlines()
    assert run.returncode == 1
    assert "replay" in swarden("replay", finding["path"], cwd=tmp_path).stdout


def test_folder_that_cannot_be_written_is_refused_before_the_first_run(tmp_path):
    (tmp_path / "file").touch()

    run = swarden("fuzz", "--out", "file/findings", cwd=tmp_path)

    assert run.returncode == 2
    assert run.stderr == "swarden: --out: file/findings cannot be written: Not a directory; name another folder\n"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A campaign with a planted bug, and its folder."""
    folder = tmp_path_factory.mktemp("planted")
    run = swarden(
        "fuzz", "--machine", "engine", "--mutant", "B46", "--stop-on-first", "--workers", 1, "--seed", 1, "--json",
        "--events", "events.jsonl", "--minutes", 1, cwd=folder,
    )  # fmt: skip
    return run, folder


def test_campaign_with_a_planted_bug_writes_a_shrunk_log_that_fails_again(planted):
    """A pytest file is written beside the op-log."""
    found, folder = planted
    [finding] = json.loads(found.stdout)["findings"]

    again = swarden("replay", finding["path"], cwd=folder)

    assert (found.returncode, again.returncode) == (1, 1), found.stderr + again.stderr
    assert again.stdout.startswith(f"FAILED {finding['path']}\nfound: requests_are_in_one_queue/")
    assert again.stdout.rstrip().endswith(f"replay: swarden replay {finding['path']}")
    assert finding["ops"] <= 12
    assert len(list((folder / ".swarden" / "findings").glob("test_*.py"))) == 1


def test_bug_of_a_model_is_searched_for_and_replayed_with_its_model(tmp_path):
    """No option names the model."""
    found = swarden("fuzz", "--mutant", "S113", "--stop-on-first", "--workers", 1, "--seed", 1, "--json", cwd=tmp_path)
    [finding] = json.loads(found.stdout)["findings"]

    again = swarden("replay", finding["path"], cwd=tmp_path)

    assert (found.returncode, again.returncode) == (1, 1), found.stderr + again.stderr
    assert "model tiny-gemma3 and the bug S113" in found.stderr
    assert again.stdout.startswith(f"FAILED {finding['path']}\nfound: logits_match_uncached_model/")


def test_events_of_a_campaign_are_its_progress_and_its_findings(planted):
    events = [json.loads(line) for line in (planted[1] / "events.jsonl").read_text().splitlines()]
    assert [line["runs"] for line in events[:-1]] == list(range(1, len(events)))
    assert (events[-1]["event"], events[-1]["invariant"]) == ("finding", "requests_are_in_one_queue")
