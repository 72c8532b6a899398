"""Which configurations a tiny model can have."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.vllm_cpu.checkpoint import GEMMA, GPT_OSS, LFM2, MODELS, STATE, Layers, layers_of
from swarden.harness.engines.vllm_cpu.target import CpuConfig, VllmCpuTarget, random_config
from swarden.harness.kit.settings import made
from swarden.harness.search.traffic.loads import LOADS
from tests.harness.engines.some_draws import RandomDraw


@pytest.mark.parametrize(
    ("settings", "windows"),
    [
        ({}, (40, None)),
        ({"windows_first": False}, (None, 40)),
        ({"windows": (24, 24)}, (24, 24, None)),
        ({"windows": ()}, (None,)),
    ],
)
def test_layers_are_those_of_the_groups_twice(settings, windows):
    assert layers_of(made(CpuConfig, settings), GEMMA) == Layers(windows * 2, 32)


@pytest.mark.parametrize(
    ("settings", "model", "told"),
    [
        ({"num_blocks": 512}, GEMMA, "num_blocks is 512, want at most 511 with a model"),
        ({"chunk_len": 2048}, GEMMA, "chunk_len is 2048, want at most 1024 with a model"),
        ({"max_running_requests": 17}, GEMMA, "max_running_requests is 17, want at most 16 with a model"),
        ({"windows": ()}, GPT_OSS, "windows is [], want one with model tiny-gpt-oss"),
        ({"state_groups": 1}, LFM2, "windows is (40,), want () with model tiny-lfm2"),
        ({"windows": (40, 24)}, GEMMA, "windows is [40, 24], want equal windows with a model"),
        ({"draft_len": 3, "drafter": "eagle"}, GEMMA, "drafter is 'eagle', want 'ngram' with model tiny-gemma3"),
        ({"windows_first": False}, GPT_OSS, "windows_first is False, want True with model tiny-gpt-oss"),
    ],
)
def test_configuration_that_no_worker_or_model_serves_is_refused(settings, model, told):
    with pytest.raises(InvalidConfig) as refused:
        layers_of(made(CpuConfig, settings), model)

    assert str(refused.value) == told


@pytest.mark.parametrize("model", MODELS)
def test_every_random_configuration_is_made_for_the_model(model):
    target, draws = (
        VllmCpuTarget(),
        [random_config(RandomDraw(seed), LOADS[seed % len(LOADS)].name) for seed in range(60)],
    )
    suited = [target.suited(config, model) for config in draws]

    assert {layers_of(config, model).block_len for config in suited}
    assert [one.num_blocks - one.least_blocks for one in suited] == [one.num_blocks - one.least_blocks for one in draws]


def test_states_follow_full_attention_and_are_kept_for_a_prefix_cache():
    assert layers_of(made(CpuConfig, {"windows": (), "state_groups": 2}), LFM2) == Layers(
        (None, STATE, STATE) * 2, 32, True
    )


def test_blocks_that_the_kernels_lack_are_refused():
    with pytest.raises(InvalidConfig, match=r"^block_size is 48, want a multiple of 32$"):
        CpuConfig(block_size=48)
