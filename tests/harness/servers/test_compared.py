"""Answers beside those of a server without a cache."""

from math import nan

import pytest

from swarden.harness.engines.server.answers import Token
from swarden.harness.engines.server.comparison import JudgedToken, compared
from swarden.invariants.events import END


def test_tokens_that_are_equally_likely_are_not_judged():
    mine = [Token(5, -1.0, 5, -1.0), Token(7, -0.5, 7, -0.5)]
    other = [Token(5, -1.0, 5, -1.0), Token(8, -0.5005, 8, -0.5005)]
    wrong = [Token(5, -1.0, 5, -1.0), Token(8, -0.6, 8, -0.6)]

    assert compared(mine, other, 1e-3, is_greedy=True) == JudgedToken(0, 0.0, 5, 5)
    found = compared(mine, wrong, 1e-3, is_greedy=True)
    assert found is not None
    assert (found.place, found.expected) == (1, 8)
    assert compared(mine, wrong, 1e-3, is_greedy=False) == JudgedToken(0, 0.0, 5, 5)


@pytest.mark.parametrize(
    ("logprob", "is_whole", "judged"),
    [
        (-0.5, True, JudgedToken(1, None, 7, END)),
        (nan, True, JudgedToken(1, None, 7, END)),
        (-0.8, True, JudgedToken(0, 0.0, 5, 5)),  # the end may be as likely
        (-0.5, False, JudgedToken(1, None, 7, END)),
    ],
)
def test_answer_that_ends_later_than_the_cold_one_is_wrong(logprob, is_whole, judged):
    first, more = Token(5, -1.0, 5, -1.0), Token(7, logprob)

    assert compared([first, more], [first], 1e-3, is_greedy=True, is_whole=is_whole) == judged
    shorter = compared([first], [first, more], 1e-3, is_greedy=True, is_whole=is_whole)
    assert shorter == (
        judged._replace(answered=judged.expected, expected=judged.answered) if is_whole else JudgedToken(0, 0.0, 5, 5)
    )
