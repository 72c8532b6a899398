"""swarden gate, over checkouts of the demo's engine, whose own leak is a known bug."""

import subprocess
from pathlib import Path

import pytest

from swarden.harness.engines.demo import engine
from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

TARGET = """
import importlib
import sys
from pathlib import Path
from swarden import kit
from swarden.harness.core.releases import Releases
from swarden.harness.engines.demo import target
from swarden.harness.kit.parts import BootedRelease, ReleaseParts
from swarden.harness.kit.released import ReleasedTarget

def load(version, folders):
    sys.path[:0] = map(str, folders)
    target.Engine = importlib.import_module("tinyserve.engine").Engine
    return ReleaseParts(version, "tinyserve", {}, {})

class TinyTarget(ReleasedTarget, target.DemoTarget):
    name = "tinyserve"
    code = target.CODE = kit.EngineCode("tinyserve", emitters=("take", "free"))
    load = BootedRelease("tinyserve", load, parts={"Engine": ("engine:Engine",)})
    releases = Releases("tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB")

    def prepare_process(self):
        self.booted()
"""
LEAK = "request.blocks[:num_full], request.id)  # the bug: a block that is not full leaks"
BUG = f"""
first = "1.0.0"
tried = "1.0.0"
effect = "an abort leaks a block"
title = "a block that is not full leaks"
cause = "only full blocks are freed"
fingerprints = ["unit_has_one_owner/blocks block/leaked"]
searched = "2026-11-27"
verdict = "not worth posting"

[[fixes]]
releases = ["1.0.0", "1.0.0"]

[[fixes.hunks]]
at = "tinyserve.engine:Engine.abort"
before = "{LEAK}"
after = "request.blocks, request.id)"
"""
SOURCE = Path(engine.__file__).read_text()
STOPPED = "self.pool.free(request.blocks, request.id)\n                self.outputs"
CHANGES = {
    "base": ("", ""),
    "renamed": ("num_full", "full_blocks"),
    "leak": (STOPPED, STOPPED.replace("request.blocks,", 'request.blocks if reason == "length" else [],')),
    "broken": ("def add(", "def enqueue("),
}


@pytest.fixture(scope="module")
def swarden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    (folder / "findings").mkdir()
    (folder / "findings/leak-of-an-abort.toml").write_text(BUG)
    wheel(folder, "helper", "4.0.0")
    for name, (healthy, broken) in CHANGES.items():
        (folder / name / "tinyserve").mkdir(parents=True)
        (folder / name / "tinyserve/__init__.py").touch()
        (folder / name / "tinyserve/engine.py").write_text(SOURCE.replace(healthy, broken))
    run = swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})

    def gate(base, head, *more):
        out = folder / f"out-of-{Path(head).name}"
        done = run("gate", "--base", base, "--head", head, "--out", out, "--runs", "30", "--workers", "1", *more)
        return done, (out / "page.md").read_text() if (out / "page.md").exists() else ""

    gate.folder = folder
    return gate


def test_new_leak_behind_a_known_leak_of_the_same_name_is_new_and_leads_to_its_line(swarden):
    done, page = swarden("base", "leak")

    assert done.returncode == 1, done.stderr + done.stdout
    assert page == ""
