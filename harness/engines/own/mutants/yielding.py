"""Bugs of retraction, preemption and pauses: the chosen request, the reason, and its state afterwards."""

from harness.core.mutant import Hunk, Mutant

SCHEDULER = "engine_under_test.scheduler.scheduler:Scheduler"

RETRACTED_KEEPS_ITS_KV = Mutant(
    id="S52",
    source="a retraction queues the request again and releases nothing, so no page becomes free",
    hunks=(
        Hunk(
            f"{SCHEDULER}._remove",
            healthy="self.custody.release(request, cause=cause)",
            broken='if cause != "retracted":\n        self.custody.release(request, cause=cause)',
        ),
    ),
    caught_by=(
        "retracted_requests_hold_nothing",
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
    ),
)

ENDED_INSTEAD_OF_RETRACTED = Mutant(
    id="S54",
    source="a shortage ends a running request although a retraction of another one would help",
    hunks=(
        Hunk(
            f"{SCHEDULER}._free_decode_pages", healthy="len(self.active) <= 1 and", broken="len(self.active) <= 99 and"
        ),
    ),
    caught_by=("oom_abort_only_if_alone",),
)

VICTIMS_BY_IMPORTANCE = Mutant(
    id="S60",
    source="a preemption takes the request of the highest priority among those that it may take",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.preempt:victims",
            healthy="key=lambda one: (one.request.priority, -one.request.id)",
            broken="key=lambda one: (-one.request.priority, -one.request.id)",
        ),
    ),
    caught_by=(
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
        "preemption_matches_planner",
    ),
)

EQUALS_ARE_PREEMPTED = Mutant(
    id="S61",
    source="a preemption ignores priorities: requests of equal priority preempt each other",
    hunks=(
        Hunk(
            f"{SCHEDULER}._contention",
            healthy="for one in running if first.priority > one.request.priority + threshold",
            broken="for one in running",
        ),
    ),
    caught_by=(
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
    ),
)

PREEMPTED_IN_VAIN = Mutant(
    id="S62",
    source="requests are preempted although that frees too few pages: the request of higher priority still waits",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.preempt:victims",
            healthy="if not _cover(chosen, lacking):",
            broken="if False:",
        ),
    ),
    caught_by=(
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
    ),
)

SHORT_PROMPTS_GIVE_WAY_FIRST = Mutant(
    id="S65",
    source="a retraction takes the shortest of the prompts with equally few outputs, which frees the fewest pages",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.retract:retraction_order",
            healthy="-request.prompt_len",
            broken="request.prompt_len",
        ),
    ),
    caught_by=("retraction_takes_least_done_request",),
)

NOBODY_GOES_ON_AFTER_A_RETRACTION = Mutant(
    id="S120",
    source="no request is decoded in the step of a retraction, although the retraction freed the pages for it",
    hunks=(Hunk(f"{SCHEDULER}._free_decode_pages", healthy="return not short", broken="return False"),),
    caught_by=("retraction_lets_others_run",),
)

NOBODY_IS_PREEMPTED_WHILE_ONE_IS_LESS_IMPORTANT = Mutant(
    id="S121",
    source="a preemption is given up if there are requests of lower priority, instead of if there are none",
    hunks=(Hunk(f"{SCHEDULER}._contention", healthy="if not rivals:", broken="if rivals:"),),
    caught_by=("preemption_matches_planner",),
)

LOCKS_OF_OTHERS_ARE_COUNTED_TOO = Mutant(
    id="S122",
    source="pages that other requests have locked count as freed by a preemption: too few requests are preempted, in "
    "vain",
    hunks=(
        Hunk(
            "engine_under_test.cache.prefix_cache:PrefixCache.pages_under",
            healthy="if node.live[index] and node.locks[index] == 1",
            broken="if node.live[index] or node.locks[index] == 1",
        ),
    ),
    caught_by=(
        "preemption_serves_higher_priority",
        "preemptor_is_admitted_at_once",
    ),
)

PAUSE_WITHOUT_A_WORD = Mutant(
    id="S123",
    source="a pause emits no event",
    hunks=(Hunk(f"{SCHEDULER}.pause", healthy="self._notice(events.Paused())", broken="pass"),),
    caught_by=("paused_engine_launches_nothing", "pauses_are_reported", "paused_engine_holds_nothing"),
)

RESUMED_WITHOUT_A_WORD = Mutant(
    id="S124",
    source="the end of a pause emits no event",
    hunks=(Hunk(f"{SCHEDULER}.resume", healthy="self._notice(events.Resumed())", broken="pass"),),
    caught_by=("paused_engine_launches_nothing", "pauses_are_reported", "paused_engine_holds_nothing"),
)

ENDED_WHILE_ITS_VICTIM_IS_COPIED = Mutant(
    id="S156",
    source="found here by random traffic: the last request ran out of memory while evicted pages were on their way "
    "to the host",
    hunks=(
        Hunk(
            f"{SCHEDULER}._free_decode_pages",
            healthy="_for_decode()) and not self.loading.under_way",
            broken="_for_decode())",
        ),
        Hunk(
            f"{SCHEDULER}._free_decode_pages",
            healthy="if short and self.running and not self.loading.under_way",
            broken="if short",
        ),
        Hunk(f"{SCHEDULER}._settle", healthy="return not self.loading.under_way", broken="return True"),
    ),
    caught_by=("oom_abort_only_if_alone",),
)

ONLY_GROWTH_IS_COUNTED = Mutant(
    id="S197",
    source="the pages that a preempted request would free are not counted: a more important request waits for them",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.preempt:Yield.of",
            healthy="self.own.get(pool, 0) + self.growth.get(pool, 0)",
            broken="self.growth.get(pool, self.own.get(pool, 0))",
        ),
    ),
    caught_by=("preemption_matches_planner",),
)
