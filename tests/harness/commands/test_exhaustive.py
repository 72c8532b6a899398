"""`swarden fuzz --exhaustive`: output, exit codes and mistakes."""

import json
import re

import pytest

from tests.harness.some_commands import swarden


def test_search_of_a_healthy_engine_tells_the_states_of_each_level(tmp_path):
    run = swarden("fuzz", "--exhaustive", 2, "--workers", 1, "--json", cwd=tmp_path)

    result = json.loads(run.stdout)
    assert run.returncode == 0, run.stderr
    assert (result["verdict"], result["reached"], result["findings"]) == ("green", 2, [])
    assert [level["ops"] for level in result["levels"]] == [1, 2]
    assert result["states"] == sum(level["states"] for level in result["levels"])


def test_search_that_ends_before_its_depth_is_not_judged(tmp_path):
    run = swarden("fuzz", "--exhaustive", 9, "--minutes", 0.01, "--workers", 1, "--json", cwd=tmp_path)

    result = json.loads(run.stdout)
    assert (result["verdict"], result["depth"]) == ("not judged", 9)
    assert result["reached"] < 9


def test_finding_is_written_and_replays(tmp_path):
    run = swarden("fuzz", "--exhaustive", 1, "--mutant", "B3", "--workers", 1, "--json", cwd=tmp_path)

    [finding] = json.loads(run.stdout)["findings"]
    assert run.returncode == 1
    assert finding["ops"] == 2
    assert swarden("replay", finding["path"], cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--exhaustive", 1, "--set", "overlap"], "swarden: --set: 'overlap'; want NAME=VALUE"),
        (
            ["--exhaustive", 1, "--set", "overlap=yes"],
            "swarden: --set: 'overlap=yes': want a value in JSON, a text in quotes: 'overlap=",
        ),
        (["--exhaustive", 1, "--set", "nothing=1"], "swarden: --set for swarden: 'nothing' is not one of page_size, "),
        (["--set", "overlap=true", "--set", "overlap=false"], "swarden: --set: overlap is given twice"),
        (["--exhaustive", 1, "--set", "page_size=0"], "swarden: page_size: 0 is not one of"),
        (["--exhaustive", 1, "--seed", 3], "swarden: --seed: has no effect with --exhaustive"),
        (["--exhaustive", 1, "--machine", "pd"], "swarden: --machine: pd links several engines"),
    ],
)
def test_mistake_is_one_line(tmp_path, options, message):
    run = swarden("fuzz", *options, cwd=tmp_path)

    assert run.returncode == 2
    [line] = run.stderr.splitlines()
    assert re.match(message, line), line
