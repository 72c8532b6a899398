"""The decoder against transformers, and against itself in chunks and batches."""

import pytest
import torch

from swarden.engine_under_test.model.checkpoint import load_decoder
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.files import FULL, SLIDING
from swarden.engine_under_test.model.tiny import LLAMA3, TINY, by_type, tiny_spec
from swarden.engine_under_test.model.weights import random_tensors
from tests.engine_under_test.model.checkpoints import CPU, oracle_logits, some_tokens, write_checkpoint
from tests.engine_under_test.model.dense import dense_logits

FLOAT, DOUBLE = torch.float32, torch.float64
YARN = {"rope_type": "yarn", "rope_theta": 500_000.0, "factor": 8.0, "original_max_position_embeddings": 1024}
LINEAR = by_type(sliding_theta=1e4, full_theta=1e6) | {FULL: {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}

WINDOWED = [family for family, values in TINY.items() if "sliding_window" in values]
RECURRENT_GEMMA_2B = {
    "hidden_size": 80,  # whose root is rounded to bfloat16
    "num_attention_heads": 10,
    "num_key_value_heads": 1,
    "lru_width": None,
    "block_types": ["recurrent", "recurrent", "attention"],
    "num_hidden_layers": 5,
}
SMOLLM2 = {"hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}


@pytest.fixture(autouse=True)
def _inference_mode():
    with torch.inference_mode():
        yield


def distance_from(model, directory, token_ids):
    """The largest difference between the logits of the checkpoint here and in the oracle."""
    logits = dense_logits(load_decoder(directory, dtype=FLOAT, device=CPU), token_ids)
    return (logits - oracle_logits(model, token_ids)).abs().max().item()


@pytest.mark.parametrize("window", [8, 13])
@pytest.mark.parametrize("family", WINDOWED)
def test_prompt_logits_equal_those_of_transformers(tmp_path, family, window):
    """50 tokens are longer than the window."""
    model = write_checkpoint(tmp_path, family, sliding_window=window)

    assert distance_from(model, tmp_path, some_tokens(50)) < 1e-4


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        pytest.param("gemma3", {"rope_parameters": LINEAR, "final_logit_softcapping": 2.0}, id="stretched-gemma3"),
        pytest.param("gemma3", {"attention_bias": True, "tie_word_embeddings": False}, id="untied-gemma3"),
        pytest.param("gemma2", {"attn_logit_softcapping": 0.5, "hidden_activation": "gelu"}, id="capped-gemma2"),
        pytest.param("gpt-oss", {"rope_parameters": YARN, "num_local_experts": 8}, id="truncating-gpt-oss"),
        pytest.param("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 4}, id="tied-qwen2"),
        pytest.param("qwen3", {"attention_bias": True, "head_dim": 32}, id="biased-qwen3"),
        pytest.param("mistral", {"rope_parameters": LLAMA3, "num_key_value_heads": 1}, id="llama3-mistral"),
        pytest.param("mistral", {"sliding_window": None}, id="full-mistral"),
        pytest.param("cohere2", {"attention_bias": True, "logit_scale": 0.0625}, id="biased-cohere2"),
        pytest.param("olmo3", {"layer_types": [FULL, SLIDING, SLIDING]}, id="full-first-olmo3"),
        pytest.param("llama", {}, id="llama"),
        pytest.param("llama", {"attention_bias": True, "head_dim": 32, "num_key_value_heads": 1}, id="biased-llama"),
        pytest.param("recurrent-gemma", {}, id="recurrent-gemma"),
        pytest.param("recurrent-gemma", RECURRENT_GEMMA_2B, id="recurrent-gemma with the shapes of 2b"),
        pytest.param("recurrent-gemma", {"attention_bias": True, "conv1d_width": 2}, id="biased-recurrent-gemma"),
        pytest.param("bamba", {}, id="bamba"),
        pytest.param("bamba", {"attn_layer_indices": None, "mamba_n_groups": 1, "mamba_d_conv": 2}, id="mamba-only"),
        pytest.param("bamba", {"mamba_conv_bias": False, "mamba_proj_bias": True, "mlp_bias": True}, id="biased-bamba"),
        pytest.param("llama", SMOLLM2 | {"rope_parameters": {"rope_theta": 1e5}}, id="smollm2"),
    ],
)
def test_logits_of_a_changed_config_equal_those_of_transformers(tmp_path, family, changes):
    model = write_checkpoint(tmp_path, family, **changes)

    assert distance_from(model, tmp_path, some_tokens(50)) < 1e-4


@pytest.mark.parametrize("family", ["gemma3", "gpt-oss", "cohere2", "recurrent-gemma", "bamba"])
def test_logits_beyond_the_reserved_context_equal_those_of_transformers(tmp_path, family):
    model = write_checkpoint(tmp_path, family)

    assert distance_from(model, tmp_path, some_tokens(1100)) < 1e-4


def logits_in(dtype, family, *, rounded_to=None):
    """The logits of a model in `dtype`, with weights that were rounded to `rounded_to`."""
    tensors = random_tensors(tiny_spec(family), 0, rounded_to or dtype)
    decoder = Decoder(tiny_spec(family), {name: tensor.to(dtype) for name, tensor in tensors.items()})
    return dense_logits(decoder, some_tokens(50))


@pytest.mark.parametrize("family", TINY)
def test_bfloat16_logits_correlate_with_float64_logits(family):
    low, double = logits_in(torch.bfloat16, family), logits_in(DOUBLE, family, rounded_to=torch.bfloat16)

    assert low.dtype is torch.bfloat16
    assert torch.corrcoef(torch.stack((low.double().flatten(), double.flatten())))[0, 1] > 0.9
