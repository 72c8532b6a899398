"""The grammar of an answer: which tokens can come next, from the tokens of the answer so far alone."""

from collections.abc import Sequence

END = 0  # the token with which an answer by a grammar ends, as by EOS


def has_ended(length: int, outputs: Sequence[int]) -> bool:
    """Has a grammar of `length` tokens accepted END, the last of these outputs?"""
    return len(outputs) > length


def allowed_tokens(length: int, outputs: Sequence[int], vocabulary: int) -> Sequence[int]:
    """The tokens that a grammar of `length` tokens allows after these outputs, in ascending order.

    Every second one, the even or the odd ones by the outputs so far; END alone after `length` tokens; all behind END.
    """
    if has_ended(length, outputs):
        return range(vocabulary)
    if len(outputs) == length:
        return (END,)
    is_odd = (length + len(outputs) + sum(outputs) // 2) % 2
    return range(2 - is_odd, vocabulary, 2)
