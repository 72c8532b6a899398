"""A prefill and a decode core, linked by the release's MooncakeConnector."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Drain, Inject
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.link import LEASE_S, LINK_DELAY, LINK_DROP, LINK_FAILS
from swarden.harness.engines.vllm.parts.pair import DECODE, PREFILL
from swarden.harness.kit.settings import made
from swarden.invariants.events import FinishReason
from tests.engines.vllm.test_pair import DECODE_SIDE, FIRST_PASSES, NEWEST, PREFILL_SIDE, PROMPT, served

LINKED = {"mooncake_link": True, "recomputes_loads": True}


@pytest.mark.parametrize(
    ("release", "changes"),
    [
        ("0.26.0", {"windows": [5]}),
        (NEWEST, {"has_both_roles": True}),
        (NEWEST, {"windows": [], "state_groups": 1}),
        (NEWEST, {"asynchronous": True, "second_runner": True, "windows": [5]}),
    ],
    ids=["oldest", "both-roles", "states", "asynchronous"],
)
def test_decode_side_computes_only_the_last_token_of_a_prompt(on_release, release, changes):
    starts, ends, kept = on_release(release, served, (PROMPT,), LINKED | changes, release)

    assert starts[-1] == 13  # of 14 tokens
    assert ends == [FinishReason.LENGTH, FinishReason.LENGTH]
    assert kept[0] < LEASE_S


@pytest.mark.parametrize(("fault", "start"), [(LINK_FAILS, 0), (LINK_DROP, 0), (LINK_DELAY, 13)])
def test_prompt_whose_pull_fails_is_computed_again(on_release, fault, start):
    inject = Inject(engine=PREFILL_SIDE, fault=fault)

    starts, ends, _ = on_release(NEWEST, served, (PROMPT, inject, *FIRST_PASSES), LINKED)

    assert starts == [0, start]
    assert ends == [FinishReason.LENGTH, FinishReason.LENGTH]


@pytest.mark.parametrize("side", [PREFILL_SIDE, DECODE_SIDE])
def test_abort_on_one_side_ends_on_the_other_side(on_release, side):
    _, ends, _ = on_release(NEWEST, served, (PROMPT, Abort(engine=side)), LINKED)

    assert sorted(ends) == sorted([FinishReason.ABORT, FinishReason.LENGTH])


@pytest.mark.parametrize("setting", ["push", "two_way"])
def test_link_that_the_connector_has_not_is_refused(setting):
    wanted = {"role": PREFILL, "has_both_roles": True, "mooncake_link": True, setting: True}

    with pytest.raises(InvalidConfig, match=f"{setting} is true with mooncake_link true, want false"):
        made(VllmConfig, wanted)


def test_states_are_refused_on_a_release_with_other_caches(on_release):
    changes = LINKED | {"windows": [], "state_groups": 1}

    with pytest.raises(InvalidConfig, match=r"mooncake_link is true with state_groups, want false for vllm 0\.26\.0"):
        on_release("0.26.0", served, (PROMPT,), changes, "0.26.0")


def digests():
    target = target_of(f"vllm=={NEWEST}")
    configs = [{**target.defaults, "role": role, **LINKED, "windows": [5]} for role in (PREFILL, DECODE)]
    driver = driver_of(Header(engine=target.name, version=NEWEST, machine="pd", configs=configs))
    for op in (PROMPT, PROMPT, PROMPT, Abort(engine=DECODE_SIDE), *FIRST_PASSES, Drain()):
        driver.apply(op)
    return driver.failure, driver.digests


def test_run_has_the_same_digests_in_another_process(on_release):
    first = on_release(NEWEST, digests)

    assert first[0] is None
    assert first == on_release(NEWEST, digests)
