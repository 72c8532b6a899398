"""`swarden attach` checks the scheduler of a process that swarden does not watch (some_server.py)."""

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
from harness.engines.vllm.boot import boot
from harness.engines.vllm.releases import VLLM
from tests.engines.vllm.some_server import END_OF_SERVER, NUM_REQUESTS, THEN, use_after_free

ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).with_name("some_server.py")
LEVELS = {"sums": "pools_conserve_units", "audit": "unit_has_one_owner", "census": "unit_has_one_owner"}
CASES = [("0.33.0", "sums"), ("0.33.0", "audit"), ("0.33.0", "census"), ("0.20.2", "census")]
HEALTHY = {"core": (), "queue of batches": ("--asynchronous",)}
BROKEN = {f"{name}, use after free": ("--bug", *options) for name, options in HEALTHY.items()}
SERVERS = {**HEALTHY, **BROKEN}
TIMEOUT_S = 600


class Ended(NamedTuple):
    """A server that has ended: its exit code, and what it wrote."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def served(on_release, tmp_path_factory):
    """Runs servers with the check attached: `served(version, level)` has their ends by name."""

    @cache
    def run(version, level):
        on_release(version, int)  # fails if the release is not installed
        path = os.pathsep.join([*map(str, VLLM.folders_of(version)), str(ROOT)])
        out = str(tmp_path_factory.mktemp("strict"))
        attach = ["attach", "vllm", "--level", level, "--on-violation", "raise", "--out", out]
        options = f" {THEN} ".join(map(" ".join, SERVERS.values())).split(" ")
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli", *attach, "--", sys.executable, str(SERVER), *filter(None, options)],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        end = re.compile(f"\n{END_OF_SERVER} (-?\\d+)\n")
        stdouts, stderrs, codes = end.split(done.stdout)[::2], end.split(done.stderr)[::2], end.findall(done.stdout)
        return {name: Ended(int(codes[at]), stdouts[at], stderrs[at]) for at, name in enumerate(SERVERS)}

    return run


def replayed(version: str, path: Path) -> tuple[bool, set[str]]:
    """Does a log fail in its last engine step, behind the port with the bug planted? And the laws that fail."""
    log = OpLog.load(path)
    boot(version, VLLM.folders_of(version))
    with use_after_free():
        driver = run_log(log)
    num_steps = sum(op.count for op in log.ops if isinstance(op, Step))
    fingerprints = driver.failure.fingerprints if driver.failure else ()
    return driver.snapshot().step == num_steps, {name.split("/")[0] for name in fingerprints}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize(("version", "level"), CASES)
def test_healthy_server_serves_all_requests_without_a_word(version, level, name, served):
    done = served(version, level)[name]

    assert (done.code, done.stdout) == (0, f"served {NUM_REQUESTS} requests"), done.stderr
    assert "attached to the scheduler, level " + level in done.stderr
    assert "not attached" not in done.stderr
    assert "the check ends here" not in done.stderr
    assert "capacity" not in done.stderr


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize(("version", "level"), CASES)
def test_use_after_free_is_raised_in_the_step_in_which_a_replay_fails(version, level, name, served, on_release):
    done = served(version, level)[name]

    assert done.code == 1
    assert "MemoryViolation: " in done.stderr
    assert LEVELS[level] in done.stderr, done.stderr
    [path] = map(Path, re.findall(r"replay: swarden replay (\S+)", done.stderr))
    is_last_step, laws = on_release(version, replayed, version, path)
    assert LEVELS[level] in laws, laws
    assert is_last_step
