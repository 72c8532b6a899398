"""Prompt lookup: a draft repeats the tokens behind the last occurrence."""

import pytest

from swarden.engine_under_test.ports import Wanted
from swarden.engine_under_test.scheduler.speculation import NgramProposer


def draft(proposer: NgramProposer, tokens: list[int], *, most: int = 3) -> list[int]:
    [drafts] = proposer.propose([Wanted(1, 0, tokens, most)])
    return drafts


@pytest.mark.parametrize(
    ("tokens", "drafts"),
    [
        pytest.param([1, 2, 3, 4, 5], [], id="no repeated token"),
        pytest.param([1, 2, 3, 4, 5, 1, 2], [3, 4, 5], id="tokens behind the match"),
        pytest.param([1, 2, 9, 8, 7, 1, 2, 5, 5, 5, 1, 2], [5, 5, 5], id="the last occurrence"),
        pytest.param([1, 2, 3, 6, 7, 8, 2, 3, 9, 0, 1, 2, 3], [6, 7, 8], id="the longest match is used"),
        pytest.param([7, 7], [7, 7, 7], id="a continuation of one token is repeated"),
        pytest.param([4, 5, 6, 4], [5, 6, 4], id="a short continuation is repeated"),
        pytest.param([1], [], id="a single token"),
    ],
)
def test_draft_repeats_the_last_continuation(tokens, drafts):
    assert draft(NgramProposer(), tokens) == drafts


def test_draft_has_at_most_the_wanted_length():
    assert draft(NgramProposer(), [1, 2, 3, 4, 1], most=2) == [2, 3]


def test_new_tokens_are_indexed():
    proposer = NgramProposer()
    draft(proposer, [1, 2, 3])

    assert draft(proposer, [1, 2, 3, 8, 9, 8]) == [9, 8, 9]
