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

PROGRAM = """#!/bin/sh
printf '%s\\n' "${0##*/}" "$@" "" >> calls
echo "sglang (0.5.23)"
"""
REPORT, PAGE, NOTES = ".swarden/archive/nights/2026-11-29/report.md", ".swarden/gate/page.md", "annotations.txt"


def described(path: Path) -> Any:
    return msgspec.yaml.decode(path.read_bytes())


def act(folder: Path, **inputs: str) -> tuple[list[list[str]], dict[str, str], subprocess.CompletedProcess[str]]:
    """Run the steps of the action that are scripts; returns the calls of programs, the outputs, and the last step."""
    action = described(ACTION)
    values = {name: entry.get("default", "") for name, entry in action["inputs"].items()} | inputs
    texts = {"bin/pip": PROGRAM, "bin/swarden": PROGRAM, f".swarden/gate/{NOTES}": NOTES}
    for name, text in (texts | {name: name for name in (REPORT, PAGE, "page.md")}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    fixed = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "GITHUB_ACTION_PATH": str(ACTION.parent)}
    fixed |= {
        "GITHUB_OUTPUT": "outputs",
        "GITHUB_STEP_SUMMARY": "summary",
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "1",
    }
    for step in (step for step in action["runs"]["steps"] if "run" in step):
        given = {name: re.sub(r"\$\{\{ inputs\.(\w+) }}", lambda m: values[m[1]], v) for name, v in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        run = subprocess.run(command, cwd=folder, env=fixed | given, capture_output=True, text=True, check=False)
        if run.returncode:
            return [], {}, run
    calls = [call.splitlines() for call in (folder / "calls").read_text().split("\n\n") if call]
    outputs = dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())
    return calls, outputs, run


OF_CHECKOUT = ("engines install sglang==checkout-main --from .", "nightly --engine sglang==checkout-main", "report ")
TRY = "engines try sglang==latest --minutes 5 --page page.md"


@pytest.mark.parametrize(
    ("inputs", "commands", "shown", "key"),
    [
        ("night swarden", ("nightly --engine swarden --minutes 5 --archive", "report "), REPORT, "swarden-archive-7-1"),
        ("night sglang .", OF_CHECKOUT, REPORT, "swarden-archive-7-1"),
        ("change  .", ("gate --base HEAD^ --head . --minutes 5",), PAGE, "swarden-archive-7-1"),
        ("change swarden", ("nightly --gate --engine swarden", "report "), REPORT, "swarden-archive-7-1"),
        ("release sglang", (TRY,), "page.md", "swarden-release-sglang-0.5.23"),
    ],
)
def test_action_runs_commands_of_this_build_and_shows_the_page(tmp_path, inputs, commands, shown, key):
    calls, outputs, last = act(tmp_path, **dict(zip(("run", "engine", "checkout"), inputs.split(" "), strict=False)))

    assert last.returncode == 0, last.stderr
    assert calls[0] == ["pip", "install", "torch==2.13.0", f"{ROOT}[engine]"]
    lines = [shlex.join(words).replace("'", "") for words in calls if words[0] == "swarden"]
    assert [line for line, start in zip(lines, commands, strict=True) if not line.startswith(f"swarden {start}")] == []
    for line in lines:
        parse(line)
    assert (tmp_path / "summary").read_text() == shown
    assert (NOTES in last.stdout) == (shown == PAGE)
    assert outputs["key"] == key


def test_input_of_the_action_is_a_word_and_no_part_of_a_script(tmp_path):
    text = "a'b\"; touch stolen; $(touch stolen) `touch stolen`"

    calls, _, _ = act(tmp_path, run="change", engine=text, checkout=text, minutes=text, swarden=text)

    assert [call.count(text) for call in calls] == [1, 3]
    assert not (tmp_path / "stolen").exists()


@pytest.mark.parametrize("run", ["night", "change", "release"])
@pytest.mark.parametrize("checkout", ["", "."])
def test_action_without_a_page_fails_by_the_step_before_alone(tmp_path, run, checkout):
    command, given = [str(ACTION.parent / "run.sh"), "show"], {"RUN": run, "CHECKOUT": checkout}

    ended = subprocess.run(command, cwd=tmp_path, env=os.environ | given, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "swarden: no page was written, see the steps before\n")


def test_unknown_run_of_the_action_is_refused_in_one_line(tmp_path):
    *_, last = act(tmp_path, run="nightly")

    assert last.returncode == 2
    assert last.stderr == "swarden: run: 'nightly' is not night, change or release; correct it\n"


@pytest.mark.parametrize("path", [path for path in WORKFLOWS if path.name != "docs.yml"], ids=lambda path: path.name)
def test_workflow_gives_the_action_inputs_that_it_has(path):
    steps = [step for job in described(path)["jobs"].values() for step in job["steps"]]
    [given] = [step["with"] for step in steps if step["uses"] == f"./{ACTION.parent.relative_to(ROOT)}"]

    assert given.keys() <= described(ACTION)["inputs"].keys()
    assert given["run"] in ("night", "change", "release")
