"""A real vLLM serves tiny models on the CPU below `swarden attach`: `make test-engines-real`.

Processes, planner of the KV cache, scheduler, model runner, kernels and traffic over HTTP are real.
"""

import re
from contextlib import suppress
from http.client import HTTPException

import pytest

from swarden.harness.engines.vllm_cpu.checkpoint import GEMMA, GPT_OSS
from tests.real import models
from tests.real.servers import PYTHON_PATH, VLLM, replayed, run_with_engine, serving
from tests.real.traffic import ServerError

BLOCKS = {GEMMA: 60, GPT_OSS: 28}  # so few that requests are preempted; one request needs 51, or 23
AMPLE = 400  # so many that a freed block is not taken again at once, which `sums` does not see
LAWS = {"sums": "pools_conserve_units", "audit": "unit_has_one_owner", "census": "unit_has_one_owner"}
ROUNDS = 16


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model by its name."""
    folders = {name: tmp_path_factory.mktemp(name) for name in BLOCKS}
    for name, folder in folders.items():
        run_with_engine(PYTHON_PATH, models.__file__, name, folder)
    return folders.get


@pytest.fixture
def planted(tmp_path):
    """The environment of a server with a use after free, which is a plug-in of vLLM."""
    folder = tmp_path / "planted-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 0\n")
    entry = "planted = tests.engines.vllm.some_server:plant_use_after_free"
    (folder / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{entry}\n")
    return {"PYTHONPATH": f"{tmp_path}:{PYTHON_PATH['PYTHONPATH']}"}


@pytest.mark.parametrize("level", LAWS)
@pytest.mark.parametrize("name", BLOCKS)
def test_healthy_server_serves_random_traffic_without_a_word(name, level, model, tmp_path):
    with serving(model(name), BLOCKS[name], ("--level", level), tmp_path) as server:
        server.client.serve(ROUNDS)
        num_preemptions = server.client.num_preemptions()

    ends = server.client.answered
    print(f"{name}, {level}: {dict(ends)}, {num_preemptions} preemptions")  # noqa: T201  # pytest -rP shows it
    assert f"swarden: attached to the scheduler, level {level}" in server.printed
    for remark in ("NOT ATTACHED", "THE CHECK HAS ENDED", "capacity", "swarden replay"):
        assert remark not in server.printed, server.printed
    assert min(ends[kind] for kind in ("aborted", "/pause", "/sleep", "/reset_prefix_cache")) > 0
    assert ends["completed"] + ends["aborted"] == ROUNDS * 10
    assert num_preemptions > 0


@pytest.mark.parametrize("level", LAWS)
def test_use_after_free_is_raised_in_the_step_in_which_a_replay_fails(level, model, planted, tmp_path):
    options = ("--level", level, "--on-violation", "raise")
    ends = suppress(ServerError, OSError, HTTPException)  # the violation ends the scheduler, and so the server
    with serving(model(GEMMA), AMPLE, options, tmp_path, VLLM.beside(planted)) as server, ends:
        server.client.serve(ROUNDS, [("/reset_prefix_cache",)], has_aborts=False)  # one within a pass has no op

    [log] = set(re.findall(r"replay: swarden replay (\S+)", server.printed))
    assert "MemoryViolation" in server.printed
    assert LAWS[level] in server.printed
    with_bug, without = replayed("vllm", log, "--bug"), replayed("vllm", log)
    assert LAWS[level] in with_bug.laws
    assert with_bug.is_in_last_step
    assert not without.fingerprints
