"""swarden gate and swarden engines try, over checkouts and releases of the demo's engine, whose leak is a known bug."""

import shutil
import subprocess
from pathlib import Path

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Drain, Step, Submit
from swarden.harness.engines.demo import engine
from swarden.harness.releases.gate_page import NEW_OWNER
from swarden.harness.report.vulnerability import WARNING
from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

TARGET = """
import importlib
import sys
from pathlib import Path
from swarden import kit
from swarden.harness.core.releases import Releases
from swarden.harness.engines.demo import target
from swarden.harness.kit.released_code import BootedRelease, ReleasedCode
from swarden.harness.kit.released import ReleasedTarget

def load(version, folders):
    sys.path[:0] = map(str, folders)
    target.Engine = importlib.import_module("tinyserve.engine").Engine
    return ReleasedCode(version, "tinyserve", {}, {})

class TinyTarget(ReleasedTarget, target.DemoTarget):
    name = "tinyserve"
    code = target.DemoPort.code = kit.EngineCode("tinyserve", emitters=("take", "free"))
    load = BootedRelease("tinyserve", load, places={"Engine": ("engine:Engine",)})
    requirements = Path(__file__).with_name("packages.txt")
    releases = Releases("tinyserve", Path("engines"), requirements, "1 kB", "2 kB", sources="src/")

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
OPS = [Submit(tokens=tuple(range(1, 6)), max_new_tokens=9), Step(count=2), Abort(), Drain()]
SOURCE = Path(engine.__file__).read_text()
STOPPED = "self.pool.free(request.blocks, request.id)\n                self.outputs"
SECOND_LEAK = STOPPED.replace("request.blocks,", 'request.blocks if reason == "length" else [],')
FIXED = SOURCE.replace(LEAK, "request.blocks, request.id)")
BROKEN = ("max_running: int, chunk_len: int)", "max_running: int, chunk_len: int, num_ranks: int)")
RELEASES = {
    "1.0.0": SOURCE,
    "1.1.0": FIXED,
    "1.2.0": FIXED.replace(STOPPED, SECOND_LEAK) + "\n\nclass Ring(Engine): ...\n",
    "1.3.0": SOURCE.replace(*BROKEN),
}
CHANGES = {
    "base": ("", ""),
    "renamed": ("num_full", "full_blocks"),
    "leak": (STOPPED, SECOND_LEAK),
    "twice": (STOPPED, STOPPED.replace("request.blocks,", "request.blocks * 2,")),
    "unreadable": ("class Engine:", "class Engine(:"),
    "broken": BROKEN,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    (folder / "findings").mkdir()
    (folder / "findings/leak-of-an-abort.toml").write_text(BUG)
    log = OpLog(Header(engine="tinyserve", version="1.0.0", configs=[{}]), OPS)
    log.save(folder / "findings/leak-of-an-abort.oplog")
    wheel(folder, "helper", "4.0.0")
    for version, source in RELEASES.items():
        wheel(folder, "tinyserve", version, files={"engine.py": source})
    for name, (healthy, broken) in CHANGES.items():
        (folder / name / "src/tinyserve").mkdir(parents=True)
        (folder / name / "src/tinyserve/__init__.py").touch()
        (folder / name / "src/tinyserve/engine.py").write_text(SOURCE.replace(healthy, broken))
    return folder


@pytest.fixture(scope="module")
def swarden(folder):
    return swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})


@pytest.fixture(scope="module")
def gate(folder, swarden):
    """Runs a gate; returns it with its page."""

    def run(base, head, *more):
        options = ("--runs", "24", "--workers", "1", "--out", f"out/{head}")
        done = swarden("gate", "--base", base, "--head", head, *options, *more)
        page = folder / "out" / head / "page.md"
        return done, page.read_text().replace("\\", "") if page.exists() else ""

    return run


def test_new_leak_behind_a_known_leak_of_the_same_name_is_new_and_leads_to_its_line(gate, folder):
    """Nothing is left of the links."""
    done, page = gate("base", "leak")

    first, _, rest = page.partition("## New: unit_has_one_owner/blocks block/leaked")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 new failure; 0 failures of the base, too" in first
    assert "known: leak-of-an-abort" in rest
    assert "tinyserve/engine.py:91: self.pool.free(request.blocks if reason" in rest.partition("```")[0]
    assert ",file=src/tinyserve/engine.py,line=91::" in (folder / "out/leak/annotations.txt").read_text()
    assert list((folder / "engines").glob("checkout-*")) == []


def test_new_unit_of_two_owners_is_told_on_the_page_and_not_annotated(gate, folder):
    done, page = gate("base", "twice")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "## New: unit_has_one_owner/blocks block/free_twice" in page
    assert WARNING in page
    assert (folder / "out/twice/annotations.txt").read_text() == ""


def test_failure_that_a_fix_does_not_fit_on_the_head_is_old_if_the_base_has_it(gate):
    done, page = gate("base", "renamed")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 new failures; 1 failure of the base, too; 0 runs failed by known bugs" in page
    assert "| unit_has_one_owner/blocks block/leaked |" in page.partition("## Failing on the base, too")[2]


@pytest.mark.parametrize(
    ("head", "why"), [("broken", "missing 1 required positional argument: 'num_ranks'"), ("unreadable", "SyntaxError")]
)
def test_head_that_cannot_be_driven_is_broken(gate, head, why):
    done, page = gate("base", head)

    assert done.returncode == 2
    assert why in page.partition("## Broken")[2]


def test_revisions_are_extracted_and_a_muted_failure_is_put_aside(gate, folder):
    clone = folder / "clone"
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "init", "--quiet", str(clone)], check=True)
    for name in ("base", "leak"):
        shutil.copytree(folder / name, clone, dirs_exist_ok=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", name], check=True)
    entry = '["unit_has_one_owner/blocks block/leaked"]\nuntil = 2999-12-31\nreason = "issue 1"\n'
    (folder / "mutes.toml").write_text(entry)

    done, page = gate("HEAD~1", "clone", "--mutes", "mutes.toml")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "until 2999-12-31: issue 1" in page.partition("## Put aside")[2]


@pytest.mark.parametrize(
    ("sides", "what"),
    [
        pytest.param(("base", "nowhere"), "--head: nowhere is neither a folder nor a git revision in ", id="no-side"),
        pytest.param(
            ("out", "leak"), "--base: out has no src/tinyserve/__init__.py; name a checkout of tinyserve", id="no-base"
        ),
        pytest.param(("base", "leak", "--engine", "demo"), "demo: its target is no ReleasedTarget", id="no-releases"),
    ],
)
def test_sides_without_an_engine_are_refused(gate, folder, sides, what):
    (folder / "out").mkdir(exist_ok=True)

    done, _ = gate(*sides)

    assert done.returncode == 2
    assert what in done.stderr


@pytest.mark.parametrize(
    ("releases", "code", "lines"),
    [
        ("1.2.0 --against 1.0.0", 5, ["pass newly", "- leak-of-an-abort.oplog", NEW_OWNER, "Ring(Engine)"]),
        ("1.0.0 --against 1.1.0", 1, ["## New: ", "1 known op-log failing newly, of 1", "- leak-of-an-abort.oplog"]),
        ("latest --against 1.1.0", 2, ["broken: ", "'num_ranks'"]),
    ],
)
def test_release_is_judged_by_another_one_and_by_known_op_logs(swarden, tmp_path, releases, code, lines):
    page, options = tmp_path / "page.md", ("--runs", "12", "--workers", "1")
    run = swarden("engines", "try", *f"tinyserve=={releases}".split(), *options, "--page", str(page))

    assert run.returncode == code, run.stderr
    text = page.read_text().replace("\\", "")
    assert [line for line in lines if line not in text] == []
