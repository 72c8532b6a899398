"""Bugs of the scheduler: the entries of a pass, and the state left by finished requests."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

SCHEDULER = "swarden.engine_under_test.scheduler.scheduler:Scheduler"
CUSTODY = "swarden.engine_under_test.scheduler.custody:Custody"

bug(
    "B31",
    "sglang issues 24252, 24275, 24318: parking advanced the computed end, so junk was published",
    at=f"{SCHEDULER}._plan_chunk",
    healthy="if planned is None:\n",
    broken="if planned is None:\n        record.allocated_len += 1\n        "
    "record.launched_len += 1\n        record.committed_len += 1\n",
    caught_by=(
        "committed_tokens_have_landed",
        "passes_compute_each_request_once",
        "passes_prefill_within_chunk_len",
        "slots_hold_their_prefix",
        "cursors_are_ordered",
        "rows_match_their_records",
        "locks_cover_pages_read",
        "window_locks_are_minimal",
        "requests_resume_where_they_stopped",
        "launches_match_reservations",
    ),
)

bug(
    "B32",
    "sglang release 0.5.10: the test of the chunked slot was inverted, so a begun prompt never continued",
    at=f"{SCHEDULER}._prefill",
    healthy="if not begun and not len(",
    broken="if begun or not len(",
    caught_by=("work_makes_progress", "admission_matches_planner"),
)

bug(
    "B36",
    "sglang issue 32700: a shortage that an eviction could end was answered by a retraction, prompt after prompt",
    at=f"{SCHEDULER}._evict_for_decode",
    healthy="return self.custody.evict(self.admission.decode_need(self.decode_candidates()))",
    broken="need = self.admission.decode_need(self.decode_candidates())\n    "
    "free = {ledger.name: ledger.num_free for ledger in self.custody._memory.ledgers.ledgers}\n    "
    "return {pool: count - free[pool] for pool, count in need.items() if count > free[pool]}",
    caught_by=("retraction_is_necessary", "oom_abort_only_if_alone"),
)

bug(
    "B39",
    "sglang pull 28246: a decode step without enough pages retracted before it freed the pages below the windows",
    at=f"{SCHEDULER}._free_decode_pages",
    healthy="self.custody.slide_windows(self.computing, interval=1)",
    broken="pass",
    caught_by=("retraction_is_necessary", "oom_abort_only_if_alone"),
)

bug(
    "B43",
    "sglang pull 15626: the last request was kept though it did not fit alone, and its decode crashed",
    Hunk(f"{SCHEDULER}._free_decode_pages", "if short and self.running and not self.loading.under_way:", "if False:"),
    Hunk(f"{SCHEDULER}._free_decode_pages", "return not short", "return True"),
    caught_by=("reserved_units_never_run_out",),
)

bug(
    "B45",
    "sglang issues 9068, 10871, 10889: the page of the extra token that overlap computes was freed twice",
    at=f"{SCHEDULER}._process_oldest",
    healthy="if not self.custody.holds(entry.request, entry.record):\n",
    broken="if not self.custody.holds(entry.request, entry.record):\n            "
    "self.custody._memory.ledgers.anchor.free(\n                "
    'entry.record.handles[-1:], owner=entry.request.owner, cause="extra token")\n',
    caught_by=("units_move_only_by_their_owner", "unit_has_one_owner"),
    is_canary=True,
)

bug(
    "B46",
    "sglang issues 1787, 1837 and 1858: a request with an unfinished chunk was merged into the running batch",
    at=f"{SCHEDULER}._take_reserved_pages",
    healthy="    self.chunked = request\n",
    broken="    self.chunked = request\n            self.running.append(request)\n",
    caught_by=(
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
        "passes_compute_each_request_once",
        "passes_prefill_within_chunk_len",
    ),
    is_canary=True,
)

bug(
    "B48",
    "sglang releases 0.5.10 and 0.5.15: a pause emptied the chunked slot and left row, pages and lock behind",
    at=f"{SCHEDULER}.pause",
    healthy="for request in self.active:",
    broken="self.chunked = None\n        for request in self.active:",
    caught_by=(
        "paused_engine_launches_nothing",
        "pauses_are_reported",
        "paused_engine_holds_nothing",
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
    ),
)

bug(
    "B49",
    "sglang pull 30295: a chunked request was counted twice, so one place was never filled",
    at=f"{SCHEDULER}._plan_waiting",
    healthy="for request in self.admission.in_order(self.waiting):\n",
    broken="for request in self.admission.in_order(self.waiting):\n        "
    "if self.chunked and len(self.active) + len(admitted) + 2 > self._config.max_running_requests:\n"
    "            break\n",
    caught_by=("waiting_requests_take_free_places", "admission_matches_planner"),
)

bug(
    "B77",
    "sglang pull 27770: a refused allocation raised an error out of the scheduler, and the server died",
    at=f"{SCHEDULER}._take_pages",
    healthy="except PoolExhausted as exhausted:\n",
    broken="except PoolExhausted as exhausted:\n        raise\n",
    caught_by=("PoolExhausted",),
)

bug(
    "S1",
    "found here by random traffic: with SWA layers only, a row kept pages of its prefix that it had unlocked",
    at=f"{CUSTODY}._slide",
    healthy="ledgers.without(pool, record.handles[first:end])",
    broken="record.handles[first:border] + ledgers.without(pool, record.handles[border:end])",
    caught_by=("units_move_only_by_their_owner", "unit_has_one_owner", "AccountingError"),
)

bug(
    "S7",
    "the frontier is inside a page: the page counts as freed, although a part of it is still read",
    at=f"{CUSTODY}._slide",
    healthy="record.frontiers[pool] = frontier",
    broken="record.frontiers[pool] = frontier + page_size // 2",
    caught_by=("cursors_are_page_aligned", "AssertionError"),
)

bug(
    "S50",
    "a slide moves the frontier past a page that it does not free",
    at=f"{CUSTODY}._slide",
    healthy="ledgers.free_alone(pool, private, ",
    broken="ledgers.free_alone(pool, private[:-1], ",
    caught_by=("live_nodes_hold_their_pages", "private_pages_match_frontier", "unit_has_one_owner"),
)

bug(
    "S51",
    "windows slide for decoding requests only: a long prompt keeps the windowed pages of all its chunks",
    at=f"{SCHEDULER}.step",
    healthy="self.custody.slide_windows(self.computing, ",
    broken="self.custody.slide_windows(self.running, ",
    caught_by=("private_windows_are_bounded", "oom_abort_only_if_alone"),
)

bug(
    "S53",
    "a request that ends at a stop token leaves the batch, and its pages, row and lock are not released",
    at=f"{SCHEDULER}._remove",
    healthy="self.custody.release(request, cause=cause)",
    broken='if request.finish_reason != "stop":\n        self.custody.release(request, cause=cause)',
    caught_by=(
        "finished_requests_hold_nothing",
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
    ),
)

bug(
    "S55",
    "a batch whose windowed layers see one token less than the window: outputs drift",
    at="swarden.engine_under_test.scheduler.batch:_pool_pages",
    healthy="pool.read_from(entry.start)",
    broken="pool.read_from(entry.start + 1)",
    caught_by=("reads_cover_the_window", "slots_hold_their_prefix"),
)

bug(
    "S56",
    "a batch that was reordered for the forward and not back: requests get each other's tokens",
    at=f"{SCHEDULER}._process_oldest",
    healthy="zip(completed.entries, results, strict=True)",
    broken="zip(completed.entries, [*results[1:], *results[:1]], strict=True)",
    caught_by=("outputs_match_reference", "clients_get_only_computed_tokens", "outputs_stay_within_max_new_tokens"),
)

bug(
    "S57",
    "the new-token ratio has no upper limit: after a retraction no request is admitted for a long time",
    at="swarden.engine_under_test.scheduler.preempt:NewTokenRatio.learn",
    healthy="max(self._floor, min(1.0, foreseen))",
    broken="max(self._floor, foreseen)",
    caught_by=("new_token_ratio_is_in_range",),
)

bug(
    "S58",
    "the lookahead is added to the allocated length, not to the computed one, so it grows with every token",
    at=f"{SCHEDULER}._decode",
    healthy="max(record.allocated_len, entry.end + ",
    broken="max(record.allocated_len + self._config.lookahead_tokens, entry.end + ",
    caught_by=("allocation_is_within_lookahead", "reservations_cover_taken_units", "reserved_units_never_run_out"),
)

bug(
    "S59",
    "a decode takes its next page one token late: it writes to the page that a stale entry of its row names",
    at=f"{CUSTODY}.grow",
    healthy="count = pages_between(record.allocated_len, length, page_size)",
    broken="count = pages_between(record.allocated_len, length - 1, page_size)",
    caught_by=("writes_go_to_private_units", "rows_match_their_records", "AssertionError"),
)

bug(
    "S63",
    "the new-token ratio includes the headroom of one remaining request instead of all: it is too low at once",
    at="swarden.engine_under_test.scheduler.preempt:NewTokenRatio.learn",
    healthy="RETRACTION_HEADROOM * len(remaining)",
    broken="RETRACTION_HEADROOM",
    caught_by=("new_token_ratio_follows_retractions",),
)

bug(
    "S64",
    "a request times out only when it is older than the limit, not when it reaches the limit",
    at=f"{SCHEDULER}._expire",
    healthy=">= limit",
    broken="> limit",
    caught_by=("timed_out_requests_are_old_enough", "old_requests_time_out"),
)

bug(
    "S66",
    "decodes are planned only while requests wait, so the last running requests make no progress",
    at=f"{SCHEDULER}._plan",
    healthy="if not entries and self._free_decode_pages():",
    broken="if not entries and len(self.waiting) and self._free_decode_pages():",
    caught_by=("work_makes_progress",),
)

bug(
    "S211",
    "vllm issue 49097: a mixed pass passes over the last running request",
    at=f"{SCHEDULER}._plan",
    healthy="(decodes := self._decode(running))",
    broken="(decodes := self._decode(running[:1]))",
    caught_by=("running_requests_are_computed",),
)
