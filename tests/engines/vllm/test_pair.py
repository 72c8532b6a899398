"""A prefill and a decode core, linked by the release's NIXL connector: the KV of a prompt arrives, or is let go."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Drain, Inject, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.vllm.link import LEASE_S, LINK_DELAY, LINK_DROP, LINK_FAILS
from swarden.harness.engines.vllm.parts.pair import DECODE, PREFILL
from swarden.invariants.events import Admitted, Finished, FinishReason, HandedOver, Launched, LetGo, Written

HEALTHY = Path(__file__).with_name("healthy")
NEWEST = "0.33.0"
PREFILL_SIDE, DECODE_SIDE = 0, 1
PROMPT = Submit(engine=DECODE_SIDE, recipe=Recipe(path=(0, 1), stretch=7), max_new_tokens=4)
FIRST_PASSES = (Step(engine=PREFILL_SIDE, count=3), Step(engine=DECODE_SIDE, count=2))


def served(ops, changes, release=NEWEST):
    """The first request on the decode side: its first position and its end; and the number of steps of its handover."""
    target = target_of(f"vllm=={release}")
    configs = [{**target.defaults, "role": role, **changes} for role in (PREFILL, DECODE)]
    header = Header(engine=target.name, version=release, machine="pd", configs=configs)
    events: list[Any] = []
    driver = driver_of(
        header, observe=lambda change: events.extend((change.after.step, event) for event in change.events)
    )
    for op in (*ops, Drain()):
        driver.apply(op)
    assert driver.failure is None, driver.failure.fingerprints
    found = {kind: [pair for pair in events if isinstance(pair[1], kind)] for kind in (Admitted, HandedOver, LetGo)}
    ends = [event.reason for _, event in events if isinstance(event, Finished)]
    kept = [gone - kept for (gone, _), (kept, _) in zip(found[LetGo], found[HandedOver], strict=True)]
    return [event.start for _, event in found[Admitted]], ends, kept


def fault(name):
    return PROMPT, Inject(engine=DECODE_SIDE, fault=name), *FIRST_PASSES


@pytest.mark.parametrize("changes", [{}, {"windows": [], "block_size": 2}, {"asynchronous": True, "draft_len": 2}])
@pytest.mark.parametrize("ops", [(PROMPT,), fault(LINK_DELAY)], ids=["in-time", "late"])
def test_decode_side_computes_only_the_last_token_of_a_prompt(on_release, ops, changes):
    starts, ends, kept = on_release(NEWEST, served, ops, changes)

    assert starts[-1] == 13  # of 14 tokens
    assert ends == [FinishReason.LENGTH, FinishReason.LENGTH]
    assert kept[0] < LEASE_S


@pytest.mark.parametrize(
    ("recomputes", "start", "end"),
    [(True, 0, FinishReason.LENGTH), (False, None, FinishReason.ERROR)],
    ids=["recompute", "fail"],
)
@pytest.mark.parametrize("windows", [(), (5,)], ids=["full", "hybrid"])
def test_failed_read_is_recomputed_or_ends_its_request(on_release, recomputes, start, end, windows):
    changes = {"recomputes_loads": recomputes, "windows": windows}

    starts, ends, _ = on_release(NEWEST, served, fault(LINK_FAILS), changes)

    assert starts[1:] == ([] if start is None else [start])
    assert ends[-1] == end


@pytest.mark.parametrize(
    "ops",
    [fault(LINK_DROP), (PROMPT, Step(engine=PREFILL_SIDE, count=3), Abort(engine=DECODE_SIDE))],
    ids=["notification-lost", "never-asked"],
)
def test_blocks_that_are_not_asked_for_are_let_go_when_the_lease_ends(on_release, ops):
    _, _, kept = on_release(NEWEST, served, ops, {})

    assert LEASE_S / 2 <= kept[0] <= 2 * LEASE_S


def answer_lens(release, submitted):
    """The tokens that the prefill side answers to each request, with Mamba layers."""
    target = target_of(f"vllm=={release}")
    configs = [{**target.defaults, "role": role, "state_groups": 1} for role in (PREFILL, DECODE)]
    driver = driver_of(Header(engine=target.name, version=release, machine="pd", configs=configs))
    for op in (submitted, Drain()):
        driver.apply(op)
    assert driver.failure is None, driver.failure.fingerprints
    known = driver.systems[PREFILL_SIDE].reference.expectations.values()
    return [len(request.tokens) - request.prompt_len for request in known]


@pytest.mark.parametrize(
    ("release", "changes", "answer_len"),
    [
        (NEWEST, {}, 0),
        (NEWEST, {"prompt_logprobs": True}, 1),
        (NEWEST, {"recipe": Recipe(cut=3)}, 1),
        ("0.28.0", {"recipe": Recipe(), "prompt_logprobs": True}, 0),
        ("0.28.0", {"recipe": Recipe(cut=3)}, 1),
    ],
    ids=["cut", "cache-not-read", "one-token", "cut-at-the-look-up", "one-token-looked-up"],
)
def test_prefill_side_with_states_answers_only_prompts_that_are_not_cut(on_release, release, changes, answer_len):
    submitted = msgspec.structs.replace(PROMPT, **changes)

    assert on_release(release, answer_lens, release, submitted) == [answer_len]


def entries_and_state_writes():
    """The entries of all passes of the healthy run, and those of which the state is written: launches and requests."""
    log = load_log(HEALTHY / "prompt-of-one-token-computed-again-beside-its-state.oplog")
    events: list[Any] = []
    driver = driver_of(
        log.header, observe=lambda change: events.extend((change.after, event) for event in change.events)
    )
    for op in log.ops:
        driver.apply(op)
    entries = [(one.launch, entry[0]) for _, one in events if isinstance(one, Launched) for entry in one.entries]
    written = [
        (one.launch, one.request_id)
        for after, one in events
        if isinstance(one, Written) and after.components[one.component].has_states
    ]
    return sorted(entries), sorted(written)


def test_each_entry_writes_a_state_also_if_attention_has_its_tokens(on_release):
    entries, written = on_release(NEWEST, entries_and_state_writes)

    assert written == entries != []


@pytest.mark.parametrize("side", [PREFILL_SIDE, DECODE_SIDE], ids=["prefill", "decode"])
def test_side_serves_a_short_prompt_alone(on_release, side):
    ops = (msgspec.structs.replace(PROMPT, engine=side), Step(engine=side, count=8))

    starts, ends, kept = on_release(NEWEST, served, ops, {"local_len": 14, "has_both_roles": True})

    assert (starts, ends, kept) == ([0], [FinishReason.LENGTH], [])


@pytest.mark.parametrize("side", [PREFILL_SIDE, DECODE_SIDE], ids=["prefill", "decode"])
def test_either_side_reads_a_prompt_that_the_other_one_has_computed(on_release, side):
    submitted = msgspec.structs.replace(PROMPT, engine=side)
    fails = Inject(engine=side, fault=LINK_FAILS), Step(engine=1 - side, count=3), Step(engine=side, count=2)
    changes = {"has_both_roles": True, "two_way": True, "recomputes_loads": True}

    starts, _, _ = on_release(NEWEST, served, (submitted,), changes)
    restarts, _, _ = on_release(NEWEST, served, (submitted, *fails), changes)

    assert (starts, restarts) == ([0, 13], [0, 0])


def test_sides_with_different_windows_are_refused():
    target = target_of(f"vllm=={NEWEST}")
    configs = [target.decode({"role": PREFILL}), target.decode({"role": DECODE, "windows": [9]})]

    with pytest.raises(InvalidConfig, match="windows and window_block_sizes differ"):
        target.check_linked(configs)


@pytest.mark.parametrize(("release", "windows"), [("0.26.0", ()), (NEWEST, (5,))], ids=["full", "hybrid"])
@pytest.mark.parametrize("routes_at_once", [False, True], ids=["in-turn", "at-once"])
def test_prefill_side_pushes_the_blocks_of_a_prompt(on_release, release, windows, routes_at_once):
    changes = {"push": True, "routes_at_once": routes_at_once, "windows": windows}

    starts, ends, kept = on_release(release, served, (PROMPT,), changes, release)

    assert starts[-1] == 13  # of 14 tokens
    assert ends == [FinishReason.LENGTH, FinishReason.LENGTH]
    assert kept[0] < LEASE_S


def ends_of_both_sides(ops):
    changes = {"push": True, "routes_at_once": True}
    return served(ops, changes)[1]


def test_request_that_was_routed_at_once_is_given_up_with_its_prefill(on_release):
    ends = on_release(NEWEST, ends_of_both_sides, (PROMPT, Abort(engine=PREFILL_SIDE)))

    assert ends == [FinishReason.ABORT, FinishReason.ABORT]


@pytest.mark.parametrize("setting", ["push", "mooncake_link"])
def test_sides_of_a_pair_are_linked_by_the_same_connector(setting):
    target = target_of(f"vllm=={NEWEST}")
    configs = [target.decode({"role": role, setting: role == PREFILL}) for role in (PREFILL, DECODE)]

    with pytest.raises(InvalidConfig, match=f"{setting} differs"):
        target.check_linked(configs)
