"""Bugs of admission: reservations, their requests, and rejections."""

from harness.core.mutant import Hunk, Mutant

ADMISSION = "engine_under_test.scheduler.admission:Admission"
COMPONENTS = "engine_under_test.components"
DEMAND = "engine_under_test.scheduler.demand"
ENGINE = "engine_under_test.engine:Engine"
ESCAPE = "if not alone or most <= 0:"

CHUNK_BEYOND_THE_ROOM = Mutant(
    id="B30",
    source="sglang pull 23174: a chunk was not capped by what the SWA pool had left, nor was a page kept in reserve",
    hunks=(
        Hunk(
            f"{ADMISSION}.plan_chunk",
            healthy="    if min(capacity, budget.tokens) <= 0:\n        return None\n",
            broken="    capacity = budget.tokens\n",
        ),
    ),
    caught_by=("reserved_units_never_run_out", "reservations_match_planner", "admission_matches_planner"),
)

ADMISSION_THAT_NEVER_PASSES = Mutant(
    id="B34",
    source="sglang issue 31205: a demand larger than the SWA pool could never be met, and blocked the requests "
    "behind it",
    hunks=(
        Hunk(f"{ADMISSION}.plan_new", healthy=ESCAPE, broken="if True:"),
        Hunk(
            f"{ADMISSION}._longest_chunk",
            healthy="return min([extent.end - extent.start, *lengths])",
            broken="return extent.end - extent.start",
        ),
    ),
    caught_by=("work_makes_progress", "admission_matches_planner"),
)

WHOLE_WINDOW_FOR_A_SHORT_RESUME = Mutant(
    id="B35",
    source="sglang issue 32379: a request that continued on a cached prefix was charged a whole window, and never "
    "admitted",
    hunks=(
        Hunk(f"{ADMISSION}.plan_new", healthy=ESCAPE, broken="if True:"),
        Hunk(
            f"{COMPONENTS}:Component.demand_len",
            healthy="self._headroom(extent)",
            broken="self._seen + align_up(extent.lookahead, self.page_size) + self.page_size",
        ),
    ),
    caught_by=(
        "work_makes_progress",
        "waiting_requests_take_free_places",
        "admission_matches_planner",
        "reservations_match_planner",
    ),
)

DECODES_BESIDE_A_PREFILL_ARE_NOT_PAID_FOR = Mutant(
    id="B38",
    source="sglang issue 35338: in a mixed batch the pages of the decoding requests were not in the SWA budget",
    hunks=(
        Hunk(
            f"{ADMISSION}.new_budget",
            healthy="for one in running:",
            broken="for one in () if self._config.mixed_batches else running:",
        ),
    ),
    caught_by=(
        "reserved_units_never_run_out",
        "reservations_cover_taken_units",
        "admission_matches_planner",
        "reservations_match_planner",
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
    ),
)

DRAFTS_ARE_NOT_IN_THE_NEED = Mutant(
    id="B42",
    source="sglang pull 14939: the need of a decode step left out the lookahead tokens of speculation",
    hunks=(
        Hunk(
            f"{ADMISSION}.decode_need",
            healthy="lookahead=config.lookahead_tokens,",
            broken="lookahead=0,",
        ),
    ),
    caught_by=("reserved_units_never_run_out", "retraction_is_necessary"),
)

LONG_PROMPTS_REFUSED = Mutant(
    id="B72",
    source="sglang pull 26607: a prompt longer than the SWA pool was rejected, although that pool keeps a window of "
    "it only",
    hunks=(
        Hunk(
            f"{ENGINE}._why_impossible",
            healthy="if not pool.holds(needed):",
            broken="if needed > pool.num_pages:",
        ),
    ),
    caught_by=("rejected_requests_cannot_run",),
)

BEGUN_PAGES_COUNT_AS_WHOLE = Mutant(
    id="S40",
    source="a demand in whole pages, rounded down: the page that a chunk begins is not reserved",
    hunks=(
        Hunk(
            f"{DEMAND}:demand_of",
            healthy="firm = {pool.name: pool.firm(extent) for pool in pools}",
            broken="firm = {pool.name: (extent.end - extent.start) // pool.page_size for pool in pools}",
        ),
    ),
    caught_by=("reservations_cover_taken_units", "reserved_units_never_run_out", "reservations_match_planner"),
)

FIRST_OUTPUT_TOKEN_IS_FORGOTTEN = Mutant(
    id="S41",
    source="a prompt that fills the pool to its last page is accepted, although its first output token has no page",
    hunks=(
        Hunk(
            f"{ENGINE}._why_impossible",
            healthy="needed = num_pages(request.prompt_len + 1 + config.lookahead_tokens, config.page_size)",
            broken="needed = num_pages(request.prompt_len, config.page_size)",
        ),
    ),
    caught_by=("impossible_requests_are_rejected",),
)

CHUNK_IS_COMPUTED_AGAIN = Mutant(
    id="S42",
    source="a chunk starts at the end of the shared part, not of the launched part: a begun page is computed twice",
    hunks=(
        Hunk(
            f"{ADMISSION}.plan_chunk",
            healthy="self._extent(request, record.launched_len,",
            broken="self._extent(request, record.protected_len,",
        ),
    ),
    caught_by=(
        "requests_resume_where_they_stopped",
        "launches_match_reservations",
        "cursors_are_ordered",
        "launched_tokens_are_in_flight",
    ),
)

PAGES_TO_LOCK_ARE_PROMISED_TOO = Mutant(
    id="S43",
    source="admission counts pages as evictable that the lock on the matched prefix is about to protect",
    hunks=(
        Hunk(
            f"{ADMISSION}.plan_new",
            healthy="budget.fits(demand.total, besides=wish.to_lock)",
            broken="budget.fits(demand.total, besides=dict.fromkeys(demand.total, 0))",
        ),
    ),
    caught_by=("reserved_units_never_run_out", "admission_matches_planner", "reservations_match_planner"),
)

IMPORTANCE_IS_NOT_ASKED = Mutant(
    id="S45",
    source="the queue is in arrival order only, so a request waits behind requests of lower priority",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.queues:WaitingQueue.in_order",
            healthy="return sorted(requests, key=lambda request: -request.priority)",
            broken="return requests",
        ),
    ),
    caught_by=(
        "admission_follows_queue_order",
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
    ),
)

OUTPUT_IS_FORESEEN_WHOLE = Mutant(
    id="S46",
    source="the estimate subtracts the ratio from the output length instead of multiplying by it: few requests are "
    "admitted",
    hunks=(
        Hunk(f"{COMPONENTS}:FullAttention.demand", healthy="extent.new_len * ratio", broken="extent.new_len - ratio"),
    ),
    caught_by=("reservations_match_planner", "admission_matches_planner"),
)

FIRM_PAGES_ARE_FORESEEN_TOO = Mutant(
    id="S47",
    source="the budget counts firm pages among the estimated pages too, so a request that fits waits",
    hunks=(
        Hunk(
            f"{DEMAND}:Budget.reserve",
            healthy="self.estimated[pool] += demand.total[pool] - count",
            broken="self.estimated[pool] += demand.total[pool]",
        ),
    ),
    caught_by=("admission_matches_planner",),
)

DECODES_ARE_NOT_IN_THE_BUDGET = Mutant(
    id="S48",
    source="in a mixed batch the decodes do not count against the tokens of a step: a chunk takes all of them",
    hunks=(Hunk(f"{ADMISSION}.new_budget", healthy="tokens -= len(self.decodable(running))", broken="pass"),),
    caught_by=("mixed_passes_stay_within_chunk_len", "reservations_match_planner", "admission_matches_planner"),
)
