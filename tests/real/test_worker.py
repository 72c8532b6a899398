"""vLLM's own worker on the CPU runs tiny models behind the port: `make test-engines-real`."""

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.engines.vllm_cpu.checkpoint import MODELS
from swarden.harness.engines.vllm_cpu.mutants import MUTANTS
from tests.engines.some_findings import laws_with, op_logs_of
from tests.engines.some_laws import law_of
from tests.real.servers import RELEASE

ENGINE = f"vllm-cpu=={RELEASE}"
LAWS = ("kv_is_that_of_its_tokens", "outputs_match_uncached_model", "slots_hold_their_prefix")
BUGS = [one for name in ("vllm", "vllm-cpu") for one in op_logs_of(name) if one.bug.patch_for(RELEASE) is not None]
END_S = 600
BY_HAND = {path.stem: path for path in Path(__file__).with_name("mutants").glob("*.oplog")}  # that traffic seldom finds
HEALTHY = ("--set", "seeds=false", "--with-fix", "all")


def swarden(command, *arguments):
    """The exit code and the figures of a command."""
    line = [sys.executable, "-m", "swarden", command, *map(str, arguments), "--json"]
    elsewhere = {**os.environ, "HOME": "/nonexistent"}  # vLLM keeps what it learns of a model below it
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=END_S, env=elsewhere)
    return done.returncode, json.loads(done.stdout)


def fuzz(out, *options):
    return swarden("fuzz", "--engine", ENGINE, "--workers", 1, "--seed", 3, "--out", out, *options)


def verdicts(*arguments):
    return [one["verdict"] for one in swarden("replay", *arguments)[1]["replays"]]


@pytest.mark.parametrize("model", MODELS)
def test_every_pass_and_every_answer_of_healthy_runs_is_compared(model, tmp_path):
    code, figures = fuzz(tmp_path, "--model", model, *HEALTHY, "--runs", 40)

    assert (code, figures["findings"]) == (ExitCode.CLEAN, [])
    evaluated = {law: figures["checks"][law]["evaluated"] for law in LAWS}
    assert min(evaluated.values()) > figures["runs"]


@pytest.mark.parametrize("path", BY_HAND.values(), ids=BY_HAND)
def test_op_log_by_hand_shows_a_bug_of_the_worker(path, tmp_path):
    log = load_log(path)
    healthy = tmp_path / path.name
    log.with_header(mutant=None).save(healthy)

    assert verdicts(path, healthy) == ["FAILED", "FIXED"]


@pytest.mark.parametrize("bug", [bug for bug in MUTANTS.all if bug.id not in BY_HAND], ids=lambda bug: bug.id)
def test_bug_of_the_worker_is_found_and_is_none_of_the_scheduler(bug, tmp_path):
    code, figures = fuzz(tmp_path, "--mutant", bug.id, *HEALTHY, "--runs", 100, "--stop-on-first")

    [finding] = figures["findings"]
    assert code == ExitCode.VIOLATED
    assert finding["invariant"] in bug.caught_by
    healthy = tmp_path / "healthy.oplog"
    log = load_log(Path(finding["path"]))
    log.with_header(mutant=None).save(healthy)
    assert verdicts(finding["path"], healthy) == ["FAILED", "FIXED"]  # in one process
    assert verdicts(healthy, finding["path"]) == ["FIXED", "FAILED"]
    assert verdicts(finding["path"], "--model", "stand-in") == ["FIXED"]


@pytest.mark.parametrize("shown", BUGS, ids=str)
def test_op_log_of_a_bug_fails_and_passes_with_its_fix(shown):
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        laws = process.submit(laws_with, shown.path, ENGINE).result()
        with_fix = process.submit(laws_with, shown.path, ENGINE, shown.bug.name).result()

    assert law_of(shown.path) in laws
    assert with_fix == set()
