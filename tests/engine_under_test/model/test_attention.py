"""Attention and its mask against their definitions, token by token."""

import pytest
import torch
from torch.nn import functional

from swarden.engine_under_test.model.attention import Scoring, attention, explicit_attention, visible

DOUBLE = torch.float64
PLAIN = Scoring(scale=0.3)


def some_qkv(*, batch=2, queries=5, keys=9, kv_heads=2):
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=DOUBLE)

    return drawn(batch, 4, queries, 8), drawn(batch, kv_heads, keys, 8), drawn(batch, kv_heads, keys, 8)


def some_mask(*, batch=2, heads=1, queries=5, keys=9):
    mask = torch.rand((batch, heads, queries, keys), generator=torch.Generator().manual_seed(2)) < 0.6
    mask[..., 0] = True
    return mask


def by_definition(q, k, v, mask, scoring):
    """Attention computed for one query of one head at a time."""
    sinks = torch.full((q.shape[1],), -torch.inf) if scoring.sinks is None else scoring.sinks
    softcap = scoring.softcap or 1e9
    mask = mask.expand(-1, q.shape[1], -1, -1)
    group = q.shape[1] // k.shape[1]
    out = torch.zeros_like(q)
    for batch, head, query in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        seen = mask[batch, head, query]
        scores = k[batch, head // group, seen] @ q[batch, head, query] * scoring.scale
        weights = (softcap * (scores / softcap).tanh()).exp()
        out[batch, head, query] = weights @ v[batch, head // group, seen] / (weights.sum() + sinks[head].exp())
    return out


@pytest.mark.parametrize(
    "scoring",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(Scoring(0.3, softcap=1.5), id="softcap"),
        pytest.param(Scoring(0.3, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])), id="sinks"),
        pytest.param(Scoring(0.3, softcap=1.5, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])), id="both"),
    ],
)
def test_explicit_attention_equals_its_definition(scoring):
    q, k, v = some_qkv()

    out = explicit_attention(q, k, v, mask=some_mask(), scoring=scoring)

    torch.testing.assert_close(out, by_definition(q, k, v, some_mask(), scoring), rtol=0, atol=1e-8)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("queries", [1, 5])
def test_attention_equals_explicit_attention(queries, kv_heads, heads):
    q, k, v = some_qkv(queries=queries, kv_heads=kv_heads)
    mask = some_mask(queries=queries, heads=heads)

    out = attention(q, k, v, mask=mask, scoring=PLAIN)

    torch.testing.assert_close(out, explicit_attention(q, k, v, mask=mask, scoring=PLAIN), rtol=0, atol=1e-12)


@pytest.mark.parametrize("queries", [1, 5])
def test_kernel_may_return_the_heads_behind_the_queries(queries, monkeypatch):
    """CUDA's memory-efficient kernel does so in float32."""
    q, k, v = some_qkv(queries=queries)
    expected = attention(q, k, v, mask=some_mask(queries=queries), scoring=PLAIN)
    kernel = functional.scaled_dot_product_attention

    def of_other_strides(*tensors, **options):
        return kernel(*tensors, **options).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", of_other_strides)

    assert torch.equal(attention(q, k, v, mask=some_mask(queries=queries), scoring=PLAIN), expected)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_window_includes_the_position_itself(window):
    positions = torch.arange(12)

    seen = visible(positions, positions, window)

    expected = [[p - window < other <= p for other in range(12)] for p in range(12)]
    assert seen.tolist() == expected


def test_mask_of_a_batch_uses_the_positions_of_each_sequence():
    seen = visible(torch.tensor([[3], [5]]), torch.tensor([[2, 3, 4], [3, 4, 5]]), 2)

    assert seen.tolist() == [[[True, True, False]], [[False, True, True]]]
