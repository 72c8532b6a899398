"""Both ways to serve have equal outputs; the speed is not tested."""

from itertools import combinations

import pytest

from swarden.harness.bench import disaggregation, generation, speculation
from swarden.harness.bench.checkpoints import Race, made
from swarden.harness.bench.generation import BaselineSetting
from swarden.harness.bench.timing import Paired


@pytest.fixture(scope="module")
def tiny():
    with made("tiny") as checkpoint:
        yield checkpoint


def test_both_engines_have_equal_outputs(tiny, monkeypatch):
    """With few requests and one setting of the baseline."""
    monkeypatch.setattr(generation, "SWEEP", [BaselineSetting("sdpa", 16, 64)])
    monkeypatch.setattr(generation, "REQUESTS", 4)

    races = list(generation.measure(tiny, pairs=1))

    assert [race.text.partition(":")[0] for race in races] == ["tiny, no shared prefixes", "tiny, shared prefixes"]
    assert not any(race.is_wrong for race in races)
    assert {name for race in races for name in race.figures["tokens_per_second"]} == {"tiny", "tiny shared"}


@pytest.mark.parametrize(("is_shared", "families"), [(True, generation.FAMILIES), (False, generation.REQUESTS)])
def test_prompts_have_common_prefixes_only_if_shared(tiny, is_shared, families):
    drawn = generation.prompts(tiny, is_shared=is_shared)

    beginnings = {tuple(prompt[: generation.SHARED_LEN]) for prompt in drawn}
    assert (len(drawn), len(beginnings)) == (generation.REQUESTS, families)
    assert all(one != other for one, other in combinations(drawn, 2))


def test_outputs_are_equal_with_and_without_drafts_that_are_accepted(tiny, monkeypatch):
    monkeypatch.setattr(speculation, "NEW_TOKENS", 24)

    [saving] = speculation.measure(tiny, pairs=1)

    assert not saving.is_wrong
    assert saving.figures["accepted_length"]["tiny"] > 0


def test_outputs_are_equal_over_both_links_and_few_bytes_are_sent(tiny):
    [cost] = disaggregation.measure(tiny, pairs=1)

    assert not cost.is_wrong
    assert 1 < cost.figures["sent_bytes_ratio"]["tiny"] < 1.05


def test_one_unequal_output_is_wrong():
    measured = Race(Paired([(30.0, 20.0)]), [True, False]).measured("tiny", "tokens a second", {})

    assert measured == ("tiny: 1.50 (30.0 / 20.0 tokens a second; 1 of 2 outputs equal)", {}, True)
