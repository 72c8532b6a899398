"""Fixed settings that no configuration can have: one short line that names the setting."""

import random
from collections import Counter
from typing import Any

import pytest

from swarden.harness.commands.fuzz import settings_of
from swarden.harness.core.errors import MAX_TEXT, UsageError
from swarden.harness.engines.lmdeploy.target import LmdeployTarget
from swarden.harness.engines.own.target import OwnTarget
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.engines.transformers.target import TransformersTarget
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.search.fixed_settings import assignments, most_frequent, refusal, with_settings

TARGETS = (OwnTarget, SglangTarget, VllmTarget, TransformersTarget, LmdeployTarget)
VALUES: Any = (0, -1, 0.5, 1e300, 2**70, True, None, "", "é\n€" * 2000, [], list(range(2000)), {"a": [1]})


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", TARGETS)
def test_refusal_is_one_short_line_that_names_a_setting(kind, seed, monkeypatch):
    target, source, refused = kind(), random.Random(seed), Counter[str]()
    names = source.sample(sorted(target.settable), 3)
    fixed = {name: source.choice((*VALUES, target.defaults[name])) for name in names}
    monkeypatch.setattr("swarden.harness.commands.fuzz.target_of", lambda _: target)

    try:
        with_settings(target, [target.decode({})], settings_of(assignments(fixed), [target.name]))
    except UsageError as error:
        refused[str(error)] += 1
    text = str(refusal(refused, fixed, ""))

    assert len(text) <= MAX_TEXT
    assert "\n" not in text
    assert not refused or any(name in most_frequent(refused) for name in names)


def test_reasons_that_differ_in_numbers_only_are_one():
    assert most_frequent(Counter({"a is true": 2, "b is 3": 1, "b is 40": 1, "b is 5": 1})) == "b is 3"
