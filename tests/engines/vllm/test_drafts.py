"""Drafts with two passes in flight: the second pass starts behind the drafts that the first one accepts."""

import pytest

from swarden.harness.core.port import Submission
from swarden.harness.core.registry import target_of
from swarden.invariants.events import Verified
from swarden.invariants.reference import Expectation

PROMPT = [*range(1, 15)]
OUTPUT_LEN = 14
RIGHT = (3, 0, 2, 1)  # drafts of each pass, in turn


def served(engine, drafter):
    """The output of a request, the expected one, and the number of accepted drafts of each pass."""
    target = target_of(engine)
    built = target.build(target.decode({"asynchronous": True, "draft_len": 3, "drafter": drafter}))
    assert built.drafts is not None
    built.drafts.accept(RIGHT)
    built.submit(Submission(PROMPT, OUTPUT_LEN, (), 0, 0))
    output: list[int] = []
    while built.has_work:
        for one in built.step():
            output += one.token_ids
    known = built.reference()
    expected = Expectation(0, len(PROMPT), list(PROMPT))
    for position in range(len(PROMPT), len(PROMPT) + OUTPUT_LEN):
        expected.extend([expected.next_token(position, windows=known.windows, vocabulary=known.vocabulary)])
    accepted = [event.num_accepted for event in built.log.take() if isinstance(event, Verified)]
    return output, expected.tokens[len(PROMPT) :], accepted


@pytest.mark.parametrize("drafter", ["ngram", "eagle"])
def test_pass_behind_rejected_drafts_starts_at_the_first_of_them(release, on_release, drafter):
    output, expected, accepted = on_release(release, served, f"vllm=={release}", drafter)

    assert output == expected
    assert accepted[:4] == list(RIGHT)
