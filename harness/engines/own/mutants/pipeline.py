"""Bugs of passes in flight: pages freed, tokens counted or passes launched before a pass has completed."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

SCHEDULER = "swarden.engine_under_test.scheduler.scheduler:Scheduler"
CUSTODY = "swarden.engine_under_test.scheduler.custody:Custody"
DEPARTURES = "swarden.engine_under_test.cache.departures:Departures"
PIPELINE = "swarden.engine_under_test.scheduler.pipeline:Pipeline"

bug(
    "S70",
    "the pages of a request that ends with a pass in flight are free at once, and the pass still writes to them",
    at=f"{DEPARTURES}.release",
    healthy="ledgers, after = self._memory.ledgers, record.last_launch",
    broken="ledgers, after = self._memory.ledgers, 0",
    caught_by=("units_in_flight_are_pinned", "writes_go_to_private_units", "unit_has_one_owner"),
)

bug(
    "S71",
    "the lock of a request that ends with a pass in flight is released at once: the pass reads evicted pages",
    at=f"{DEPARTURES}.release",
    healthy="if after > self._memory.completed_launch:",
    broken="if False:",
    caught_by=("units_in_flight_are_pinned", "fenced_units_wait_for_their_launch", "slots_hold_their_prefix"),
)

bug(
    "S72",
    "a lock that waits for a pass in flight is not released when that pass has completed",
    at=f"{DEPARTURES}.complete",
    healthy="self._cache.unlock(departure.receipt)",
    broken="pass",
    caught_by=("fenced_units_wait_for_their_launch", "receipts_match_records", "node_locks_match_receipts"),
)

bug(
    "S73",
    "the result of an old pass counts for a request that was requeued and admitted again in the meantime",
    at=f"{CUSTODY}.holds",
    healthy="return self._records.get(request.id) is record",
    broken="return request.id in self._records",
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

bug(
    "S74",
    "a failed pass counts as completed: garbage is published as the KV of its tokens",
    at=f"{SCHEDULER}._process_oldest",
    healthy="elif completed.failure is None:",
    broken="elif True:",
    caught_by=("failed_passes_are_retried", "requests_survive_failed_passes", "committed_tokens_have_landed"),
)

bug(
    "S75",
    "every request of a failed pass ends at once, however many retries are configured",
    at=f"{SCHEDULER}._retry",
    healthy="if request.setbacks.failures > self._config.max_forward_retries:",
    broken="if True:",
    caught_by=("failed_passes_are_retried", "requests_survive_failed_passes"),
)

bug(
    "S76",
    "a window slides by launched tokens, not committed ones: pages are freed that a pass in flight still reads",
    at=f"{CUSTODY}.slide_windows",
    healthy="pool.frontier(record.committed_len)",
    broken="pool.frontier(record.launched_len)",
    caught_by=(
        "writes_go_to_private_units",
        "units_in_flight_are_pinned",
        "frontiers_spare_the_window",
        "locks_cover_pages_read",
        "window_locks_are_minimal",
    ),
)

bug(
    "S77",
    "duplicate pages of a publication are free at once, although the next pass, in flight, reads them",
    at="swarden.engine_under_test.cache.prefix_cache:PrefixCache._execute",
    healthy="cause=FreeCause.DUPLICATE, after=after, lacks=lacks",
    broken="cause=FreeCause.DUPLICATE, after=after if lacks else 0, lacks=lacks",
    caught_by=("units_in_flight_are_pinned", "slots_hold_their_prefix"),
)

bug(
    "S78",
    "a pause retracts all requests, and the next step admits them again",
    at=f"{SCHEDULER}.step",
    healthy="and not self.is_paused else []",
    broken="else []",
    caught_by=("paused_engine_launches_nothing", "pauses_are_reported", "paused_engine_holds_nothing"),
)

bug(
    "S79",
    "a request is retracted before the passes in flight have completed, which might free enough pages",
    at=f"{SCHEDULER}._free_decode_pages",
    healthy="if not self._settle():",
    broken="if False:",
    caught_by=(
        "retraction_is_necessary",
        "oom_abort_only_if_alone",
        "retraction_lets_others_run",
        "preempted_requests_free_units_at_once",
    ),
)

bug(
    "S80",
    "a late pass counts as complete, while it still writes to its pages",
    at=f"{PIPELINE}.collect",
    healthy="            self._observer.notice(Late(launch))\n        return None\n",
    broken="            self._observer.notice(Late(launch))\n        computed = []\n",
    caught_by=(
        "slots_hold_their_prefix",
        "clients_get_only_computed_tokens",
        "outputs_stay_within_max_new_tokens",
        "committed_tokens_have_landed",
        "KeyError",
    ),
)

bug(
    "S81",
    "the pipeline is one pass too deep: three passes are in flight where two are allowed",
    at=f"{PIPELINE}.can_launch",
    healthy="return len(self.flights) < self._depth",
    broken="return len(self.flights) <= self._depth",
    caught_by=("passes_complete_in_order",),
)

bug(
    "S82",
    "the result of an unfinished prefill counts as stale, so its chunk is lost",
    at=f"{SCHEDULER}._process_oldest",
    healthy="if not self.custody.holds(entry.request, entry.record):",
    broken="if entry.request is self.chunked or not self.custody.holds(entry.request, entry.record):",
    caught_by=("discarded_results_are_stale", "committed_tokens_have_landed"),
)

bug(
    "S83",
    "tokens count as committed when they are launched, so they are published before their KV is written",
    at=f"{PIPELINE}.launch",
    healthy="entry.record.launched_len = entry.end",
    broken="entry.record.launched_len = entry.record.committed_len = entry.end",
    caught_by=("committed_tokens_have_landed",),
)

bug(
    "S84",
    "a batch launched beside one in flight computes the same token again",
    at=f"{PIPELINE}.launch",
    healthy="entry.record.launched_len = entry.end",
    broken="entry.record.launched_len = max(entry.record.committed_len, entry.end - 1)",
    caught_by=(
        "launched_tokens_are_in_flight",
        "requests_resume_where_they_stopped",
        "launches_match_reservations",
        "cursors_are_ordered",
    ),
)
