"""Samples the next token from logits: the likeliest token, or a random one of the likely tokens.

The random number depends only on the seed of the request and the position, so the same logits give the same token in
another batch and after a retraction.
"""

import hashlib

import torch

from swarden.engine_under_test.sampling import SamplingParams

BITS = 53  # of a random number: the precision of a float64


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends only on the seed and the position, the same on any machine."""
    name = f"{seed}:{position}".encode()
    return (int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> (64 - BITS)) / (1 << BITS)


def sample(logits: torch.Tensor, sampling: SamplingParams, *, draw: float) -> torch.Tensor:
    """The next token, () int64, from logits (vocabulary,); `draw` in [0, 1) is the random number.

    Tokens are ordered by likelihood, equal ones by id.  `top_k`, then `top_p` remove tokens, but never the likeliest.
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
