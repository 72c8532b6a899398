"""Bugs of admission: reservations, their requests, and rejections."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

ADMISSION = "swarden.engine_under_test.scheduler.admission:Admission"
COMPONENTS = "swarden.engine_under_test.components"
DEMAND = "swarden.engine_under_test.scheduler.demand"
ENGINE = "swarden.engine_under_test.engine:Engine"
ESCAPE = "if not alone or most <= 0:"

bug(
    "B30",
    "sglang pull 23174: a chunk was not capped by what the SWA pool had left, nor was a page kept in reserve",
    at=f"{ADMISSION}.plan_chunk",
    healthy="    if min(capacity, budget.tokens) <= 0:\n        return None\n",
    broken="    capacity = budget.tokens\n",
    caught_by=("reserved_units_never_run_out", "reservations_match_planner", "admission_matches_planner"),
)

bug(
    "B34",
    "sglang issue 31205: a demand larger than the SWA pool could never be met, and blocked the requests behind it",
    Hunk(f"{ADMISSION}.plan_new", ESCAPE, "if True:"),
    Hunk(
        f"{ADMISSION}._longest_chunk",
        "return min([extent.end - extent.start, *lengths])",
        "return extent.end - extent.start",
    ),
    caught_by=("work_makes_progress", "admission_matches_planner"),
)

bug(
    "B35",
    "sglang issue 32379: a request that continued on a cached prefix was charged a whole window, and never admitted",
    Hunk(f"{ADMISSION}.plan_new", ESCAPE, "if True:"),
    Hunk(
        f"{COMPONENTS}:Component.demand_len",
        "self._headroom(extent)",
        "self._seen + align_up(extent.lookahead, self.page_size) + self.page_size",
    ),
    caught_by=(
        "work_makes_progress",
        "waiting_requests_take_free_places",
        "admission_matches_planner",
        "reservations_match_planner",
    ),
)

bug(
    "B38",
    "sglang issue 35338: in a mixed batch the pages of the decoding requests were not in the SWA budget",
    at=f"{ADMISSION}.new_budget",
    healthy="for run in running:",
    broken="for run in () if self._config.mixed_batches else running:",
    caught_by=(
        "reserved_units_never_run_out",
        "reservations_cover_taken_units",
        "admission_matches_planner",
        "reservations_match_planner",
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
    ),
)

bug(
    "B42",
    "sglang pull 14939: the need of a decode step left out the lookahead tokens of speculation",
    at=f"{ADMISSION}.decode_need",
    healthy="lookahead=config.lookahead_tokens,",
    broken="lookahead=0,",
    caught_by=("reserved_units_never_run_out", "retraction_is_necessary"),
)

bug(
    "B72",
    "sglang pull 26607: a prompt longer than the SWA pool was rejected, although that pool keeps a window of it only",
    at=f"{ENGINE}._why_impossible",
    healthy="if not pool.holds(needed):",
    broken="if needed > pool.num_pages:",
    caught_by=("rejected_requests_cannot_run",),
)

bug(
    "S40",
    "a demand in whole pages, rounded down: the page that a chunk begins is not reserved",
    at=f"{DEMAND}:demand_of",
    healthy="firm = {pool.name: pool.firm(extent) for pool in pools}",
    broken="firm = {pool.name: (extent.end - extent.start) // pool.page_size for pool in pools}",
    caught_by=("reservations_cover_taken_units", "reserved_units_never_run_out", "reservations_match_planner"),
)

bug(
    "S41",
    "a prompt that fills the pool to its last page is accepted, although its first output token has no page",
    at=f"{ENGINE}._why_impossible",
    healthy="needed = num_pages(request.prompt_len + 1 + config.lookahead_tokens, config.page_size)",
    broken="needed = num_pages(request.prompt_len, config.page_size)",
    caught_by=("impossible_requests_are_rejected",),
)

bug(
    "S42",
    "a chunk starts at the end of the shared part, not of the launched part: a begun page is computed twice",
    at=f"{ADMISSION}.plan_chunk",
    healthy="self._extent(request, record.launched_len,",
    broken="self._extent(request, record.protected_len,",
    caught_by=(
        "requests_resume_where_they_stopped",
        "launches_match_reservations",
        "cursors_are_ordered",
        "launched_tokens_are_in_flight",
    ),
)

bug(
    "S43",
    "admission counts pages as evictable that the lock on the matched prefix is about to protect",
    at=f"{ADMISSION}.plan_new",
    healthy="budget.fits(demand.total, besides=wish.to_lock)",
    broken="budget.fits(demand.total, besides=dict.fromkeys(demand.total, 0))",
    caught_by=("reserved_units_never_run_out", "admission_matches_planner", "reservations_match_planner"),
)

bug(
    "S45",
    "the queue is in arrival order only, so a request waits behind requests of lower priority",
    at="swarden.engine_under_test.scheduler.queues:WaitingQueue.in_order",
    healthy="return sorted(requests, key=lambda request: -request.priority)",
    broken="return requests",
    caught_by=("admission_follows_queue_order", "preemption_serves_higher_priority", "preemptor_is_admitted_at_once"),
)

bug(
    "S46",
    "the estimate subtracts the ratio from the output length instead of multiplying by it: few requests are admitted",
    at=f"{COMPONENTS}:FullAttention.demand",
    healthy="extent.new_len * ratio",
    broken="extent.new_len - ratio",
    caught_by=("reservations_match_planner", "admission_matches_planner"),
)

bug(
    "S47",
    "the budget counts firm pages among the estimated pages too, so a request that fits waits",
    at=f"{DEMAND}:Budget.reserve",
    healthy="self.estimated[pool] += demand.total[pool] - count",
    broken="self.estimated[pool] += demand.total[pool]",
    caught_by=("admission_matches_planner",),
)

bug(
    "S48",
    "in a mixed batch the decodes do not count against the tokens of a step: a chunk takes all of them",
    at=f"{ADMISSION}.new_budget",
    healthy="tokens -= len(self.decodable(running))",
    broken="pass",
    caught_by=("mixed_passes_stay_within_chunk_len", "reservations_match_planner", "admission_matches_planner"),
)
