"""What of a guess counts."""

from collections.abc import Sequence


def num_accepted(drafts: Sequence[int], said: Sequence[int]) -> int:
    """How many draft tokens the model has said itself, from the first one on.

    `said` is what it says at each place, one more than there are drafts: likeliest, or drawn for that position.  A
    draft that was drawn too is accepted with just the probability that the model gives it, and what stands in the
    place of the first that was not is drawn from the same distribution: what comes out is what would have come out
    without drafts, token by token.
    """
    pairs = enumerate(zip(drafts, said, strict=False))
    return next((place for place, (draft, token) in pairs if draft != token), len(drafts))
