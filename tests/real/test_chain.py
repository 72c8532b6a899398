"""From a failing round over HTTP to a few ops behind the stand-in: `make test-engines-real`."""

import os
import shlex
import subprocess
from typing import NamedTuple

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.engines.sglang.worker_model import LAGUNA
from swarden.harness.engines.vllm_cpu.checkpoint import GEMMA
from tests.engines.planting import NUM_OUTPUTS
from tests.real import models
from tests.real.servers import ROOT, SGLANG_ON_CPU, SWARDEN, VLLM, Engine, free_port, run_with_engine

CHAIN_S, FEW_OPS = 3600, 5


class Chain(NamedTuple):
    """A server with a model and ample pools, the function that plants a use after free, and the law that fails."""

    engine: Engine
    model: str
    size: int
    plant: str
    law: str


CHAINS = {
    "vllm": Chain(VLLM, GEMMA, 400, "plant_in_vllm", "unit_has_one_owner-blocks-block-free_in_use"),
    "sglang": Chain(SGLANG_ON_CPU, LAGUNA, 4000, "plant_in_sglang", "unit_has_one_owner-full-page-free_in_use"),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_use_after_free_that_is_found_from_outside_is_shrunk_without_the_server(chain, tmp_path):
    """A failing round; the op-log that the check inside has recorded; a few ops of it behind the port."""
    (tmp_path / ".swarden").mkdir()
    (tmp_path / ".swarden/engines").symlink_to(ROOT / ".swarden/engines")
    hook = f"from tests.engines.planting import {chain.plant}\n{chain.plant}({NUM_OUTPUTS})\n"
    (tmp_path / "sitecustomize.py").write_text(hook)
    engine, port, model = chain.engine, free_port(), tmp_path / "model"
    run_with_engine(engine.variables, models.__file__, chain.model, model)
    variables = {**engine.variables, "SWARDEN_TEST_BUG": str(NUM_OUTPUTS)}
    if chain.engine is VLLM:  # that of SGLang has a hook
        variables["PYTHONPATH"] = f"{tmp_path}:{variables['PYTHONPATH']}"
    attach = (*SWARDEN, "attach", engine.package, "--on-violation", "raise", "--")
    command = [*attach, *engine.command(model, port, chain.size)]
    restart = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *map(str, command)])
    drive = ("--url", f"http://127.0.0.1:{port}", "--restart", restart, "--seed", "1", "--minutes", "10")
    limits = ("--stop-on-first", "--set", 'left_out=["seed"]', "--shrink-seconds", "600", "--out", "found")

    done = subprocess.run(
        [*SWARDEN, "fuzz", *drive, *limits],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=CHAIN_S,
    )

    assert f"new: CheckFailed/{chain.law}" in done.stdout, done.stdout + done.stderr
    [inner] = [path for path in (tmp_path / "found").glob("*.oplog") if not path.name.startswith("CheckFailed")]
    assert f"replay: swarden replay found/{inner.name}" in done.stdout
    assert len(load_log(inner).ops) <= FEW_OPS
