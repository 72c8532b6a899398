"""swarden finds the bugs of its catalogue: all by their stored op-logs, and some from a cold start."""

from itertools import takewhile
from operator import attrgetter
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import Verdict, replay, run_log
from swarden.harness.engines.own.mutants.catalog import BUGS, BY_ID, CATALOG
from swarden.harness.search.mutants.kill_matrix import data, matrix_of
from swarden.harness.search.mutants.searches import Scope, SearchJob, searched
from swarden.invariants.catalog import ALL
from tests.invariants.test_invariants import CASES

MATRIX = Path(__file__).with_name("kill_matrix.json")
OPLOGS = Path(__file__).with_name("oplogs")
# Laws without a mutant: a related law detects the known bugs, or our engine lacks the part.
WITHOUT_MUTANT = {
    *("valid_requests_are_answered", "server_is_empty_at_rest", "capacity_is_whole_at_rest"),  # of servers over HTTP
    *("ranks_compute_equal_batches", "ranks_have_equal_requests"),  # our engine has one rank
    *("ranks_have_equal_trees", "ranks_have_equal_free_units"),
    *("served_blocks_are_hit", "longest_idle_units_are_evicted_first"),  # of engines that find blocks by their hash
    *("grammars_get_only_what_they_allow", "grammars_follow_their_answers"),  # our engine has no structured output
    "prefetches_get_idle_host_memory",  # our host tier has no storage behind it
    "waiting_requests_are_not_passed_over",  # our queue promises more: admission_follows_queue_order
    "passes_prefill_within_chunk_len",
    "drafts_follow_one_token",
    "right_drafts_are_accepted",
    "launches_match_reservations",
    "requests_survive_failed_passes",
    "timed_out_requests_are_old_enough",
    "one_request_is_between_chunks",
    "closing_sessions_close_after_their_turn",
    "outputs_stay_within_max_new_tokens",
    "aborted_requests_stop_decoding",
    "aborted_prompts_are_not_computed",
    "uncached_requests_insert_nothing",
    "passes_compute_unfinished_requests",
    "first_passes_skip_cached_prefixes",
    "first_passes_skip_cached_blocks",
    "first_passes_skip_offloaded_blocks",
    "pages_arrive_as_they_were_sent",
    "peers_change_only_by_pairing",
    "slots_keep_their_bytes",
    "kv_is_that_of_its_tokens",
    "stored_blocks_have_known_parents",
    *("reset_spares_kv_in_use", "idle_engine_can_be_reset", "reset_leaves_nothing"),  # not a command of this engine
}
COLD_STARTS = ("B30", "B31", "B8")
SEEDS = (1, 2, 3)
CPU_SECONDS = 60
MOST_OPS, MOST_STEPS = 12, 40


def log_of(mutant):
    return load_log(OPLOGS / f"{mutant.id}.oplog")


def healthy(log):
    return log.with_header(mutant=None)


@pytest.mark.parametrize("mutant", CATALOG, ids=attrgetter("id"))
def test_healthy_engine_passes_the_op_log_of_each_mutant(mutant):
    """If the healthy engine passes, the planted bug is the cause of the failure."""
    assert run_log(healthy(log_of(mutant))).failure is None


def test_each_law_is_evaluated_in_one_of_the_op_logs_or_has_a_healthy_case():
    """A campaign in which a law is neither evaluated nor not applicable is red."""
    cases = {case.invariant.name for case in CASES if not case.evidence}
    left = {invariant.name for invariant in ALL.invariants}

    for mutant in takewhile(lambda _: left, CATALOG):
        tally = run_log(healthy(log_of(mutant))).counts.tally
        met = {name for name, judged in tally.items() if judged.evaluated or (judged.not_applicable and name in cases)}
        left.difference_update(met)

    assert left == set()


@pytest.mark.parametrize("mutant", CATALOG, ids=attrgetter("id"))
def test_op_log_of_each_mutant_is_short_and_fails_with_its_own_fingerprint(mutant):
    """The verdict CHANGED would mean that the stored log shows another failure."""
    log = log_of(mutant)

    replayed = replay(log)

    assert (log.header.mutant, replayed.verdict) == (mutant.id, Verdict.FAILED)
    assert log.header.expected is not None
    assert len(log.ops) <= MOST_OPS
    assert replayed.driver.counts.engine_steps <= MOST_STEPS


def test_each_mutant_has_one_stored_op_log():
    assert {path.stem for path in OPLOGS.glob("*.oplog")} == set(BY_ID)


def test_each_mutant_violates_a_law_of_its_list_and_those_of_the_kill_matrix():
    """If the matrix differs, run `swarden mutants matrix --json > tests/quality/kill_matrix.json`.

    For a bug of a checker, the law of another mutant is no longer violated.  A new law needs a mutant, unless no engine
    has had the bug; cases with broken snapshots cover these laws.
    """
    matrix = matrix_of(BUGS, OPLOGS)

    assert [mutant.id for mutant in CATALOG if not set(matrix.laws_by_mutant[mutant.id]) & set(mutant.caught_by)] == []
    assert MATRIX.read_text() == data(matrix)
    assert {invariant.name for invariant in ALL.invariants} - set(matrix.laws) == WITHOUT_MUTANT


@pytest.mark.parametrize("mutant", COLD_STARTS)
def test_mutant_is_found_from_a_cold_start_and_shrunk(mutant, tmp_path):
    """One of three seeds finds it within 60 s of CPU."""
    searches = (searched(SearchJob(BY_ID[mutant], seed), Scope(OWN, 1, CPU_SECONDS, tmp_path)) for seed in SEEDS)

    found = next(search for search in searches if search.is_found)

    assert found.ops <= MOST_OPS
    assert found.engine_steps <= MOST_STEPS
