"""Fixed settings that no configuration can have: one short line that names the setting."""

import random
from typing import Any

import pytest

from swarden.harness.commands.fuzz import settings_of
from swarden.harness.core.errors import MAX_TEXT, UsageError
from swarden.harness.engines.lmdeploy.target import LmdeployTarget
from swarden.harness.engines.own.target import OwnTarget
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.engines.transformers.target import TransformersTarget
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.search.fixed_settings import Refusals, assignments, refusal, with_settings

TARGETS = (OwnTarget, SglangTarget, VllmTarget, TransformersTarget, LmdeployTarget)
VALUES: Any = (
    0,
    1,
    -1,
    0.5,
    1e300,
    2**70,
    True,
    None,
    "",
    "é\n€" * 2000,
    [],
    list(range(2000)),
    {"a": [1]},
    [[[]]] * 9,
)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", TARGETS)
def test_refusal_is_one_short_line_that_names_a_setting(kind, seed, monkeypatch):
    target, source, refusals = kind(), random.Random(seed), Refusals()
    names = source.sample(sorted(target.settable), 3)
    fixed = {name: source.choice((*VALUES, target.defaults[name])) for name in names}
    monkeypatch.setattr("swarden.harness.commands.fuzz.target_of", lambda _: target)

    try:
        with_settings(target, [target.decode({})], settings_of(assignments(fixed), [target.name]))
    except UsageError as error:
        refusals.note(str(error))
    text = str(refusal(refusals, fixed, ""))

    assert len(text) <= MAX_TEXT
    assert "\n" not in text
    assert not refusals.draws or any(name in str(refusals) for name in names)
