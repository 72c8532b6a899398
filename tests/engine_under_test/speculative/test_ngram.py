"""Prompt lookup: a draft repeats the tokens behind the last occurrence."""

import pytest

from engine_under_test.ports import Wanted
from engine_under_test.speculative.ngram import NgramProposer


def guess(proposer: NgramProposer, tokens: list[int], *, most: int = 3, request: int = 1) -> list[int]:
    [drafts] = proposer.propose([Wanted(request, 0, tokens, most)])
    return drafts


@pytest.mark.parametrize(
    ("tokens", "drafts"),
    [
        pytest.param([1, 2, 3, 4, 5], [], id="no repeated token"),
        pytest.param([1, 2, 3, 4, 5, 1, 2], [3, 4, 5], id="tokens behind the match"),
        pytest.param([1, 2, 9, 8, 7, 1, 2, 5, 5, 5, 1, 2], [5, 5, 5], id="the last time"),
        pytest.param([1, 2, 3, 6, 7, 8, 2, 3, 9, 0, 1, 2, 3], [6, 7, 8], id="the longest run counts more"),
        pytest.param([7, 7], [7, 7, 7], id="a place at the end goes on as it began"),
        pytest.param([4, 5, 6, 4], [5, 6, 4], id="round and round"),
        pytest.param([1], [], id="a single token"),
    ],
)
def test_draft_repeats_the_last_continuation(tokens, drafts):
    assert guess(NgramProposer(), tokens) == drafts


def test_no_more_is_guessed_than_is_wanted():
    assert guess(NgramProposer(), [1, 2, 3, 4, 1], most=2) == [2, 3]


def test_new_tokens_are_indexed():
    proposer = NgramProposer()
    guess(proposer, [1, 2, 3])

    assert guess(proposer, [1, 2, 3, 8, 9, 8]) == [9, 8, 9]


def test_requests_do_not_guess_from_each_other():
    proposer = NgramProposer()
    guess(proposer, [1, 2, 3], request=1)

    assert guess(proposer, [5, 1], request=2) == []


def test_ended_request_is_forgotten():
    proposer = NgramProposer()
    guess(proposer, [1, 2, 3, 1])
    proposer.forget(1)
    proposer.forget(1)

    assert guess(proposer, [9, 1]) == []
