"""Bugs of retraction, preemption and pauses: the chosen request, the reason, and its state afterwards."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

SCHEDULER = "swarden.engine_under_test.scheduler.scheduler:Scheduler"

bug(
    "S52",
    "a retraction queues the request again and releases nothing, so no page becomes free",
    at=f"{SCHEDULER}._remove",
    healthy="self.custody.release(request, cause=cause)",
    broken='if cause != "retracted":\n        self.custody.release(request, cause=cause)',
    caught_by=(
        "retracted_requests_hold_nothing",
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
    ),
)

bug(
    "S54",
    "a shortage ends a running request although a retraction of another one would help",
    at=f"{SCHEDULER}._free_decode_pages",
    healthy="len(self.active) <= 1 and",
    broken="len(self.active) <= 99 and",
    caught_by=("oom_abort_only_if_alone",),
)

bug(
    "S60",
    "a preemption takes the request of the highest priority among those that it may take",
    at="swarden.engine_under_test.scheduler.preempt:victims",
    healthy="key=lambda candidate: (candidate.request.priority, -candidate.request.id)",
    broken="key=lambda candidate: (-candidate.request.priority, -candidate.request.id)",
    caught_by=("preemption_serves_higher_priority", "preemptor_is_admitted_at_once", "preemption_matches_planner"),
)

bug(
    "S61",
    "a preemption ignores priorities: requests of equal priority preempt each other",
    at=f"{SCHEDULER}._contention",
    healthy="for run in running if first.priority > run.request.priority + threshold",
    broken="for run in running",
    caught_by=("preemption_serves_higher_priority", "preemptor_is_admitted_at_once"),
)

bug(
    "S62",
    "requests are preempted although that frees too few pages: the request of higher priority still waits",
    at="swarden.engine_under_test.scheduler.preempt:victims",
    healthy="if not _cover(chosen, lacking):",
    broken="if False:",
    caught_by=("preemption_serves_higher_priority", "preemptor_is_admitted_at_once"),
)

bug(
    "S65",
    "a retraction takes the shortest of the prompts with equally few outputs, which frees the fewest pages",
    at="swarden.engine_under_test.scheduler.preempt:retraction_order",
    healthy="-request.prompt_len",
    broken="request.prompt_len",
    caught_by=("retraction_takes_least_done_request",),
)

bug(
    "S120",
    "no request is decoded in the step of a retraction, although the retraction freed the pages for it",
    at=f"{SCHEDULER}._free_decode_pages",
    healthy="return not short",
    broken="return False",
    caught_by=("retraction_lets_others_run",),
)

bug(
    "S121",
    "a preemption is given up if there are requests of lower priority, instead of if there are none",
    at=f"{SCHEDULER}._contention",
    healthy="if not rivals:",
    broken="if rivals:",
    caught_by=("preemption_matches_planner",),
)

bug(
    "S122",
    "pages that other requests have locked count as freed by a preemption: too few requests are preempted, in vain",
    at="swarden.engine_under_test.cache.prefix_cache:PrefixCache.pages_under",
    healthy="if node.live[index] and node.locks[index] == 1",
    broken="if node.live[index] or node.locks[index] == 1",
    caught_by=("preemption_serves_higher_priority", "preemptor_is_admitted_at_once"),
)

bug(
    "S123",
    "a pause emits no event",
    at=f"{SCHEDULER}.pause",
    healthy="self._notice(events.Paused())",
    broken="pass",
    caught_by=("paused_engine_launches_nothing", "pauses_are_reported", "paused_engine_holds_nothing"),
)

bug(
    "S124",
    "the end of a pause emits no event",
    at=f"{SCHEDULER}.resume",
    healthy="self._notice(events.Resumed())",
    broken="pass",
    caught_by=("paused_engine_launches_nothing", "pauses_are_reported", "paused_engine_holds_nothing"),
)

bug(
    "S156",
    "found here by random traffic: the last request ran out of memory while evicted pages were on their way "
    "to the host",
    Hunk(f"{SCHEDULER}._free_decode_pages", "_for_decode()) and not self.loading.under_way", "_for_decode())"),
    Hunk(f"{SCHEDULER}._free_decode_pages", "if short and self.running and not self.loading.under_way", "if short"),
    Hunk(f"{SCHEDULER}._settle", "return not self.loading.under_way", "return True"),
    caught_by=("oom_abort_only_if_alone",),
)

bug(
    "S197",
    "the pages that a preempted request would free are not counted: a more important request waits for them",
    at="swarden.engine_under_test.scheduler.preempt:Yield.of",
    healthy="self.own.get(pool, 0) + self.growth.get(pool, 0)",
    broken="self.growth.get(pool, self.own.get(pool, 0))",
    caught_by=("preemption_matches_planner",),
)
