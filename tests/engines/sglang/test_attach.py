"""`swarden attach` checks the scheduler of a process that swarden does not build (some_server.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.oplog import OpLog
from harness.core.replay import run_log
from harness.engines.sglang.boot import boot
from harness.engines.sglang.releases import SGLANG
from tests.engines.sglang.some_server import use_after_free

RELEASE = "0.5.12.post1"
ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).with_name("some_server.py")
USE_AFTER_FREE = "unit_has_one_owner/full page/free_in_use/free+request"
LEVELS = {"sums": "pools_conserve_units/full pool/too_many", "audit": USE_AFTER_FREE, "census": USE_AFTER_FREE}
STEP_OF_THE_BUG = 8


@pytest.fixture
def serve(on_release, tmp_path):
    """Runs the server with the check attached: `serve(level, *options of the server, on_violation=...)`."""
    on_release(RELEASE, int)  # fails if the release is not installed

    def run(level, *options, on_violation="log"):
        path = [*map(str, SGLANG.folders_of(RELEASE)), str(ROOT)]
        attach = ["attach", "sglang", "--level", level, "--on-violation", on_violation, "--out", str(tmp_path)]
        return subprocess.run(
            [sys.executable, "-m", "harness.cli", *attach, "--", sys.executable, str(SERVER), *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def replayed(path: Path) -> tuple[int, set[str]]:
    """The engine step at which a log fails behind the port with the bug planted, and its fingerprints."""
    with use_after_free(boot(RELEASE, SGLANG.folders_of(RELEASE))):
        driver = run_log(OpLog.load(path))
    failure = driver.failure
    return (driver.snapshot().step, set(failure.fingerprints)) if failure is not None else (0, set())


@pytest.mark.parametrize("level", LEVELS)
def test_healthy_server_serves_all_requests_without_a_word(level, serve):
    done = serve(level)

    assert (done.returncode, done.stdout) == (0, "served 12 requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "not attached" not in done.stderr
    assert "capacity" not in done.stderr


@pytest.mark.parametrize("level", LEVELS)
def test_use_after_free_is_raised_at_its_step_and_replays_behind_the_port(level, serve, on_release, tmp_path):
    done = serve(level, "--bug", on_violation="raise")

    assert done.returncode == 1
    assert "MemoryViolation: " in done.stderr
    assert LEVELS[level].split("/")[0] + ": " in done.stderr, done.stderr
    assert "one too many" in done.stderr
    [path] = tmp_path.glob("*.oplog")
    assert f"replay: swarden replay {path}\n" in done.stderr
    step, fingerprints = on_release(RELEASE, replayed, path)
    assert LEVELS[level] in fingerprints, fingerprints
    assert step == STEP_OF_THE_BUG


def test_use_after_free_is_logged_and_the_server_goes_on_until_its_own_idle_check(serve, tmp_path):
    done = serve("audit", "--bug")

    logged, ended = done.stderr.find("owned by free and request r1"), done.stderr.find("ValueError: pool memory leak")
    assert 0 < logged < ended, done.stderr
    assert len(list(tmp_path.glob("*.oplog"))) == 2  # of the first violation, and of the error
