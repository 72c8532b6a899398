"""swarden engines try, over releases of the demo's engine, each with another planted bug."""

import pytest

from swarden.harness.commands.gate_page import NEW_OWNER
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Submit
from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

TOO_LONG = "outputs_stay_within_max_new_tokens/request/too_long"
TARGET = """
from contextlib import ExitStack
from pathlib import Path
from swarden.harness.core.releases import Releases
from swarden.harness.engines.demo.target import DemoTarget
from swarden.harness.kit.parts import BootedRelease, ReleaseParts
from swarden.harness.kit.released import ReleasedTarget

BUGS = dict.fromkeys(("1.0.0", "1.2.0"), "one-token-too-many")  # 1.1.0 has the leak of the demo's engine
PLANTED = ExitStack()

def load(version, folders):
    return ReleaseParts(version, "tinyserve", {}, {})

class TinyTarget(ReleasedTarget, DemoTarget):
    name = "tinyserve"
    load = BootedRelease("tinyserve", load, parts={"Pool": ("pool:Pool",)})
    releases = Releases("tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB")

    def prepare_process(self):
        super().prepare_process()
        if (bug := BUGS.pop(self.version(), None)) is not None:
            PLANTED.enter_context(self.mutant(bug).planted())

    def build(self, config):
        if self.version() == "1.3.0":
            raise AttributeError("'Engine' object has no attribute 'add'")
        return super().build(config)
"""
RELEASES = ("1.0.0", "1.1.0", "1.2.0", "1.3.0")
SHORT = ("--runs", "12", "--workers", "1")
BUG = """
first = "1.0.0"
fixed = "1.1.0"
tried = "1.0.0"
effect = "an answer is too long"
title = "one token too many"
cause = "the last chunk is full"
fingerprints = ["outputs_stay_within_max_new_tokens/request/too_long"]
searched = "2026-11-27"
verdict = "not worth posting"
"""


@pytest.fixture(scope="module")
def swarden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("releases")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    (folder / "findings").mkdir()
    (folder / "findings/one-token.toml").write_text(BUG)
    header = Header(engine="tinyserve", version="1.0.0", configs=[{}])
    log = OpLog(header, [Submit(tokens=tuple(range(8)), max_new_tokens=2), Drain()])
    log.save(folder / "findings/one-token.oplog")
    for name, version in (("helper", "4.0.0"), *(("tinyserve", version) for version in RELEASES)):
        wheel(folder, name, version)
    run = swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})
    assert run("engines", "install", "tinyserve==1.1.0").returncode == 0
    (folder / "engines/1.1.0/tinyserve/pool.py").write_text("class Pool: ...\n\n\nclass Ring(Pool): ...\n")
    return run


@pytest.mark.parametrize(
    ("release", "against", "code", "lines"),
    [
        pytest.param(
            "1.1.0", (), 5, ["Known op-logs that pass newly", "- one-token.oplog", NEW_OWNER, "Ring(Pool)"], id="owner"
        ),
        pytest.param(
            *("1.2.0", ("--against", "1.1.0"), 1),
            [f"New: {TOO_LONG}", "Known op-logs that fail newly", "- one-token.oplog"],
            id="bug-that-comes-back",
        ),
        pytest.param("1.2.0", ("--against", "1.0.0"), 0, ["Failing on the base, too", f"| {TOO_LONG} |"], id="old"),
        pytest.param(
            *("latest", ("--against", "1.1.0"), 2), ["broken: ", "'Engine' object has no attribute 'add'"], id="broken"
        ),
    ],
)
def test_release_is_judged_by_the_one_before_it_and_by_the_known_op_logs(
    swarden, tmp_path, release, against, code, lines
):
    """No earlier release is installed at first, so the one before 1.1.0 is installed, too."""
    page = tmp_path / "page.md"
    run = swarden("engines", "try", f"tinyserve=={release}", *against, *SHORT, "--page", str(page))

    assert run.returncode == code, run.stderr
    text = page.read_text().replace("\\", "")
    assert [line for line in lines if line not in text] == []
