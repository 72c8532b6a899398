"""Releases of lmdeploy run random traffic, and each part of their PyTorch engine is driven."""

import os
from pathlib import Path
from typing import Any

import pytest

from docs.make.pages import own_bugs
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.known_bug import EMBARGO
from swarden.harness.core.ops import Abort, Pause, Recipe, Resume, Step, Submit
from swarden.harness.engines.lmdeploy.config import LmdeployConfig
from swarden.harness.engines.lmdeploy.mutants import MUTANTS
from swarden.harness.engines.lmdeploy.target import LmdeployTarget
from swarden.harness.search.mutants.kill_matrix import violated_laws
from swarden.invariants.events import (
    Admitted,
    CopiedIn,
    Finished,
    FinishReason,
    Freed,
    Launched,
    Paused,
    Resumed,
    Retracted,
)
from swarden.invariants.kinds import Place
from tests.engines.some_runs import events_of, random_runs, served

RUNS = 30
EVALUATED = ("outputs_match_reference", "slots_hold_their_prefix", "cached_units_count_their_readers")
NEWEST = "0.18.0"
OPLOGS = Path(__file__).parent / "mutants"
PROMPT = Submit(recipe=Recipe(stretch=30), max_new_tokens=3)
FOUR_LONG: list[Any] = [Submit(recipe=Recipe(path=(branch,), stretch=20), max_new_tokens=24) for branch in range(4)]


def test_random_runs_fail_only_by_known_bugs_and_replay_alike(release, on_release):
    result = on_release(release, random_runs, f"lmdeploy=={release}", RUNS)

    assert result.runs >= RUNS  # a failing run is repeated
    assert all(result.evaluated[law] >= RUNS for law in EVALUATED)
    assert result.diverged == []
    if EMBARGO not in os.environ:
        pytest.skip("without the folder of bugs under embargo their failures are new")
    known = {fingerprint for bug in own_bugs("lmdeploy") for fingerprint in bug.fingerprints}
    assert {fingerprint for fingerprint, _ in result.failures} <= known


def test_older_release_is_refused_with_the_oldest_that_is_driven():
    kind: Any = LmdeployTarget
    with pytest.raises(UsageError, match=r"lmdeploy==0\.15\.0: lmdeploy is driven from 0\.16\.0 on"):
        kind("0.15.0").check_environment()


def test_more_tokens_ahead_than_a_page_are_refused():
    with pytest.raises(InvalidConfig, match="prefill_interval is 8, want at most page_size 4"):
        LmdeployConfig(prefill_interval=8)


def test_two_passes_are_in_flight_and_a_long_prompt_is_computed_in_chunks(release, on_release):
    result = on_release(release, served, f"lmdeploy=={release}", {}, [PROMPT], 6)

    assert max(result.in_flight) == 2
    entries = [entry for one in events_of(result, Launched) for entry in one.entries]
    assert entries[:3] == [(1, 0, 16), (1, 16, 30), (1, 30, 31)]
    assert result.ends == {1: FinishReason.LENGTH}


def test_second_prompt_matches_the_blocks_of_the_first(release, on_release):
    result = on_release(release, served, f"lmdeploy=={release}", {}, [PROMPT, *[Step()] * 6, PROMPT], 6)

    assert [one.start for one in events_of(result, Admitted)] == [0, 28]
    assert result.outputs[1] == result.outputs[2]


def test_state_is_restored_from_a_checkpoint(release, on_release):
    settings = {"states": True, "state_budget": 2}

    result = on_release(release, served, f"lmdeploy=={release}", settings, [PROMPT, *[Step()] * 6, PROMPT], 6)

    assert [one.pool for one in events_of(result, CopiedIn)] == ["states"]
    assert result.outputs[1] == result.outputs[2]


def test_blocks_behind_a_window_are_given_up(release, on_release):
    settings = {"window": 6}

    result = on_release(release, served, f"lmdeploy=={release}", settings, [FOUR_LONG[0]], 30)

    [end] = [index for index, one in enumerate(result.events) if isinstance(one, Finished)]
    assert [one for one in result.events[: end - 1] if isinstance(one, Freed)]
    assert result.ends == {1: FinishReason.LENGTH}


def test_preempted_requests_wait_with_their_kv_until_it_is_taken(on_release):
    settings = {"num_blocks": 18, "max_context_len": 48}

    result = on_release(NEWEST, served, f"lmdeploy=={NEWEST}", settings, FOUR_LONG, 200)

    assert {Place.SWAPPED, Place.WAITING} <= result.places
    assert events_of(result, Retracted)
    assert list(result.ends.values()) == [FinishReason.LENGTH] * 4


def test_abort_comes_while_passes_are_in_flight(release, on_release):
    ops = [PROMPT, Step(), Abort(), Step()]

    result = on_release(release, served, f"lmdeploy=={release}", {}, ops, 3)

    assert result.in_flight[ops.index(Abort())] > 0
    assert (result.ends, result.num_live) == ({1: FinishReason.ABORT}, 0)


def test_sleep_ends_all_requests_and_a_later_one_is_served_after_the_wakeup(release, on_release):
    other = Submit(recipe=Recipe(path=(1,), stretch=9), max_new_tokens=2)
    ops = [PROMPT, Step(), Pause(), Step(), Resume(), other]

    result = on_release(release, served, f"lmdeploy=={release}", {}, ops, 6)

    assert result.ends == {1: FinishReason.ABORT, 2: FinishReason.LENGTH}
    assert [type(one) for one in result.events if isinstance(one, Paused | Resumed)] == [Paused, Resumed]


def laws_with_and_without(mutant):
    log = load_log(OPLOGS / f"{mutant}.oplog", engine=f"lmdeploy=={NEWEST}")
    return violated_laws(log, mutant), violated_laws(log, None)


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_planted_bug_is_detected_by_its_laws_and_nothing_fails_without_it(mutant, on_release):
    planted, healthy = on_release(NEWEST, laws_with_and_without, mutant.id)

    assert set(mutant.caught_by) & set(planted)
    assert healthy == []
