"""The public names: `swarden.kit` for targets, `swarden.fuzz` and `swarden.replay` for tests and notebooks."""

import subprocess
import sys
from pathlib import Path

import pytest

import swarden
from swarden import kit
from swarden.harness.core.errors import UsageError
from swarden.harness.core.replay import Verdict

LEAK = (
    b'{"format":3,"engine":"demo","version":"0.0.1","configs":[{}]}\n'
    b'{"op":"submit","max_new_tokens":8}\n{"op":"step"}\n{"op":"abort"}\n'
)
GUIDE = Path(__file__).parents[2] / "docs/your-engine.md"
NAMES = Path(__file__).parents[1] / "snapshots/kit_names.txt"


def test_names_of_the_kit_are_those_that_targets_rely_on():
    """A name that is removed breaks the packages of users; a new one is added here on purpose."""
    assert sorted(kit.__all__) == NAMES.read_text().split()
    assert [name for name in kit.__all__ if not hasattr(kit, name)] == []
    assert [name for name in kit.__all__ if f"`{name}`" not in GUIDE.read_text()] == []


def test_fuzz_returns_its_findings_and_replay_their_verdict(tmp_path):
    outcome = swarden.fuzz("demo", runs=40, seed=7, out=tmp_path)

    [finding] = outcome.findings
    assert finding.path is not None
    replays = swarden.replay(finding.path)
    assert (outcome.verdict, finding.invariant) == ("violated", "unit_has_one_owner")
    assert (replays.verdict, finding.fingerprint in replays.fingerprints) == (Verdict.FAILED, True)
    assert any("no owner" in line for line in replays.story)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        pytest.param(lambda _: swarden.fuzz("toy"), "engine 'toy' is not installed; install its package", id="engine"),
        pytest.param(lambda _: swarden.fuzz("demo", profile="x"), "profile: 'x' is not one of smoke", id="profile"),
        pytest.param(lambda here: swarden.replay(here / "no.oplog"), "no.oplog: cannot be read", id="file"),
    ],
)
def test_mistake_is_an_exception_with_one_line(tmp_path, call, told):
    with pytest.raises(UsageError) as raised:
        call(tmp_path)

    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_log_of_another_version_is_replayed_where_that_is_asked_for(tmp_path):
    (tmp_path / "old.oplog").write_bytes(LEAK)

    with pytest.raises(UsageError, match=r"was written for demo 0\.0\.1.* give engine='demo' to replay it"):
        swarden.replay(tmp_path / "old.oplog")
    assert swarden.replay(tmp_path / "old.oplog", engine="demo").verdict is Verdict.FAILED


def test_import_of_the_root_imports_no_other_package():
    """A server with the strict check imports it."""
    code = "import sys, swarden; print([name for name in sys.modules if name.startswith(('swarden.', 'hypothesis'))])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
