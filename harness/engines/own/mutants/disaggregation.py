"""Bugs of transfers between a prefill engine and a decode engine."""

from functools import partial

from harness.core.mutant import Hunk, Mutant

PREFILL = "engine_under_test.disaggregation.prefill:PrefillSide"
DECODE = "engine_under_test.disaggregation.decode:DecodeSide"
INCOMING = "engine_under_test.disaggregation.decode:Incoming"
in_a_pair = partial(Mutant, machine="pd")

WHOLE_PROMPT_TAKEN_FOR_DECODE = in_a_pair(
    id="B73",
    source="sglang pulls 24036 and 24857: the decode side took windowed pages for the whole prompt",
    hunks=(Hunk(f"{DECODE}._reserve", healthy="places=places", broken="places=None"),),
    caught_by=(
        "reserved_pages_cover_the_prompt",
        "decode_reserves_only_missing_pages",
        "empty_decode_engine_reserves_at_once",
    ),
)
TAIL_WITHOUT_ITS_FLAG = in_a_pair(
    id="B75",
    source="sglang pull 25419: eviction did not know that only a prompt's tail had windowed pages",
    hunks=(Hunk(f"{DECODE}._reserve", healthy="prefix_len, length, frontiers)", broken="prefix_len, length, {})"),),
    caught_by=("private_pages_match_frontier", "AccountingError", "live_nodes_hold_their_pages"),
)
WHOLE_PROMPT_COUNTED = in_a_pair(
    id="B78",
    source="sglang pull 37506: a preallocation counted the whole prompt in every pool, and refused prompts that fit",
    hunks=(
        Hunk(
            f"{DECODE}._begin_transfer",
            healthy="self._fits(need,",
            broken="self._fits(dict.fromkeys(need, max(need.values())),",
        ),
    ),
    caught_by=("empty_decode_engine_reserves_at_once",),
)
WINDOW_IS_NOT_SENT = in_a_pair(
    id="B80",
    source="sglang pull 30461: windowed pages were not transferred, and the decode side read stale ones",
    hunks=(
        Hunk(
            f"{DECODE}._begin_transfer",
            healthy="set(pages) for pool",
            broken="set(pages) if pool == 'full' else set() for pool",
        ),
    ),
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)
PREFIX_WINDOW_CHARGED_WHOLE = in_a_pair(
    id="S163",
    source="found here by random traffic: the window of a cached prefix was locked, but the prompt reads a later one",
    hunks=(Hunk(f"{DECODE}._begin_transfer", healthy="frontiers=frontiers", broken="frontiers={}"),),
    caught_by=("empty_decode_engine_reserves_at_once",),
)
RELEASED_BEFORE_ACKNOWLEDGED = in_a_pair(
    id="S164",
    source="the prefill side releases its pages when all are sent, not when the decode side has them",
    hunks=(
        Hunk(
            f"{PREFILL}.hold_finished",
            healthy="_link.send(outgoing.end)",
            broken="_link.send(outgoing.end)\n    self._scheduler.custody.departures.release(record, cause='sent')",
        ),
    ),
    caught_by=("transfers_keep_pages_until_released", "unit_has_one_owner", "rows_match_their_records"),
)
ABORTED_IN_TRANSFER_STAYS = in_a_pair(
    id="S165",
    source="sglang issue 9817: an abort during a transfer leaked the pages that were reserved for it",
    hunks=(
        Hunk(
            f"{DECODE}.ended",
            healthy="self._scheduler.custody.departures.release(incoming.record, cause=ending.reason)",
            broken="pass",
        ),
    ),
    caught_by=("unit_has_one_owner", "transfers_keep_pages_until_released", "pools_conserve_units"),
)
REFUSED_RESERVATION_KEEPS_ITS_LOCK = in_a_pair(
    id="S166",
    source="sglang pull 26218: the lock on a matched prefix was not released when no pages could be reserved after it",
    hunks=(Hunk(f"{DECODE}._reserve", healthy="self._cache.unlock(receipt)", broken="pass"),),
    caught_by=("node_locks_match_receipts", "receipts_match_records", "drained_engine_is_empty"),
)
STARTED_WITH_PAGES_MISSING = in_a_pair(
    id="S167",
    source="a decode starts when the last message of the transfer arrives, though earlier pages are missing",
    hunks=(Hunk(f"{INCOMING}.is_complete", healthy="not any(self.missing.values()) and", broken="True and"),),
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)
SHARED_WITHOUT_ITS_WINDOW = in_a_pair(
    id="S168",
    source="found here by random traffic: a prefix was published whose match reads windowed pages that never arrived",
    hunks=(
        Hunk(
            f"{DECODE}.is_withheld",
            healthy="return any(record.frontier",
            broken="return False and any(record.frontier",
        ),
    ),
    caught_by=("published_prefixes_match", "locked_nodes_stay_live", "locked_windows_are_live"),
)
SENT_FROM_THE_PAGE_BEFORE = in_a_pair(
    id="S169",
    source="from the second chunk on the pages that are sent are read one index too early",
    hunks=(
        Hunk(
            f"{PREFILL}._send_pages",
            healthy="record.handles[first : first + count]",
            broken="record.handles[max(0, first - 1) : first + count - (first > 0)]",
        ),
    ),
    caught_by=("sent_pages_are_held", "slots_hold_their_prefix"),
)
NEWEST_TRANSFER_FIRST = in_a_pair(
    id="S170",
    source="the queue of requests that wait for pages is served from its end",
    hunks=(
        Hunk(
            f"{DECODE}.add_request",
            healthy="self._queue[request.transfer_id] = incoming",
            broken="self._queue = {request.transfer_id: incoming, **self._queue}",
        ),
    ),
    caught_by=("reservations_follow_arrival_order",),
)
RESTORED_WITHOUT_OUTPUT = in_a_pair(
    id="S171",
    source="a swapped-out request is restored as if it had no output tokens",
    hunks=(
        Hunk(
            f"{INCOMING}.length",
            healthy="self.request.prompt_len if self.swapped_out is None else len(self.request.tokens) - 1",
            broken="self.request.prompt_len",
        ),
    ),
    caught_by=("taken_over_len_was_computed", "requests_resume_where_they_stopped", "launches_match_reservations"),
)
FILLED_ONE_PAGE_OFF = in_a_pair(
    id="S172",
    source="from the second page on arriving pages are written one page too early",
    hunks=(
        Hunk(
            "engine_under_test.disaggregation.payload:write_pages",
            healthy="[handles[index] for index in wanted]",
            broken="[handles[max(0, index - 1)] for index in wanted]",
        ),
    ),
    caught_by=("filled_pages_were_reserved", "slots_hold_their_prefix"),
)
SWAPPED_OUT_AND_LOST = in_a_pair(
    id="S173",
    source="a request was swapped out, and is in no queue",
    hunks=(
        Hunk(
            f"{DECODE}.swap_out",
            healthy="self._swapped_out[request.transfer_id] = Incoming(request, swapped_out)",
            broken="pass",
        ),
    ),
    caught_by=("set_aside_requests_are_kept",),
)
RELEASED_WITHOUT_AN_EVENT = in_a_pair(
    id="S174",
    source="the pages reserved for an ended request are released without an event",
    hunks=(Hunk(f"{DECODE}.ended", healthy="self._notice(LetGo(request.id, ending.reason))", broken="pass"),),
    caught_by=("transfers_keep_pages_until_released",),
)
