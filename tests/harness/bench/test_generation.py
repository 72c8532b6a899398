"""Both engines serve the same requests of one checkpoint, to the same tokens."""

from dataclasses import replace
from itertools import combinations

import pytest

from swarden.harness.bench import generation
from swarden.harness.bench.generation import BaselineSetting, Race, figures, made, prompts, race, text

FEW = 4


@pytest.fixture(scope="module")
def small() -> Race:
    """The tiny checkpoint, few requests, one setting of the baseline."""
    with pytest.MonkeyPatch.context() as patch, made("tiny") as directory:
        patch.setattr(generation, "SWEEP", [BaselineSetting("sdpa", 16, 64)])
        patch.setattr(generation, "REQUESTS", FEW)
        return race("tiny", directory, is_shared=True, rounds=1)


def test_both_engines_have_equal_outputs(small):
    assert small.equal_outputs == FEW
    assert min(small.ours, small.theirs) > 0


@pytest.mark.parametrize(("is_shared", "families"), [(True, generation.FAMILIES), (False, generation.REQUESTS)])
def test_prompts_have_common_prefixes_only_if_shared(is_shared, families):
    drawn = prompts(1024, is_shared=is_shared)

    beginnings = {tuple(prompt[: generation.SHARED_LEN]) for prompt in drawn}
    assert (len(drawn), len(beginnings)) == (generation.REQUESTS, families)
    assert all(one != other for one, other in combinations(drawn, 2))


def test_figures_name_the_checkpoint(small):
    fast = replace(small, is_shared=False, ours=30.0, theirs=20.0)

    result = figures([fast, replace(fast, is_shared=True, ours=50.0)])

    assert result == {
        "tokens_per_second_ratio": {"tiny": 1.5},
        "tokens_per_second_ratio_shared": {"tiny": 2.5},
        "tokens_per_second": {"tiny": [30.0, 20.0], "tiny shared": [50.0, 20.0]},
    }
    assert "tiny, no shared prefixes: 1.50 (30.0 / 20.0 output tokens a second of CPU; 4 of 32" in text([fast])
