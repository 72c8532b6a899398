"""Choosing the next token from logits: the likeliest, or one drawn from those that are likely enough.

A draw depends on the request's seed and on the position alone: in another batch, after a retraction or on another
day the same logits give the same token.
"""

import hashlib

import torch

from engine_under_test.sampling import SamplingParams

BITS = 53  # of a draw, as many as a float64 keeps


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that seed and position decide, the same on any machine."""
    name = f"{seed}:{position}".encode()
    return (int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> (64 - BITS)) / (1 << BITS)


def sample(logits: torch.Tensor, sampling: SamplingParams, *, draw: float) -> torch.Tensor:
    """The next token, () int64, from logits (vocabulary,); `draw` in [0, 1) picks one where there is a choice.

    The likeliest come first, equals by their ids.  What is left by `top_k`, then by `top_p`, shares the whole
    probability between them; at least the likeliest is left.
    """
    if sampling.is_greedy:
        return logits.argmax()
    scaled = logits.to(torch.float64) / sampling.temperature
    ordered, ids = torch.sort(scaled, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered = ordered[: sampling.top_k]
    shares = torch.softmax(ordered, dim=-1)
    before = shares.cumsum(-1) - shares
    shares = shares.masked_fill((before >= sampling.top_p) & (before > 0), 0.0)
    sums = shares.cumsum(-1)
    chosen = torch.searchsorted(sums, sums[-1:] * draw, right=True)[0]
    return ids[chosen.clamp(max=int(torch.count_nonzero(shares)) - 1)]
