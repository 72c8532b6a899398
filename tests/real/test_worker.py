"""The own workers of vLLM and SGLang on the CPU run tiny models behind the port: `make test-engines-real`."""

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.engines.sglang.worker_model import LAGUNA
from swarden.harness.engines.sglang.worker_mutants import MUTANTS as OF_SGLANG
from swarden.harness.engines.vllm_cpu.checkpoint import MODELS
from swarden.harness.engines.vllm_cpu.mutants import MUTANTS as OF_VLLM
from tests.engines.some_findings import laws_with, op_logs_of
from tests.engines.some_laws import law_of
from tests.real.servers import RELEASE, SGLANG_RELEASE

ENGINE, SGLANG = f"vllm-cpu=={RELEASE}", f"sglang=={SGLANG_RELEASE}"
ENGINES = {**dict.fromkeys(MODELS, ENGINE), LAGUNA: SGLANG}  # by model
LAWS = ("kv_is_that_of_its_tokens", "outputs_match_uncached_model", "slots_hold_their_prefix")
BUGS = [one for one in (*op_logs_of("vllm"), *op_logs_of("vllm-cpu")) if one.bug.patch_for(RELEASE) is not None]
END_S = 3600  # of a command, on a busy machine
BY_HAND = {path.stem: path for path in Path(__file__).with_name("mutants").glob("*.oplog")}  # that traffic seldom finds
HEALTHY = {ENGINE: ("--set", "seeds=false", "--with-fix", "all"), SGLANG: ("--with-fix", "all")}
PLANTED = [bug for bug in (*OF_VLLM.all, *OF_SGLANG.all) if bug.id not in BY_HAND]


def swarden(command, *arguments):
    """The exit code and the figures of a command."""
    line = [sys.executable, "-m", "swarden", command, *map(str, arguments), "--json"]
    elsewhere = {**os.environ, "HOME": "/nonexistent"}  # vLLM keeps what it learns of a model below it
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=END_S, env=elsewhere)
    return done.returncode, json.loads(done.stdout)


def fits_the_worker(shown):
    """Whether the worker has the settings and the faults of an op-log: its blocks have 32 tokens, and no connector."""
    try:
        load_log(shown.path, engine=ENGINE)
    except UsageError:
        return False
    return True


def fuzz(out, model, *options):
    engine = ENGINES[model]
    drive = ("--engine", engine, "--model", model, "--step-timeout", END_S, *HEALTHY[engine])
    return swarden("fuzz", *drive, "--workers", 1, "--seed", 3, "--out", out, *options)


def verdicts(*arguments):
    return [one["verdict"] for one in swarden("replay", *arguments)[1]["replays"]]


@pytest.mark.parametrize("model", ENGINES)
def test_every_pass_and_every_answer_of_healthy_runs_is_compared(model, tmp_path):
    code, figures = fuzz(tmp_path, model, "--runs", 40)

    assert (code, figures["findings"]) == (ExitCode.CLEAN, [])
    evaluated = {law: figures["checks"][law]["evaluated"] for law in LAWS}
    assert min(evaluated.values()) > figures["runs"]


@pytest.mark.parametrize("path", BY_HAND.values(), ids=BY_HAND)
def test_op_log_by_hand_shows_a_bug_of_the_worker(path, tmp_path):
    log = load_log(path)
    healthy = tmp_path / path.name
    log.with_header(mutant=None).save(healthy)

    assert verdicts(path, healthy) == ["FAILED", "FIXED"]


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.id)
def test_bug_of_the_worker_is_found_and_is_none_of_the_scheduler(bug, tmp_path):
    code, figures = fuzz(tmp_path, bug.model, "--mutant", bug.id, "--runs", 100, "--stop-on-first")

    [finding] = figures["findings"]
    assert code == ExitCode.VIOLATED
    assert finding["invariant"] in bug.caught_by
    healthy = tmp_path / "healthy.oplog"
    log = load_log(Path(finding["path"]))
    log.with_header(mutant=None).save(healthy)
    assert verdicts(finding["path"], healthy) == ["FAILED", "FIXED"]  # in one process
    assert verdicts(healthy, finding["path"]) == ["FIXED", "FAILED"]
    assert verdicts(finding["path"], "--model", "stand-in") == ["FIXED"]


@pytest.mark.parametrize("shown", [one for one in BUGS if fits_the_worker(one)], ids=str)
def test_op_log_of_a_bug_fails_and_passes_with_its_fix(shown):
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        laws = process.submit(laws_with, shown.path, ENGINE).result()
        with_fix = process.submit(laws_with, shown.path, ENGINE, shown.bug.name).result()

    assert law_of(shown.path) in laws
    assert with_fix == set()
