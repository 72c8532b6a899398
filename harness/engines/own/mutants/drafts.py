"""Bugs of speculation: the drafts, the slots of their KV, and the accepted tokens."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

ADMISSION = "swarden.engine_under_test.scheduler.admission:Admission"
SCHEDULER = "swarden.engine_under_test.scheduler.scheduler:Scheduler"
SPECULATION = "swarden.engine_under_test.scheduler.speculation:Speculation"

bug(
    "B62",
    "sglang pull 22897: draft tokens beyond the last output token were kept with their KV",
    at=f"{SCHEDULER}._process",
    healthy="min(entry.end + max(0, len(computed.tokens) - 1), len(request.tokens))",
    broken="entry.end + max(0, len(computed.tokens) - 1)",
    caught_by=("session_keeps_only_delivered_tokens", "published_prefixes_match", "ValueError", "AssertionError"),
)

bug(
    "S198",
    "vllm pull 54979: a page with drafts that the last pass has accepted is not kept when the request ends",
    at=f"{SCHEDULER}._process",
    healthy="self.custody.publish(request, end=record.committed_len)",
    broken="self.custody.publish(request, end=min(record.committed_len, entry.end))",
    caught_by=("ended_requests_leave_their_kv_cached",),
)

bug(
    "S157",
    "every draft is accepted, whatever the model sampled",
    at=f"{SPECULATION}.verify",
    healthy="accepted = num_accepted(entry.drafts, computed.tokens)",
    broken="accepted = len(entry.drafts)",
    caught_by=("accepted_drafts_match_the_model", "right_drafts_are_accepted", "outputs_match_reference"),
)

bug(
    "S158",
    "the launched length is not set to the committed length, so the next pass computes accepted drafts again",
    at=f"{SCHEDULER}._process",
    healthy="if entry.drafts:",
    broken="if False:",
    caught_by=("cursors_are_ordered", "requests_resume_where_they_stopped", "launches_match_reservations"),
)

bug(
    "S159",
    "with overlap a decode is launched behind drafts that the model has not verified yet",
    at=f"{ADMISSION}.decodable",
    healthy="if not self._config.draft_tokens:",
    broken="if True:",
    caught_by=("drafts_are_judged_before_the_next_pass", "slots_hold_their_prefix"),
)

bug(
    "S160",
    "more drafts are proposed than the lookahead has pages for, and all of them are computed",
    Hunk(f"{SPECULATION}.add_drafts", "request.tokens, self.most)", "request.tokens, self.most + 2)"),
    Hunk(f"{SPECULATION}.add_drafts", "self._known(drafts[: self.most])", "self._known(drafts)"),
    caught_by=("drafts_fit_their_allocation", "drafts_follow_one_token", "IndexError", "AccountingError"),
)

bug(
    "S161",
    "a rewind below the frontier lowers it to the new length, inside a page whose windowed part is free",
    Hunk(
        "swarden.engine_under_test.sessions.controller:Session.kept_len",
        "self.record.protected_len <= end and self.record.can_continue(end, pools)",
        "self.record.protected_len <= end",
    ),
    Hunk(
        "swarden.engine_under_test.sessions.controller:Sessions._cut",
        "record.committed_len = record.launched_len = record.allocated_len = length",
        "record.committed_len = record.launched_len = record.allocated_len = length\n"
        "    record.frontiers = {pool: min(one, length) for pool, one in record.frontiers.items()}",
    ),
    caught_by=(
        "cursors_are_page_aligned",
        "private_pages_match_frontier",
        "slots_hold_their_prefix",
        "outputs_match_reference",
        "last_token_keeps_its_page",
        "AccountingError",
    ),
)

bug(
    "S162",
    "all drafts that equal the model's tokens are accepted, also those after a wrong one",
    at="swarden.engine_under_test.scheduler.speculation:num_accepted",
    healthy="return next((position for position, (draft, token) in pairs if draft != token), len(drafts))",
    broken="return sum(draft == token for _, (draft, token) in pairs)",
    caught_by=("accepted_drafts_match_the_model", "right_drafts_are_accepted", "outputs_match_reference"),
)

bug(
    "S175",
    "found here by random traffic: in a mixed batch a request that is not decoded, because its drafts are not "
    "verified yet, still took a token from the chunk",
    at=f"{ADMISSION}.new_budget",
    healthy="len(self.decodable(running))",
    broken="len(running)",
    caught_by=("waiting_requests_take_free_places", "reservations_match_planner", "admission_matches_planner"),
)
