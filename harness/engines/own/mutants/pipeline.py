"""Bugs of passes in flight: pages freed, tokens counted or passes launched before a pass has completed."""

from harness.core.mutant import Hunk, Mutant

SCHEDULER = "engine_under_test.scheduler.scheduler:Scheduler"
CUSTODY = "engine_under_test.scheduler.custody:Custody"
DEPARTURES = "engine_under_test.cache.departures:Departures"
PIPELINE = "engine_under_test.scheduler.pipeline:Pipeline"

FENCE_IS_FORGOTTEN = Mutant(
    id="S70",
    source="the pages of a request that ends with a pass in flight are free at once, and the pass still writes to them",
    hunks=(
        Hunk(
            f"{DEPARTURES}.release",
            healthy="ledgers, after = self._memory.ledgers, record.last_launch",
            broken="ledgers, after = self._memory.ledgers, 0",
        ),
    ),
    caught_by=("units_in_flight_are_pinned", "writes_go_to_private_units", "unit_has_one_owner"),
)

LOCK_IS_RETURNED_TOO_EARLY = Mutant(
    id="S71",
    source="the lock of a request that ends with a pass in flight is released at once: the pass reads evicted pages",
    hunks=(Hunk(f"{DEPARTURES}.release", healthy="if after > self._memory.completed_launch:", broken="if False:"),),
    caught_by=(
        "units_in_flight_are_pinned",
        "fenced_units_wait_for_their_launch",
        "fences_end_with_their_launch",
        "slots_hold_their_prefix",
    ),
)

LOCK_IS_NEVER_RETURNED = Mutant(
    id="S72",
    source="a lock that waits for a pass in flight is not released when that pass has completed",
    hunks=(Hunk(f"{DEPARTURES}.complete", healthy="self._cache.unlock(one.receipt)", broken="pass"),),
    caught_by=(
        "fenced_units_wait_for_their_launch",
        "fences_end_with_their_launch",
        "receipts_match_records",
        "node_locks_match_receipts",
    ),
)

STALE_RESULT_COUNTS = Mutant(
    id="S73",
    source="the result of an old pass counts for a request that was requeued and admitted again in the meantime",
    hunks=(
        Hunk(
            f"{CUSTODY}.holds",
            healthy="return self._records.get(request.id) is record",
            broken="return request.id in self._records",
        ),
    ),
    caught_by=(
        "launched_tokens_are_in_flight",
        "clients_get_only_computed_tokens",
        "outputs_stay_within_max_new_tokens",
        "committed_tokens_have_landed",
        "outputs_match_reference",
        "AssertionError",
        "units_in_flight_are_pinned",
    ),
)

FAILED_PASS_COUNTS = Mutant(
    id="S74",
    source="a failed pass counts as completed: garbage is published as the KV of its tokens",
    hunks=(Hunk(f"{SCHEDULER}._process_oldest", healthy="elif completed.failure is None:", broken="elif True:"),),
    caught_by=("failed_passes_are_retried", "requests_survive_failed_passes", "committed_tokens_have_landed"),
)

FAILED_REQUESTS_END_AT_ONCE = Mutant(
    id="S75",
    source="every request of a failed pass ends at once, however many retries are configured",
    hunks=(
        Hunk(
            f"{SCHEDULER}._retry",
            healthy="if request.setbacks.failures > self._config.max_forward_retries:",
            broken="if True:",
        ),
    ),
    caught_by=("failed_passes_are_retried", "requests_survive_failed_passes"),
)

WINDOW_SLIDES_AHEAD = Mutant(
    id="S76",
    source="a window slides by launched tokens, not committed ones: pages are freed that a pass in flight still reads",
    hunks=(
        Hunk(
            f"{CUSTODY}.slide_windows",
            healthy="pool.frontier(record.committed_len)",
            broken="pool.frontier(record.launched_len)",
        ),
    ),
    caught_by=(
        "writes_go_to_private_units",
        "units_in_flight_are_pinned",
        "frontiers_spare_the_window",
        "locks_cover_pages_read",
        "window_locks_are_minimal",
    ),
)

DUPLICATES_ARE_NOT_FENCED = Mutant(
    id="S77",
    source="duplicate pages of a publication are free at once, although the next pass, in flight, reads them",
    hunks=(
        Hunk(
            "engine_under_test.cache.prefix_cache:PrefixCache._execute",
            healthy="cause=FreeCause.DUPLICATE, after=after, lacks=lacks",
            broken="cause=FreeCause.DUPLICATE, after=after if lacks else 0, lacks=lacks",
        ),
    ),
    caught_by=("units_in_flight_are_pinned", "slots_hold_their_prefix"),
)

PAUSE_GOES_ON_LAUNCHING = Mutant(
    id="S78",
    source="a pause retracts all requests, and the next step admits them again",
    hunks=(Hunk(f"{SCHEDULER}.step", healthy="and not self.is_paused else []", broken="else []"),),
    caught_by=("paused_engine_launches_nothing", "pauses_are_reported", "paused_engine_holds_nothing"),
)

RETRACTED_BEFORE_THE_PIPELINE_IS_EMPTY = Mutant(
    id="S79",
    source="a request is retracted before the passes in flight have completed, which might free enough pages",
    hunks=(Hunk(f"{SCHEDULER}._free_decode_pages", healthy="if not self._settle():", broken="if False:"),),
    caught_by=("retraction_is_necessary", "oom_abort_only_if_alone", "retraction_lets_others_run"),
)

LATE_PASS_IS_GIVEN_UP = Mutant(
    id="S80",
    source="a late pass counts as complete, while it still writes to its pages",
    hunks=(
        Hunk(
            f"{PIPELINE}.collect",
            healthy="            self._observer.notice(Late(launch))\n        return None\n",
            broken="            self._observer.notice(Late(launch))\n        computed = []\n",
        ),
    ),
    caught_by=(
        "slots_hold_their_prefix",
        "clients_get_only_computed_tokens",
        "outputs_stay_within_max_new_tokens",
        "committed_tokens_have_landed",
        "KeyError",
    ),
)

THREE_PASSES_IN_FLIGHT = Mutant(
    id="S81",
    source="the pipeline is one pass too deep: three passes are in flight where two are allowed",
    hunks=(
        Hunk(
            f"{PIPELINE}.can_launch",
            healthy="return len(self.flights) < self._depth",
            broken="return len(self.flights) <= self._depth",
        ),
    ),
    caught_by=("passes_complete_in_order",),
)

GOOD_RESULT_IS_DISCARDED = Mutant(
    id="S82",
    source="the result of an unfinished prefill counts as stale, so its chunk is lost",
    hunks=(
        Hunk(
            f"{SCHEDULER}._process_oldest",
            healthy="if not self.custody.holds(entry.request, entry.record):",
            broken="if entry.request is self.chunked or not self.custody.holds(entry.request, entry.record):",
        ),
    ),
    caught_by=("discarded_results_are_stale", "committed_tokens_have_landed"),
)

COMMITTED_AT_THE_LAUNCH = Mutant(
    id="S83",
    source="tokens count as committed when they are launched, so they are published before their KV is written",
    hunks=(
        Hunk(
            f"{PIPELINE}.launch",
            healthy="entry.record.launched_len = entry.end",
            broken="entry.record.launched_len = entry.record.committed_len = entry.end",
        ),
    ),
    caught_by=("committed_tokens_have_landed",),
)

LAUNCHED_IS_NOT_NOTED = Mutant(
    id="S84",
    source="a batch launched beside one in flight computes the same token again",
    hunks=(
        Hunk(
            f"{PIPELINE}.launch",
            healthy="entry.record.launched_len = entry.end",
            broken="entry.record.launched_len = max(entry.record.committed_len, entry.end - 1)",
        ),
    ),
    caught_by=(
        "launched_tokens_are_in_flight",
        "requests_resume_where_they_stopped",
        "launches_match_reservations",
        "cursors_are_ordered",
    ),
)
