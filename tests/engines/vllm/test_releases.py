"""Releases of vLLM run random traffic, and their runs are repeated alike."""

from tests.engines.some_runs import random_runs

RUNS = 30
EVALUATED = ("outputs_match_reference", "slots_hold_their_prefix", "cached_units_count_their_readers")
# By release, the fingerprints of docs/findings that its runs may show, with the settings that they need.
KNOWN = {
    "0.20.2": {
        "slots_hold_their_prefix/request/other_content": {"asynchronous"},
        "frontiers_spare_the_window/request/frontier_in_window": {"asynchronous", "draft_len", "windows"},
        "slots_hold_their_prefix/request/unwritten": set(),  # late loads with windows; stores of single blocks
        "work_makes_progress/engine/stuck": set(),
        "drained_engine_is_empty/blocks pool/units_left": {"late_loads", "saves"},
        "writes_go_to_private_units/blocks block/written_by_another": {"asynchronous", "draft_len", "windows"},
        "outputs_end_as_asked/request/ended_short": {"streaming_input"},
        "session_keeps_only_delivered_tokens/session/kept_too_much": {"streaming_input", "asynchronous"},
        "router_view_matches_cache/cached block/cached_not_reported": {"kv_events"},
        "ended_requests_leave_their_kv_cached/blocks block/not_kept": {"draft_len"},  # accepted-drafts-not-cached
        "served_blocks_are_hit/request/computed_again": {"state_groups"},
    },
    "0.33.0": {
        "slots_hold_their_prefix/request/other_content": {"lmcache_chunks"},  # chunk-found-behind-another-salt
        "slots_hold_their_prefix/request/unwritten": set(),  # late loads; loads of states within the step
        "served_blocks_are_hit/request/computed_again": {"state_groups"},
        "router_view_matches_cache/cached block/cached_not_reported": {"kv_events"},
        "frontiers_spare_the_window/request/frontier_in_window": {"late_loads", "draft_len", "windows"},
        "work_makes_progress/engine/stuck": {"streaming_input"},  # idle-stream-starves-request
    },
}


def test_random_runs_fail_only_by_known_bugs_and_replay_alike(release, on_release):
    result = on_release(release, random_runs, f"vllm=={release}", RUNS)

    assert result.runs >= RUNS  # a failing run is repeated
    assert all(result.evaluated[law] >= RUNS for law in EVALUATED)
    assert {fingerprint for fingerprint, _ in result.failures} <= KNOWN[release].keys()
    assert all(config[name] for failure, config in result.failures for name in KNOWN[release][failure])
    assert result.diverged == []
