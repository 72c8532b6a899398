"""Attention: who sees whom, and what comes out, against its definition token by token."""

import pytest
import torch

from engine_under_test.model.attention import Scoring, attention, explicit_attention, visible

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
    """One query of one head at a time."""
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
def test_explicit_attention_is_its_definition(scoring):
    """Scaled, capped, masked, with one more score in the sum, and then the average of what is seen."""
    q, k, v = some_qkv()

    out = explicit_attention(q, k, v, mask=some_mask(), scoring=scoring)

    torch.testing.assert_close(out, by_definition(q, k, v, some_mask(), scoring), rtol=0, atol=1e-8)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("queries", [1, 5])
def test_the_fast_ways_equal_the_explicit_one(queries, kv_heads, heads):
    """One query or many, heads that share a kv head or not, one mask for all heads or one each."""
    q, k, v = some_qkv(queries=queries, kv_heads=kv_heads)
    mask = some_mask(queries=queries, heads=heads)

    out = attention(q, k, v, mask=mask, scoring=PLAIN)

    torch.testing.assert_close(out, explicit_attention(q, k, v, mask=mask, scoring=PLAIN), rtol=0, atol=1e-12)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("scoring", [PLAIN, Scoring(0.3, softcap=2.0), Scoring(0.3, sinks=torch.zeros(4))])
def test_tensors_that_are_laid_out_by_token_are_read_as_well(scoring, queries):
    """Heads and tokens may be swapped in memory, as they are where tokens come one after another."""
    strided = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in some_qkv(queries=queries)]

    out = attention(*strided, mask=some_mask(queries=queries), scoring=scoring)

    expected = attention(*some_qkv(queries=queries), mask=some_mask(queries=queries), scoring=scoring)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("scoring", [PLAIN, Scoring(0.3, softcap=2.0), Scoring(0.3, sinks=torch.zeros(4))])
def test_what_is_not_seen_does_not_count(scoring, queries):
    """Any finite key and value may stand where nobody looks."""
    q, k, v = some_qkv(queries=queries)
    mask = some_mask(queries=queries)
    mask[..., 4] = False
    before = attention(q, k, v, mask=mask, scoring=scoring)

    k[:, :, 4], v[:, :, 4] = 1e6, -1e6

    torch.testing.assert_close(attention(q, k, v, mask=mask, scoring=scoring), before, rtol=0, atol=0)


@pytest.mark.parametrize("scoring", [PLAIN, Scoring(0.3, softcap=2.0), Scoring(0.3, sinks=torch.zeros(4))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_attention_keeps_its_dtype(dtype, scoring):
    q, k, v = (part.to(dtype) for part in some_qkv())

    assert attention(q, k, v, mask=some_mask(), scoring=scoring).dtype is dtype


@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_window_counts_the_position_itself(window):
    """Position p sees (p - window, p], and near the beginning all there is."""
    positions = torch.arange(12)

    seen = visible(positions, positions, window)

    expected = [[p - window < other <= p for other in range(12)] for p in range(12)]
    assert seen.tolist() == expected


def test_without_a_window_all_that_came_before_is_seen():
    """Queries may stand anywhere among the keys."""
    seen = visible(torch.tensor([2, 5]), torch.arange(7), None)

    assert seen.tolist() == [[True] * 3 + [False] * 4, [True] * 6 + [False]]


def test_who_sees_whom_is_found_for_a_batch_at_once():
    """Each sequence of a batch has positions of its own."""
    seen = visible(torch.tensor([[3], [5]]), torch.tensor([[2, 3, 4], [3, 4, 5]]), 2)

    assert seen.tolist() == [[[True, True, False]], [[False, True, True]]]
