"""Attention over gathered keys and values, and its mask."""

from typing import NamedTuple

import torch
from torch.nn import functional

from swarden.engine_under_test.model.layers import working_dtype


class Scoring(NamedTuple):
    """How a layer turns q and k into attention weights."""

    scale: float
    softcap: float | None = None  # c bounds the scores by c tanh(score / c) before the mask
    sinks: torch.Tensor | None = None  # (heads,): one more score in each query's softmax, without a value


def visible(query_positions: torch.Tensor, key_positions: torch.Tensor, window: int | None) -> torch.Tensor:
    """The mask, bool (…, queries, keys): position p sees (p - window, p], or [0, p] where window is None.

    Both are int64, (…, queries) and (…, keys).  `window` counts the position itself, as in Hugging Face configurations.
    """
    distance = query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: torch.Tensor, scoring: Scoring
) -> torch.Tensor:
    """The attention output, (batch, heads, queries, head_dim), in q's dtype.

    q is (batch, heads, queries, head_dim); k and v are (batch, kv_heads, keys, head_dim), heads a multiple of kv_heads.
    `mask` is bool, (batch, 1 or heads, queries, keys), True where seen; each query sees at least one key.  Keys and
    values that no query sees must be finite too, because NaN times a weight of 0 is NaN.
    """
    if scoring.softcap is not None or scoring.sinks is not None:
        return explicit_attention(q, k, v, mask=mask, scoring=scoring)
    if q.shape[2] == 1 and mask.shape[1] == 1:
        # With one query per head the heads of a kv head act as its queries, so no key is copied for another head.
        grouped = q.reshape(len(q), k.shape[1], -1, q.shape[3])
        out = functional.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=scoring.scale)
        return out.reshape(q.shape)  # not a view: some kernels of GPUs return the heads behind the queries
    grouped_query = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scoring.scale, enable_gqa=grouped_query
    )


def explicit_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: torch.Tensor, scoring: Scoring
) -> torch.Tensor:
    """`attention` step by step, weights in at least float32: its reference, and its path for a softcap or sinks."""
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    softcap = scoring.softcap
    grouped = (q * (scoring.scale / (softcap or 1.0))).reshape(batch, kv_heads, -1, head_dim)
    scores = torch.matmul(grouped, k.transpose(2, 3)).view(batch, heads, queries, keys).to(working_dtype(q.dtype))
    if softcap is not None:
        scores = scores.tanh_().mul_(softcap)
    scores = torch.where(mask, scores, -torch.inf)
    if scoring.sinks is not None:
        sinks = scoring.sinks.to(scores.dtype).view(1, heads, 1, 1).expand(batch, heads, queries, 1)
        scores = torch.cat((scores, sinks), dim=-1)
    weights = scores.softmax(dim=-1)[..., :keys].to(v.dtype)
    return torch.matmul(weights.reshape(batch, kv_heads, -1, keys), v).view(q.shape)
