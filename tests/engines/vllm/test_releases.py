"""Releases of vLLM run random traffic, and their runs are repeated alike."""

from tests.engines.some_runs import random_runs

RUNS = 30
EVALUATED = ("outputs_match_reference", "slots_hold_their_prefix", "cached_units_count_their_readers")
KNOWN = {  # by release, the fingerprints of docs/findings that its runs may show
    "0.20.2": set(),
    "0.33.0": {"slots_hold_their_prefix/request/unwritten"},
}


def has_the_trigger(config):
    """Whether a configuration can show the bug of KNOWN: it has loads in the background and a window."""
    return config["late_loads"] and bool(config["windows"])


def test_random_runs_fail_only_by_known_bugs_and_replay_alike(release, on_release):
    result = on_release(release, random_runs, f"vllm=={release}", RUNS)

    assert result.runs == RUNS
    assert all(result.evaluated[law] >= RUNS for law in EVALUATED)
    assert {fingerprint for fingerprint, _ in result.failures} <= KNOWN[release]
    assert all(has_the_trigger(config) for _, config in result.failures)
    assert result.diverged == []
