"""swarden archive draft, of the leak of the demo's engine in two of its releases."""

import tomllib

import pytest

from swarden.harness.core.oplog import Header, OpLog
from tests.harness.commands.test_gate import BROKEN, FIXED, LEAK, OPS, SOURCE, TARGET
from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

LEAKED, KILLED = "unit_has_one_owner/blocks block/leaked", "crash/SIGKILL"
DEADLY = SOURCE.replace(LEAK, "__import__('os').kill(__import__('os').getpid(), 9))")
RELEASES = {"1.0.0": SOURCE, "1.1.0": SOURCE, "1.2.0": FIXED, "1.3.0": SOURCE.replace(*BROKEN), "1.4.0": DEADLY}
OPEN = ["title", "effect", "cause", "searched", "verdict"]


@pytest.fixture(scope="module")
def drafted(tmp_path_factory):
    """The folder of a draft, and a function that runs a command line there."""
    folder = tmp_path_factory.mktemp("draft")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    wheel(folder, "helper", "4.0.0")
    for version, source in RELEASES.items():
        wheel(folder, "tinyserve", version, files={"engine.py": source})
    for name, version, expected in (("found", "1.0.0", LEAKED), ("deadly", "1.4.0", KILLED)):
        header = Header(engine="tinyserve", version=version, configs=[{}], expected=expected)
        OpLog(header, OPS).save(folder / f"{name}.oplog")
    pools = f'{TARGET}    large_pools = {{"num_blocks": 64}}\n'
    swarden = swarden_with(folder, pools, {"tinyserve": "TinyTarget"})
    installed = swarden("engines", "install", *(f"tinyserve=={version}" for version in RELEASES))
    assert installed.returncode == 0, installed.stderr
    run = swarden("archive", "draft", "found.oplog", "--out", "leak.toml")
    assert run.returncode == 0, run.stderr
    return folder, swarden


def test_draft_has_what_is_measured_and_the_op_log_beside_it(drafted):
    """Releases that cannot run the op-log, or that it kills, are not among those that are tried."""
    folder, _ = drafted

    bug = tomllib.loads((folder / "leak.toml").read_text())

    assert (bug["first"], bug["fixed"], bug["tried"]) == ("1.0.0", "1.2.0", "1.2.0")
    assert LEAKED in bug["fingerprints"]
    assert bug["large_pools"] == {"num_blocks": 64}
    assert bug["document"]["code_release"] == "1.1.0"
    assert bug["document"]["code"][0]["file"] == "tinyserve/engine.py"
    assert (folder / "leak.oplog").read_bytes() == (folder / "found.oplog").read_bytes()


def test_check_names_what_is_open_then_what_is_wrong(drafted):
    folder, swarden = drafted
    draft = (folder / "leak.toml").read_text()

    run = swarden("archive", "draft", "leak.toml", "--check")
    (folder / "bad.toml").write_text(draft.replace("TODO", "said"))
    bad = swarden("archive", "draft", "bad.toml", "--check")

    assert run.returncode == 5, run.stderr
    assert run.stdout.splitlines()[:5] == OPEN
    assert "document.steps.0" in run.stdout
    assert bad.returncode == 2
    assert 'bad.toml: searched is "said", want' in bad.stderr


def test_draft_overwrites_nothing(drafted):
    _, swarden = drafted

    again = swarden("archive", "draft", "found.oplog", "--out", "leak.toml")

    assert again.returncode == 2
    assert "--out: leak.toml exists; name a new file" in again.stderr


def test_draft_of_a_log_that_kills_its_process_is_refused(drafted):
    _, swarden = drafted

    run = swarden("archive", "draft", "deadly.oplog")

    assert run.returncode == 2
    assert "deadly.oplog: its process was killed by SIGKILL on 1.4.0; write its file by hand" in run.stderr
