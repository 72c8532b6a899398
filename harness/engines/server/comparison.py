"""The comparison of an answer with the answer of a server without a cache."""

from collections.abc import Sequence
from math import isnan, log
from typing import NamedTuple

from swarden.harness.engines.server.answers import Token
from swarden.invariants.events import END

HALF = log(0.5)


class JudgedToken(NamedTuple):
    """The first wrong position of an answer, or its last one: index, difference, answered and expected token."""

    place: int
    difference: float | None
    answered: int
    expected: int


def compared(
    answer: Sequence[Token], cold: Sequence[Token], tolerance: float, *, is_greedy: bool, is_whole: bool = True
) -> JudgedToken | None:
    """The first wrong token of an answer, or the last that could be judged; None if none could.

    A token is right if its log-probability is that of the cold answer, and, without sampling, if it is the likeliest
    token there.  Behind two equally likely tokens, generated answers may differ, so the rest is not judged.  An answer
    that ends first and was not cut is wrong if no end can be as likely as the other answer's token.
    """
    last = None
    for place, (mine, other) in enumerate(zip(answer, cold, strict=False)):
        difference = abs(mine.logprob - other.logprob)
        is_near, shown = isnan(difference) or difference <= tolerance, None if isnan(difference) else difference
        if mine.id != other.id and (not is_greedy or (is_near and shown is not None)):
            return last  # another draw, or a tie
        if mine.id != other.id:
            return JudgedToken(place, shown, mine.id, other.id)
        is_likeliest = other.best is None or other.best_logprob - other.logprob <= tolerance
        expected = mine.id if other.best is None or is_likeliest or not is_greedy else other.best
        last = JudgedToken(place, shown, mine.id, expected)
        if not is_near or expected != mine.id:
            return last
    place = min(len(answer), len(cold))
    more = answer[place:] or (cold[place:] if is_whole else ())
    if is_greedy and more and (isnan(more[0].logprob) or more[0].logprob > HALF + tolerance):
        here, there = [tokens[place].id if len(tokens) > place else END for tokens in (answer, cold)]
        return JudgedToken(place, None, here, there)
    return last
