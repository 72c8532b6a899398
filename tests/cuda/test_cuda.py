"""Our engine on a GPU: the outputs of the CPU, copies on a stream of their own, random traffic with faults."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.host.tier import HostCopier
from swarden.engine_under_test.model.tiny import TINY
from swarden.engine_under_test.ports import Acknowledgement, PageCopy
from swarden.engine_under_test.request import Generation
from swarden.engine_under_test.sampling import SamplingParams
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.engines.own.models import FAMILIES, ON_CUDA
from tests.engine_under_test.model.checkpoints import some_tokens, write_checkpoint

PROMPTS = [some_tokens(count, seed=count).tolist() for count in (5, 17, 64)]
CONFIG = EngineConfig(
    page_size=4, full_pages=80, state_interval=4, max_running_requests=3, max_context_len=128, chunk_len=16
)
FLOAT_NOISE = 2e-4  # of logits, in float32; those of these models have a deviation of about 1
RUNS = 40


@pytest.fixture(autouse=True)
def _with_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


def prompt_logits(checkpoint: Path, device: str, dtype: str) -> tuple[list[Generation], torch.Tensor]:
    """The answers, and the logits of all tokens of the prompts, which no answer changes: (tokens, vocab) float32."""
    engine = create_engine(CONFIG, checkpoint=checkpoint, device=device, dtype=dtype)
    answers = engine.generate(PROMPTS, SamplingParams(8, return_logits=True))
    rows = [
        answer.logits[position]
        for answer, prompt in zip(answers, PROMPTS, strict=True)
        for position in range(len(prompt))
    ]
    return answers, torch.stack(rows).float().cpu()


@pytest.mark.parametrize("family", TINY)
def test_outputs_are_those_of_the_cpu(family, tmp_path):
    """In float32 up to rounding; in bfloat16 no farther from float32 than the CPU in bfloat16 is, with some reserve."""
    write_checkpoint(tmp_path, family)

    (on_cpu, exact), (on_gpu, single) = (prompt_logits(tmp_path, device, "float32") for device in ("cpu", "cuda"))
    _, half_on_cpu = prompt_logits(tmp_path, "cpu", "bfloat16")
    _, half = prompt_logits(tmp_path, "cuda", "bfloat16")

    noise, noise_on_cpu = ((one - exact).abs().mean().item() for one in (half, half_on_cpu))
    figures = (
        f"float32 {(single - exact).abs().max():.1e}; bfloat16 {noise:.1e} on the GPU, {noise_on_cpu:.1e} on the CPU"
    )
    sys.stdout.write(f"{family}: {figures}\n")
    assert [answer.token_ids for answer in on_gpu] == [answer.token_ids for answer in on_cpu]
    torch.testing.assert_close(single, exact, atol=FLOAT_NOISE, rtol=0)
    assert 0 < noise < 1.5 * noise_on_cpu


def test_copy_waits_for_the_passes_before_it_and_for_nothing_after_it():
    """A copy reads what a pass in flight writes; the pages come back unchanged while a later pass computes."""
    work = torch.randn(8192, 8192, device="cuda")
    pages = torch.zeros(9, 16 * 2**20, device="cuda")  # 64 MiB each
    host = torch.zeros(9, pages.shape[1], pin_memory=True)
    copier = HostCopier()

    for _ in range(20):
        work = (work @ work).clamp_(-1, 1)
    pages[1:].copy_(torch.arange(1, 9, device="cuda")[:, None] + work[0, 0] * 0)
    copier.begin(1, [PageCopy(pages, range(1, 9), host, range(1, 9), 0)])
    at_once = copier.acknowledged()
    copier.wait()
    after_the_wait = copier.acknowledged()
    copier.begin(2, [PageCopy(host, [3, 5], pages, [5, 3], 0)])
    for _ in range(20):
        work = (work @ work).clamp_(-1, 1)
    copier.wait()

    assert (at_once, after_the_wait, copier.acknowledged()) == ([], [Acknowledgement(1)], [Acknowledgement(2)])
    assert host[:, ::4096].unique(dim=1).flatten().tolist() == list(map(float, range(9)))
    assert pages[:, 0].tolist() == [0, 1, 2, 5, 4, 3, 6, 7, 8]


WAITS_FOR_NOTHING = Mutant(
    "copies-do-not-wait",
    "a copy to the host reads a page while the pass that writes it runs",
    (
        Hunk(
            "swarden.engine_under_test.host.tier:HostCopier._begin_on",
            "self._stream.wait_stream(torch.cuda.current_stream(gpu))",
            "pass",
        ),
    ),
    ("copies_hold_what_was_read",),
)


def test_copy_that_waits_for_no_pass_is_told_by_its_content():
    """The test above can fail: without the wait, the copy is made before the pass has written."""
    work = torch.randn(8192, 8192, device="cuda")
    pages, host = torch.zeros(2, 1024, device="cuda"), torch.zeros(2, 1024, pin_memory=True)
    copier = HostCopier()
    torch.cuda.synchronize()

    with WAITS_FOR_NOTHING.planted():
        for _ in range(20):
            work = (work @ work).clamp_(-1, 1)
        pages[1] = 7 + work[0, 0] * 0
        copier.begin(1, [PageCopy(pages, [1], host, [1], 0)])
        copier.wait()

    torch.cuda.synchronize()
    assert (host[1, 0].item(), pages[1, 0].item()) == (0, 7)


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
def test_large_pages_are_loaded_while_other_requests_decode(policy, tmp_path):
    """Real sizes: a host tier beside passes, all copies on the stream; the outputs are those without a host tier."""
    write_checkpoint(tmp_path, "gemma3")
    prompts = [some_tokens(90, seed=number).tolist() for number in range(6)]
    host = replace(
        CONFIG,
        full_pages=40,
        swa_pages=40,
        sliding_window=8,
        host_full_pages=400,
        host_swa_pages=400,
        host_policy=policy,
        load_back_threshold=1,
    )
    with_host = create_engine(host, checkpoint=tmp_path, device="cuda", dtype="float64")
    without = create_engine(replace(CONFIG, prefix_sharing=False), checkpoint=tmp_path, device="cuda", dtype="float64")
    expected = [answer.token_ids for answer in without.generate(prompts, SamplingParams(20))]

    rounds = [with_host.generate(prompts, SamplingParams(20)) for _ in range(4)]

    assert [[answer.token_ids for answer in answers] for answers in rounds] == [expected] * 4
    assert sum(answer.cached_tokens for answer in rounds[-1]) > 0


@pytest.mark.parametrize("model", FAMILIES)
def test_random_traffic_with_faults_violates_nothing(model, tmp_path):
    name = f"{model}{ON_CUDA}"
    command = [sys.executable, "-m", "swarden.harness.cli", "fuzz", "--model", name, "--runs", str(RUNS)]

    ended = subprocess.run(
        [*command, "--workers", "1", "--seed", "7", "--machine", "engine", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
    )

    assert ended.returncode == ExitCode.CLEAN, ended.stderr
    assert f"{RUNS} runs" in ended.stdout
