"""`swarden attach` checks the scheduler of a process that swarden does not build (some_server.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.oplog import OpLog
from harness.core.ops import Step
from harness.core.replay import run_log
from harness.engines.sglang.boot import boot
from harness.engines.sglang.releases import SGLANG
from tests.engines.sglang.some_server import use_after_free

ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).with_name("some_server.py")
USE_AFTER_FREE = "unit_has_one_owner/full page/free_in_use"
NODES_IN_PYTHON = {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}  # a census reads the nodes of the tree
SESSIONS = ("--sessions", "3", "--requests", "9", "--slots", "2048")
LOOPS = {"event_loop_normal": (), "event_loop_overlap": ("--overlap",)}
LEVELS = {"sums": "pools_conserve_units/full pool/too_many", "audit": USE_AFTER_FREE, "census": USE_AFTER_FREE}


@pytest.fixture
def serve(on_release, release, tmp_path):
    """Runs the server with the check attached: `serve(level, *options of the server, on_violation=...)`."""
    on_release(release, int)  # fails if the release is not installed

    def run(level, *options, on_violation="log"):
        path = [*map(str, SGLANG.folders_of(release)), str(ROOT)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        attach = ["attach", "sglang", "--level", level, "--on-violation", on_violation, "--out", str(tmp_path)]
        return subprocess.run(
            [sys.executable, "-m", "harness.cli", *attach, "--", sys.executable, str(SERVER), *options],
            env=environment | (NODES_IN_PYTHON if level == "census" else {}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def replay(on_release, release):
    """Calls `replayed` in a process of the release."""
    return lambda path: on_release(release, replayed, release, path)


def replayed(release: str, path: Path) -> tuple[bool, set[str]]:
    """Does a log fail in its last engine step, behind the port with the bug planted? And its fingerprints."""
    log = OpLog.load(path)
    with use_after_free(boot(release, SGLANG.folders_of(release))):
        driver = run_log(log)
    num_steps = sum(op.count for op in log.ops if isinstance(op, Step))
    return driver.snapshot().step == num_steps, set(driver.failure.fingerprints if driver.failure else ())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("level", LEVELS)
def test_healthy_server_serves_all_requests_without_a_word(level, loop, serve):
    done = serve(level, *LOOPS[loop])

    assert (done.returncode, done.stdout) == (0, "served 12 requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "not attached" not in done.stderr
    assert "capacity" not in done.stderr


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("level", LEVELS)
def test_use_after_free_is_raised_in_the_step_in_which_its_log_fails(level, loop, serve, replay, tmp_path):
    done = serve(level, "--bug", *LOOPS[loop], on_violation="raise")

    assert done.returncode == 1
    assert "MemoryViolation: " in done.stderr
    assert LEVELS[level].split("/")[0] in done.stderr, done.stderr
    assert "one too many" in done.stderr
    [path] = tmp_path.glob("*.oplog")
    assert f"replay: swarden replay {path}\n" in done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    is_last_step, fingerprints = replay(path)
    assert LEVELS[level] in fingerprints, fingerprints
    assert is_last_step


def test_use_after_free_is_logged_and_the_server_goes_on_until_its_own_idle_check(serve, tmp_path):
    done = serve("audit", "--bug")

    logged, ended = done.stderr.find("owned by free and request r1"), done.stderr.find("ValueError: pool memory leak")
    assert 0 < logged < ended, done.stderr
    assert len(list(tmp_path.glob("*.oplog"))) == 2  # of the first violation, and of the error


@pytest.mark.parametrize("level", ["sums", "audit"])
def test_sessions_hold_their_pages_between_two_turns(level, serve):
    done = serve(level, *SESSIONS)

    assert (done.returncode, done.stdout) == (0, "served 9 requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "capacity" not in done.stderr


def test_use_after_free_in_a_session_is_raised(serve):
    done = serve("audit", "--bug", *SESSIONS, on_violation="raise")

    assert done.returncode == 1
    assert "MemoryViolation: unit_has_one_owner" in done.stderr, done.stderr


def test_census_names_the_sessions_that_it_does_not_know(serve):
    assert "not attached to the scheduler: it has streaming sessions" in serve("census", *SESSIONS).stderr
