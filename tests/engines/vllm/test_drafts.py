"""Drafts with two passes in flight: the second pass starts behind the drafts that the first one accepts."""

import pytest

from swarden.invariants.events import Verified
from tests.engines.vllm.some_requests import PROMPT, answer, core_of, wanted

OUTPUT_LEN = 14
RIGHT = (3, 0, 2, 1)  # drafts of each pass, in turn


def served(engine, drafter):
    """The output of a request, the expected one, and the number of accepted drafts of each pass."""
    built = core_of(engine, {"asynchronous": True, "draft_len": 3, "drafter": drafter})
    built.drafts.accept(RIGHT)
    output = answer(built, PROMPT, OUTPUT_LEN)
    accepted = [event.num_accepted for event in built.log.take() if isinstance(event, Verified)]
    return output, wanted(built, PROMPT, OUTPUT_LEN), accepted


@pytest.mark.parametrize("drafter", ["ngram", "eagle"])
def test_pass_behind_rejected_drafts_starts_at_the_first_of_them(release, on_release, drafter):
    output, expected, accepted = on_release(release, served, f"vllm=={release}", drafter)

    assert output == expected
    assert accepted[:4] == list(RIGHT)
