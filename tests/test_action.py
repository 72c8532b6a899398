"""The action for GitHub: its steps run with programs in the place of pip and swarden that write down their words."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.test_docs import ACTION, ROOT, WORKFLOWS, parse

CALLING = [path for path in WORKFLOWS if path.name != "docs.yml"]
PROGRAM = """#!/bin/sh
printf '%s\\n' "${0##*/}" "$@" "" >> calls
echo "sglang (0.5.23)"
"""
NIGHT, CHANGE = ".swarden/archive/nights/2026-11-29", ".swarden/gate"


def described(path: Path) -> Any:
    return msgspec.yaml.decode(path.read_bytes())


def act(folder: Path, **inputs: str) -> tuple[list[list[str]], dict[str, str], subprocess.CompletedProcess[str]]:
    """Run the steps of the action that are scripts; returns the calls of programs, the outputs, and the last step."""
    action = described(ACTION)
    values = {name: one.get("default", "") for name, one in action["inputs"].items()} | inputs
    (folder / "bin").mkdir()
    for name in ("pip", "swarden"):
        (folder / "bin" / name).write_text(PROGRAM)
        (folder / "bin" / name).chmod(0o755)
    for name, file in ((NIGHT, "report.md"), (CHANGE, "page.md"), (CHANGE, "annotations.txt"), (".", "page.md")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / file).write_text(f"{file} in {name}\n")
    fixed = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "GITHUB_ACTION_PATH": str(ACTION.parent),
        "GITHUB_OUTPUT": "outputs",
        "GITHUB_STEP_SUMMARY": "summary",
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "1",
    }
    for step in (one for one in action["runs"]["steps"] if "run" in one):
        given = {name: re.sub(r"\$\{\{ inputs\.(\w+) }}", lambda m: values[m[1]], v) for name, v in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        run = subprocess.run(command, cwd=folder, env=fixed | given, capture_output=True, text=True, check=False)
        if run.returncode:
            return [], {}, run
    calls = [call.splitlines() for call in (folder / "calls").read_text().split("\n\n") if call]
    outputs = dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())
    return calls, outputs, run


@pytest.mark.parametrize(
    ("inputs", "commands", "shown"),
    [
        (
            {"run": "night", "engine": "swarden", "minutes": "30"},
            ["nightly --engine swarden --minutes 30 --archive .swarden/archive", "report .swarden/archive"],
            f"report.md in {NIGHT}",
        ),
        (
            {"run": "night", "engine": "sglang", "checkout": "."},
            ["engines install sglang==checkout-main --from .", "nightly --engine sglang==checkout-main", "report"],
            f"report.md in {NIGHT}",
        ),
        ({"run": "change", "checkout": "."}, ["gate --base HEAD^ --head . --minutes 5"], f"page.md in {CHANGE}"),
        (
            {"run": "change", "engine": "swarden"},
            ["nightly --gate --engine swarden --minutes 5", "report"],
            f"report.md in {NIGHT}",
        ),
        (
            {"run": "release", "engine": "sglang"},
            ["engines try sglang==latest --minutes 5 --page page.md"],
            "page.md in .",
        ),
    ],
    ids=["night", "night-of-a-checkout", "change-of-a-checkout", "change", "release"],
)
def test_action_runs_commands_of_this_build_and_shows_the_page(tmp_path, inputs, commands, shown):
    calls, _, last = act(tmp_path, **inputs)

    assert last.returncode == 0, last.stderr
    lines = [shlex.join(words) for words in calls if words[0] == "swarden"]
    assert len(lines) == len(commands)
    for line, beginning in zip(lines, commands, strict=True):
        assert line.replace("'", "").startswith(f"swarden {beginning}")
        parse(line)
    assert (tmp_path / "summary").read_text() == f"{shown}\n"
    assert ("annotations.txt" in last.stdout) == (shown == f"page.md in {CHANGE}")


@pytest.mark.parametrize(
    ("inputs", "key", "prefix"),
    [
        ({"run": "night", "archive": "nights"}, "nights-7-1", "nights-"),
        ({"run": "release", "engine": "sglang"}, *["swarden-release-sglang-0.5.23"] * 2),
    ],
    ids=["night", "release"],
)
def test_source_of_the_action_is_installed_and_its_cache_named(tmp_path, inputs, key, prefix):
    [installed, *_], outputs, _ = act(tmp_path, **inputs)

    assert installed == ["pip", "install", "torch==2.13.0", f"{ROOT}[engine]"]
    assert (outputs["key"], outputs["prefix"]) == (key, prefix)


def test_input_of_the_action_is_a_word_and_no_part_of_a_script(tmp_path):
    text = "a'b\"; touch stolen; $(touch stolen) `touch stolen`"

    calls, _, _ = act(tmp_path, run="change", engine=text, checkout=text, minutes=text, swarden=text)

    assert [call.count(text) for call in calls] == [1, 3]
    assert not (tmp_path / "stolen").exists()


def test_unknown_run_of_the_action_is_refused_in_one_line(tmp_path):
    _, _, last = act(tmp_path, run="nightly")

    assert last.returncode == 2
    assert last.stderr == "swarden: run: 'nightly' is not night, change or release; correct it\n"


@pytest.mark.parametrize("path", CALLING, ids=lambda path: path.name)
def test_workflow_gives_the_action_inputs_that_it_has(path):
    steps = [step for job in described(path)["jobs"].values() for step in job["steps"]]
    [given] = [step["with"] for step in steps if step["uses"] == f"./{ACTION.parent.relative_to(ROOT)}"]

    assert given.keys() <= described(ACTION)["inputs"].keys()
    assert given["run"] in ("night", "change", "release")
