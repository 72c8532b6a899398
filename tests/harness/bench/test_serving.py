"""Both ways to serve have equal outputs; the speed is not tested."""

from itertools import combinations

import pytest

from swarden.harness.bench import serving
from swarden.harness.bench.serving import BaselineSetting, Served, made, race


@pytest.fixture(scope="module")
def tiny():
    with made("tiny") as checkpoint:
        yield checkpoint


def test_both_engines_have_equal_outputs(tiny, monkeypatch):
    """With few requests and one setting of the baseline."""
    monkeypatch.setattr(serving, "SWEEP", [BaselineSetting("sdpa", 16, 64)])
    monkeypatch.setattr(serving, "REQUESTS", 4)

    cases = list(serving.measure_generation(tiny, pairs=1))

    assert [case.name.partition(":")[0] for case in cases] == ["tiny, no shared prefixes", "tiny, shared prefixes"]
    assert not any(case.is_wrong for case in cases)
    assert all(min(case.figures["swarden"], case.figures["transformers"]) > 0 for case in cases)


@pytest.mark.parametrize("families", [serving.FAMILIES, serving.REQUESTS])
def test_prompts_of_a_family_have_a_common_prefix(tiny, families):
    drawn = serving.prompts(tiny, families)

    beginnings = {tuple(prompt[: serving.SHARED_LEN]) for prompt in drawn}
    assert (len(drawn), len(beginnings)) == (serving.REQUESTS, families)
    assert all(prompt != other for prompt, other in combinations(drawn, 2))


def test_outputs_are_equal_with_and_without_drafts_that_are_accepted(tiny, monkeypatch):
    monkeypatch.setattr(serving, "DRAFTED_TOKENS", 24)

    [saving] = serving.measure_speculation(tiny, pairs=1)

    assert not saving.is_wrong
    assert saving.figures["accepted"] > 0


def test_outputs_are_equal_over_both_links_and_few_bytes_are_sent(tiny):
    [cost] = serving.measure_disaggregation(tiny, pairs=1)

    assert not cost.is_wrong
    assert 1 < cost.figures["of the least bytes"] < 1.05


def test_one_unequal_output_is_wrong():
    case = race("tiny", tokens=60, pairs=1, a=lambda: Served(2.0, [[1], [2]]), b=lambda: Served(3.0, [[1], [3]]))

    figures = {"ratio": 1.5, "a": 30.0, "b": 20.0, "ratios": [1.5], "equal outputs": 1, "of": 2}
    assert case == ("tiny", figures, True)
