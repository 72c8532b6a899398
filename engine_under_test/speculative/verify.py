"""Verification of draft tokens."""

from collections.abc import Sequence


def num_accepted(drafts: Sequence[int], sampled: Sequence[int]) -> int:
    """How many leading draft tokens equal the token of the model.

    `sampled` has the model's token at each position, one more than `drafts`: the most likely token, or a sampled one.
    A draft is accepted with the probability that the model gives the token.  The token behind the accepted drafts
    comes from the same distribution.  So the output is the same as without drafts, token by token.
    """
    pairs = enumerate(zip(drafts, sampled, strict=False))
    return next((position for position, (draft, token) in pairs if draft != token), len(drafts))
