"""Outputs are equal with and without drafts; the speed is not tested."""

from dataclasses import replace

import pytest

from swarden.harness.bench import speculation
from swarden.harness.bench.generation import made
from swarden.harness.bench.speculation import Saving, figures, measure, prompts, text


@pytest.fixture(scope="module")
def small() -> Saving:
    with made("tiny") as directory:
        return measure("tiny", directory, rounds=1, new_tokens=24)


def test_outputs_are_equal_with_and_without_drafts(small):
    assert small.equal_outputs == speculation.REQUESTS
    assert min(small.drafted, small.plain) > 0


def test_repeated_phrase_has_accepted_drafts(small):
    """Otherwise the benchmark would measure no accepted draft."""
    assert small.accepted_len > 0


def test_each_prompt_repeats_a_phrase_of_its_own():
    drawn = prompts(1024)

    assert len({tuple(prompt) for prompt in drawn}) == speculation.REQUESTS
    assert all(prompt[: speculation.PHRASE_LEN] * speculation.REPEATS == prompt for prompt in drawn)


def test_figures_name_the_checkpoint(small):
    fast = replace(small, drafted=30.0, plain=20.0, accepted_len=2.5)

    assert figures([fast]) == {
        "speculation_ratio": {"tiny": 1.5},
        "accepted_length": {"tiny": 2.5},
        "speculation_tokens_per_second": {"tiny": [30.0, 20.0]},
    }
    assert "tiny: 1.50 (30.0 / 20.0 output tokens a second of CPU; 2.50 of 4 draft tokens accepted; 8 of 8" in text(
        [fast]
    )
