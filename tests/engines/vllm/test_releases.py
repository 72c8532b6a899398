"""Releases of vLLM run random traffic, and their runs are repeated alike."""

from tests.engines.some_runs import random_runs

RUNS = 30
EVALUATED = ("outputs_match_reference", "slots_hold_their_prefix", "cached_units_count_their_readers")
KNOWN = {  # of docs/findings
    "slots_hold_their_prefix",
    "outputs_match_reference",
    "work_makes_progress",
    "unit_stands_in_one_table_place",
    "drained_engine_is_empty",  # 0.20.2: a load that its client has aborted is not noticed while no other request runs
}


def test_random_runs_fail_only_by_known_bugs_and_replay_alike(release, on_release):
    result = on_release(release, random_runs, f"vllm=={release}", RUNS)

    assert result.runs == RUNS
    assert all(result.evaluated[law] >= RUNS for law in EVALUATED)
    assert result.failed <= KNOWN
    assert result.diverged == []
