"""Norms, rotations and MLPs against their definitions, and rope scalings against transformers."""

import pytest
import torch
from torch.nn.functional import gelu, linear, silu
from transformers import MistralConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from swarden.engine_under_test.model import layers
from swarden.engine_under_test.model.layers import (
    ExpertWeights,
    GatedMlp,
    LayerNorm,
    Linear,
    MixtureOfExperts,
    RmsNorm,
    halves_to_pairs,
    inverse_frequencies,
    rotate,
    rotation_table,
)
from swarden.engine_under_test.model.spec import MlpSpec, RopeSpec

DOUBLE = torch.float64


def drawn(*shape, dtype=DOUBLE, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE).to(dtype)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_rms_norm_equals_its_definition(size):
    x, weight = drawn(7, 24) * size, drawn(24, seed=1)

    normed = RmsNorm(weight, 1e-6)(x)

    expected = weight * x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(normed, expected, rtol=1e-13, atol=0)


def test_layer_norm_equals_its_definition():
    x, weight = drawn(7, 24) * 3 + 2, drawn(24, seed=1)

    normed = LayerNorm(weight, 1e-5)(x)

    centred = x - x.mean(dim=-1, keepdim=True)
    expected = weight * centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(normed, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("norm", [RmsNorm, LayerNorm])
def test_norm_of_bfloat16_is_computed_in_float32(norm):
    x, weight = drawn(7, 24, dtype=torch.bfloat16), drawn(24, dtype=torch.float32, seed=1)

    normed = norm(weight, 1e-6)(x)

    assert torch.equal(normed, norm(weight, 1e-6)(x.float()).to(torch.bfloat16))


# --- rotary embeddings


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_reordered_rows_give_the_scores_of_rotated_halves(share):
    q, k, rotated_dim = drawn(6, 3, 16), drawn(6, 3, 16, seed=1), int(16 * share)
    table = rotation_table(RopeSpec(10_000.0, rotated_share=share), 16, 6, DOUBLE).unsqueeze(1)

    def rotated_halves(x):
        first, second, rest = x.tensor_split((rotated_dim // 2, rotated_dim), dim=-1)
        cos, sin = (part[..., : rotated_dim // 2] for part in (table.real, table.imag))
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def rotated_pairs(x):
        reordered = halves_to_pairs(x.flatten(1).t(), 16, rotated_dim).t().contiguous().unflatten(1, (3, 16))
        return rotate(reordered, table)

    expected = torch.einsum("qhd,khd->hqk", rotated_halves(q), rotated_halves(k))
    found = torch.einsum("qhd,khd->hqk", rotated_pairs(q), rotated_pairs(k))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "rope",
    [
        pytest.param(RopeSpec(1e6, "linear", factor=8.0), id="linear"),
        pytest.param(RopeSpec(150_000.0, "yarn", 32.0, 1.25, 4096, truncate=False), id="yarn"),
        pytest.param(RopeSpec(10_000.0, "yarn", 4.0, 1.0, 512), id="yarn-truncated"),
        pytest.param(RopeSpec(500_000.0, "yarn", 4.0, 1.0, 64, beta_fast=2.0, beta_slow=1.9), id="yarn-steep"),
        pytest.param(RopeSpec(500_000.0, "llama3", 8.0, original_len=8192), id="llama3"),
    ],
)
def test_scaled_frequencies_equal_those_of_transformers(rope):
    parameters = {
        "rope_type": rope.rope_type,
        "rope_theta": rope.theta,
        "factor": rope.factor,
        "original_max_position_embeddings": rope.original_len,
        "attention_factor": rope.attention_factor,
        "beta_fast": rope.beta_fast,
        "beta_slow": rope.beta_slow,
        "truncate": rope.truncate,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
    }
    config = MistralConfig(head_dim=64, rope_parameters=parameters)

    expected, attention_factor = ROPE_INIT_FUNCTIONS[rope.rope_type](config)

    torch.testing.assert_close(inverse_frequencies(rope, 64, torch.float32), expected, rtol=2e-6, atol=0)
    assert rotation_table(rope, 64, 1, DOUBLE).abs().max() == attention_factor


# --- MLPs


@pytest.mark.parametrize(("activation", "function"), [("silu", silu), ("gelu", gelu)])
def test_gated_mlp_equals_its_definition(activation, function):
    x, gate, up, down = drawn(5, 8), drawn(12, 8, seed=1), drawn(12, 8, seed=2), drawn(8, 12, seed=3)

    out = GatedMlp(MlpSpec(activation, 12), Linear(torch.cat((gate, up))), Linear(down))(x)

    expected = linear(function(linear(x, gate)) * linear(x, up), down)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


def some_experts(num_experts=6):
    return ExpertWeights(
        router=Linear(drawn(num_experts, 8, seed=1), drawn(num_experts, seed=2)),
        gate_up=drawn(num_experts, 8, 24, seed=3) * 3,
        gate_up_bias=drawn(num_experts, 24, seed=4),
        down=drawn(num_experts, 12, 8, seed=5),
        down_bias=drawn(num_experts, 8, seed=6),
    )


def one_token_by_definition(x, weights, spec):
    scores = weights.router(x)
    taken = scores.sort(descending=True).indices[: spec.experts_per_token].tolist()
    out = torch.zeros_like(x)
    for expert in taken:
        share = scores[expert].exp() / scores[taken].exp().sum()
        gate, up = (x @ weights.gate_up[expert] + weights.gate_up_bias[expert]).chunk(2)
        gate, up = gate.clamp(max=spec.limit), up.clamp(-spec.limit, spec.limit)
        opened = gate * torch.sigmoid(spec.alpha * gate) * (up + 1)
        out += share * (opened @ weights.down[expert] + weights.down_bias[expert])
    return out


@pytest.mark.parametrize("work_per_call", [pytest.param(0, id="one by one"), pytest.param(1 << 40, id="all at once")])
@pytest.mark.parametrize("num_tokens", [1, 20])
def test_mixture_of_experts_equals_its_definition(monkeypatch, num_tokens, work_per_call):
    monkeypatch.setattr(layers, "WORK_PER_CALL", work_per_call)
    x, weights, spec = drawn(num_tokens, 8, seed=7), some_experts(), MlpSpec("silu", 12, 6, 2)

    out = MixtureOfExperts(spec, weights)(x)

    expected = torch.stack([one_token_by_definition(token, weights, spec) for token in x])
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-11)
