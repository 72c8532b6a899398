"""Releases of transformers run random traffic, and each part of their continuous batching is driven."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.make.pages import own_bugs
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import EMBARGO
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Drain, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import replay
from swarden.harness.engines.transformers.mutants import MUTANTS
from swarden.harness.engines.transformers.target import TransformersTarget
from swarden.harness.engines.transformers.tiny import GEMMA
from swarden.harness.search.mutants.kill_matrix import violated_laws
from swarden.invariants.events import GROUP_KIND, SWAP_KIND, CopiedIn, FinishReason, Launched, Retracted, Taken
from swarden.invariants.kinds import Place
from tests.engines.some_runs import events_of, random_runs, served

RUNS = 30
EVALUATED = ("outputs_match_reference", "slots_hold_their_prefix", "cached_units_count_their_readers")
NEWEST = "5.24.0"
OPLOGS = Path(__file__).parent / "mutants"
PROMPT = Submit(recipe=Recipe(stretch=9), max_new_tokens=3)
FOUR_LONG: list[Any] = [Submit(recipe=Recipe(path=(branch,), stretch=20), max_new_tokens=24) for branch in range(4)]
SCARCE = {"num_blocks": 12, "max_context_len": 48, "safety_margin": 0.0, "block_sharing": False}


def test_random_runs_fail_only_by_known_bugs_and_replay_alike(release, on_release):
    result = on_release(release, random_runs, f"transformers=={release}", RUNS)

    assert result.runs >= RUNS  # a failing run is repeated
    assert all(result.evaluated[law] >= RUNS for law in EVALUATED)
    assert result.diverged == []
    if EMBARGO not in os.environ:
        pytest.skip("without the folder of bugs under embargo their failures are new")
    known = {fingerprint for bug in own_bugs("transformers") for fingerprint in bug.fingerprints}
    assert {fingerprint for fingerprint, _ in result.failures} <= known


def test_older_release_is_refused_with_the_oldest_that_is_driven():
    kind: Any = TransformersTarget
    with pytest.raises(UsageError, match=r"transformers==5\.18\.0: transformers is driven from 5\.19\.0 on"):
        kind("5.18.0").check_environment()


def test_second_session_of_a_persistent_manager_hits_the_first(release, on_release):
    """Between them the loop has ended and the batch processor was reset; the answers are the same."""
    ops = [PROMPT, Step(count=8), PROMPT]

    result = on_release(release, served, f"transformers=={release}", {"persistent_manager": True}, ops, 6)

    first, second = result.outputs.values()
    assert (len(first), second) == (3, first)
    assert next(entry for one in events_of(result, Launched) for entry in one.entries if entry[0] == 2)[1] == 8


def test_sequences_of_a_request_share_its_prompt(release, on_release):
    ops = [Submit(recipe=PROMPT.recipe, max_new_tokens=3, sequences=3)]

    result = on_release(release, served, f"transformers=={release}", {}, ops, 6)

    [first, *others] = result.outputs.values()
    assert (len(first), others) == (3, [first, first])
    assert [entry for one in events_of(result, Launched) for entry in one.entries][:1] == [(1, 0, 8)]
    assert [(one.owner.id, len(one.units)) for one in events_of(result, CopiedIn)] == [
        (2, 1),
        (3, 1),
    ]  # the third block


def test_sequences_of_an_aborted_request_end_before_its_fork(on_release):
    ops = [Submit(recipe=Recipe(stretch=40), max_new_tokens=3, sequences=2), Step(), Abort()]

    result = on_release(NEWEST, served, f"transformers=={NEWEST}", {}, ops, 3)

    assert (result.ends, result.num_live) == ({1: FinishReason.ABORT, 2: FinishReason.ABORT}, 0)


def test_window_is_a_ring_whose_sectors_come_from_one_memory(release, on_release):
    settings = {"sliding_layers": 3, "window": 6}

    result = on_release(release, served, f"transformers=={release}", settings, [FOUR_LONG[0]], 30)

    taken = {(one.pool, one.owner) for one in events_of(result, Taken)}
    assert {("sectors", (GROUP_KIND, 1)), ("sectors", (GROUP_KIND, 2)), ("sliding", ("request", 1))} <= taken
    assert sum(len(one.units) for one in events_of(result, Taken) if one.pool == "sliding" and one.owner.id == 1) == 2
    assert result.ends == {1: FinishReason.LENGTH}


@pytest.mark.parametrize(("cpu_blocks", "place"), [(0, Place.WAITING), (32, Place.SWAPPED)])
def test_starved_request_waits_with_a_copy_of_its_kv_or_without(cpu_blocks, place, on_release):
    settings = SCARCE | {"cpu_blocks": cpu_blocks}

    result = on_release(NEWEST, served, f"transformers=={NEWEST}", settings, FOUR_LONG, 200)

    assert events_of(result, Retracted)
    assert place in result.places
    assert {one.owner.kind == SWAP_KIND for one in events_of(result, Taken) if one.pool == "host full"} == (
        {True} if cpu_blocks else set()
    )
    assert list(result.ends.values()) == [FinishReason.LENGTH] * 4


def test_asynchronous_batch_is_computed_before_the_one_before_it_is_known(on_release):
    result = on_release(NEWEST, served, f"transformers=={NEWEST}", {"asynchronous": True}, [PROMPT], 8)
    other = on_release(NEWEST, served, f"transformers=={NEWEST}", {"decode_blocks": 8}, [PROMPT], 8)

    assert [one.entries for one in events_of(result, Launched)][-1] == ((1, 11, 12),)  # in vain: its request ends
    assert result.outputs == other.outputs


def laws_with_and_without(mutant):
    log = load_log(OPLOGS / f"{mutant}.oplog", engine=f"transformers=={NEWEST}")
    return violated_laws(log, mutant), violated_laws(log, None)


@pytest.mark.parametrize(
    ("mutant", "settings"),
    [("ring-one-slot-off", {"sliding_layers": 1}), ("carried-token-of-another-request", {"asynchronous": True})],
)
def test_answer_of_a_tiny_model_shows_a_planted_bug(mutant, settings, on_release):
    _, failure = on_release(NEWEST, judged_answers, f"transformers=={NEWEST}", settings, mutant)

    assert failure.split("/")[0] == "outputs_match_uncached_model"


@pytest.mark.parametrize("settings", [{"sliding_layers": 2}, {"full_layers": 0, "sliding_layers": 1}, {}])
def test_tiny_model_with_rings_and_forks_answers_as_without_a_cache(release, settings, on_release):
    compared, failure = on_release(release, judged_answers, f"transformers=={release}", settings)

    assert failure is None
    assert compared >= len(FOUR_LONG)


def judged_answers(engine, settings, mutant=None):
    """How many long answers were compared, in a small cache and with a fork, and the failure."""
    ops = [*FOUR_LONG, msgspec.structs.replace(PROMPT, sequences=2), Drain()]
    target_of(engine).prepare_process()
    run = replay(OpLog(Header(engine=engine, configs=[settings], model=GEMMA, mutant=mutant), ops))
    return run.driver.counts.tally[
        "outputs_match_uncached_model"
    ].evaluated, run.driver.failure and run.driver.failure.fingerprint


@pytest.mark.parametrize("mutant", MUTANTS.all, ids=lambda mutant: mutant.id)
def test_planted_bug_is_detected_by_its_laws_and_nothing_fails_without_it(mutant, on_release):
    planted, healthy = on_release(NEWEST, laws_with_and_without, mutant.id)

    assert set(mutant.caught_by) <= set(planted)
    assert healthy == []
