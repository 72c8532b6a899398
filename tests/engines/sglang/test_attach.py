"""`swarden attach` checks the scheduler of a process that swarden does not build (some_server.py)."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.core.oplog import OpLog
from harness.core.ops import Step
from harness.core.replay import run_log
from harness.engines.sglang.boot import boot
from harness.engines.sglang.releases import SGLANG
from tests.engines.sglang.some_server import END_OF_SERVER, THEN, use_after_free

ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).with_name("some_server.py")
USE_AFTER_FREE = "unit_has_one_owner/full page/free_in_use"
NODES_IN_PYTHON = {"SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python"}  # a census reads the nodes of the tree
LEVELS = {"sums": "pools_conserve_units/full pool/too_many", "audit": USE_AFTER_FREE, "census": USE_AFTER_FREE}
LOOPS = {"event_loop_normal": (), "event_loop_overlap": ("--overlap",)}
SESSIONS = ("--sessions", "3", "--requests", "9", "--slots", "2048")
SESSIONS_OF_LOOPS = {"sessions": SESSIONS, "sessions, overlap": (*SESSIONS, "--overlap")}
HEALTHY = {**LOOPS, **SESSIONS_OF_LOOPS}
BROKEN = {f"{name}, use after free": ("--bug", *options) for name, options in HEALTHY.items()}
SERVERS = {**HEALTHY, **BROKEN}
TIMEOUT_S = 900


class Ended(NamedTuple):
    """A server that has ended: its exit code, and what it wrote."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def served(on_release, release, tmp_path_factory):
    """Runs servers with the check attached, and boots the release once: `served(level)` has their ends by name."""
    on_release(release, int)  # fails if the release is not installed

    @cache
    def run(level, names=tuple(SERVERS), on_violation="raise"):
        path = [*map(str, SGLANG.folders_of(release)), str(ROOT)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        out = str(tmp_path_factory.mktemp("strict"))
        attach = ["attach", "sglang", "--level", level, "--on-violation", on_violation, "--out", out]
        options = f" {THEN} ".join(" ".join(SERVERS[name]) for name in names).split()
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli", *attach, "--", sys.executable, str(SERVER), *options],
            env=environment | (NODES_IN_PYTHON if level == "census" else {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        end = re.compile(f"\n{END_OF_SERVER} (-?\\d+)\n")
        stdouts, stderrs, codes = end.split(done.stdout)[::2], end.split(done.stderr)[::2], end.findall(done.stdout)
        return {name: Ended(int(codes[at]), stdouts[at], stderrs[at]) for at, name in enumerate(names)}

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


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("level", LEVELS)
def test_healthy_server_serves_all_requests_without_a_word(level, name, served):
    done = served(level)[name]

    assert (done.code, done.stdout) == (0, f"served {9 if '--sessions' in SERVERS[name] else 12} requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "not attached" not in done.stderr
    assert "capacity" not in done.stderr


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("level", LEVELS)
def test_use_after_free_is_raised(level, name, served):
    done = served(level)[name]

    assert done.code == 1
    assert "MemoryViolation: " in done.stderr
    assert LEVELS[level].split("/")[0] in done.stderr, done.stderr
    assert "one too many" in done.stderr


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("level", LEVELS)
def test_log_of_a_use_after_free_fails_in_the_step_in_which_it_was_raised(level, loop, served, replay):
    [path] = map(Path, re.findall(r"replay: swarden replay (\S+)", served(level)[f"{loop}, use after free"].stderr))

    assert path.stat().st_mode & 0o777 == 0o600
    is_last_step, fingerprints = replay(path)
    assert LEVELS[level] in fingerprints, fingerprints
    assert is_last_step


def test_use_after_free_is_logged_and_the_server_goes_on_until_its_own_idle_check(served):
    name = "event_loop_normal, use after free"
    done = served("audit", (name,), "log")[name]

    logged, ended = done.stderr.find("owned by free and request r1"), done.stderr.find("ValueError: pool memory leak")
    assert 0 < logged < ended, done.stderr
    assert len(set(re.findall(r"\S+\.oplog", done.stderr))) == 2  # of the first violation, and of the error
