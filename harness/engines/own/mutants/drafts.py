"""Bugs of speculation: the drafts, the slots of their KV, and the accepted tokens."""

from harness.core.mutant import Hunk, Mutant

ADMISSION = "engine_under_test.scheduler.admission:Admission"
SCHEDULER = "engine_under_test.scheduler.scheduler:Scheduler"
SPECULATION = "engine_under_test.scheduler.speculation:Speculation"

OVERSHOOT_IS_NOT_TRIMMED = Mutant(
    id="B62",
    source="sglang pull 22897: draft tokens beyond the last output token were kept with their KV",
    hunks=(
        Hunk(
            f"{SCHEDULER}._process",
            healthy="min(entry.end + max(0, len(computed.tokens) - 1), len(request.tokens))",
            broken="entry.end + max(0, len(computed.tokens) - 1)",
        ),
    ),
    caught_by=("session_keeps_only_delivered_tokens", "published_prefixes_match", "ValueError", "AssertionError"),
)
EVERY_DRAFT_COUNTS = Mutant(
    id="S157",
    source="every draft is accepted, whatever the model sampled",
    hunks=(
        Hunk(
            f"{SPECULATION}.verify",
            healthy="accepted = num_accepted(entry.drafts, computed.tokens)",
            broken="accepted = len(entry.drafts)",
        ),
    ),
    caught_by=("accepted_drafts_match_the_model", "right_drafts_are_accepted", "outputs_match_reference"),
)
DRAFTS_COUNT_BUT_THE_NEXT_PASS_BEGINS_BEFORE_THEM = Mutant(
    id="S158",
    source="the launched length is not set to the committed length, so the next pass computes accepted drafts again",
    hunks=(Hunk(f"{SCHEDULER}._process", healthy="if entry.drafts:", broken="if False:"),),
    caught_by=("cursors_are_ordered", "requests_resume_where_they_stopped", "launches_match_reservations"),
)
GOES_ON_FROM_A_GUESS = Mutant(
    id="S159",
    source="with overlap a decode is launched behind drafts that the model has not verified yet",
    hunks=(Hunk(f"{ADMISSION}.decodable", healthy="if not self._config.draft_tokens:", broken="if True:"),),
    caught_by=("drafts_are_judged_before_the_next_pass", "slots_hold_their_prefix"),
)
MORE_DRAFTS_THAN_ROOM = Mutant(
    id="S160",
    source="more drafts are proposed than the lookahead has pages for, and all of them are computed",
    hunks=(
        Hunk(f"{SPECULATION}.add_drafts", healthy="one.tokens, self.most)", broken="one.tokens, self.most + 2)"),
        Hunk(f"{SPECULATION}.add_drafts", healthy="self._known(drafts[: self.most])", broken="self._known(drafts)"),
    ),
    caught_by=("drafts_fit_their_allocation", "drafts_follow_one_token", "IndexError", "AccountingError"),
)
UNALIGNED_CLAMP = Mutant(
    id="S161",
    source="a rewind below the frontier lowers it to the new length, inside a page whose windowed part is free",
    hunks=(
        Hunk(
            "engine_under_test.sessions.session:Session.kept_len",
            healthy="self.record.protected_len <= end and self.record.can_continue(end, pools)",
            broken="self.record.protected_len <= end",
        ),
        Hunk(
            "engine_under_test.sessions.controller:Sessions._cut",
            healthy="record.committed_len = record.launched_len = record.allocated_len = length",
            broken="record.committed_len = record.launched_len = record.allocated_len = length\n"
            "    record.frontiers = {pool: min(one, length) for pool, one in record.frontiers.items()}",
        ),
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
DRAFTS_BEHIND_A_WRONG_ONE_COUNT = Mutant(
    id="S162",
    source="all drafts that equal the model's tokens are accepted, also those after a wrong one",
    hunks=(
        Hunk(
            "engine_under_test.speculative.verify:num_accepted",
            healthy="return next((position for position, (draft, token) in pairs if draft != token), len(drafts))",
            broken="return sum(draft == token for _, (draft, token) in pairs)",
        ),
    ),
    caught_by=("accepted_drafts_match_the_model", "right_drafts_are_accepted", "outputs_match_reference"),
)
WHO_WAITS_FOR_A_VERDICT_TAKES_A_TOKEN = Mutant(
    id="S175",
    source="found here by random traffic: in a mixed batch a request that is not decoded, because its drafts are not "
    "verified yet, still took a token from the chunk",
    hunks=(Hunk(f"{ADMISSION}.new_budget", healthy="len(self.decodable(running))", broken="len(running)"),),
    caught_by=("waiting_requests_take_free_places", "reservations_match_planner", "admission_matches_planner"),
)
