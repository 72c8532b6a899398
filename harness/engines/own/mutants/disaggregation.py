"""Bugs of prefill and decode on engines of their own."""

from functools import partial

from harness.core.mutant import Hunk, Mutant

PREFILL = "engine_under_test.disaggregation.prefill:PrefillSide"
DECODE = "engine_under_test.disaggregation.decode:DecodeSide"
INCOMING = "engine_under_test.disaggregation.decode:Incoming"
in_a_pair = partial(Mutant, machine="pd")

WHOLE_PROMPT_TAKEN_FOR_DECODE = in_a_pair(
    id="B73",
    source="sglang pulls 24036 and 24857: the decode side took windowed pages for the whole prompt",
    hunks=(Hunk(f"{DECODE}._reserve", healthy="num_windowed=tail", broken="num_windowed=count"),),
    caught_by=(
        "reserved_pages_cover_the_prompt",
        "decode_reserves_only_missing_pages",
        "empty_decode_engine_reserves_at_once",
    ),
)
TAIL_WITHOUT_ITS_FLAG = in_a_pair(
    id="B75",
    source="sglang pull 25419: eviction did not know that only a prompt's tail had windowed pages",
    hunks=(Hunk(f"{DECODE}._reserve", healthy="one.length, frontier)", broken="one.length, 0)"),),
    caught_by=("private_pages_match_frontier", "AccountingError"),
)
WHOLE_PROMPT_PRICED = in_a_pair(
    id="B78",
    source="sglang pull 37506: a preallocation priced the whole prompt in every pool, and what fitted was refused",
    hunks=(
        Hunk(
            f"{DECODE}._make_room_for",
            healthy="self._fits(need,",
            broken="self._fits(dict.fromkeys(need, max(need.values())),",
        ),
    ),
    caught_by=("empty_decode_engine_reserves_at_once",),
)
WINDOW_IS_NOT_SENT = in_a_pair(
    id="B80",
    source="sglang pull 30461: the window of one kind of layers was not transferred, and readers found what was there",
    hunks=(
        Hunk(
            f"{DECODE}._make_room_for",
            healthy="one.missing[pool.name] = set(due)",
            broken="one.missing[pool.name] = set(due) if pool.window is None else set()",
        ),
    ),
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)
PREFIX_WINDOW_CHARGED_WHOLE = in_a_pair(
    id="S163",
    source="found here by random traffic: the window of a cached prefix was locked though its prompt reads a later one",
    hunks=(Hunk(f"{DECODE}._make_room_for", healthy="frontier=frontier", broken="frontier=0"),),
    caught_by=("empty_decode_engine_reserves_at_once",),
)
LET_GO_BEFORE_IT_HAS_COME = in_a_pair(
    id="S164",
    source="a prefill side that gives its pages back when all is sent, not when it has come",
    hunks=(
        Hunk(
            f"{PREFILL}.inherits",
            healthy="self._link.send(one.finale)",
            broken="self._link.send(one.finale)\n    self._scheduler.custody.departures.release(record, cause='sent')",
        ),
    ),
    caught_by=("transfers_keep_pages_until_released", "unit_has_one_owner", "rows_match_their_records"),
)
ABORTED_IN_TRANSFER_STAYS = in_a_pair(
    id="S165",
    source="sglang issue 9817: an abort while a prompt was on its way left what was reserved for it behind",
    hunks=(
        Hunk(
            f"{DECODE}.ended",
            healthy="self._scheduler.custody.departures.release(one.record, cause=reason)",
            broken="pass",
        ),
    ),
    caught_by=("unit_has_one_owner", "transfers_keep_pages_until_released", "pools_conserve_units"),
)
REFUSED_ROOM_KEEPS_ITS_LOCK = in_a_pair(
    id="S166",
    source="sglang pull 26218: the lock on a matched prefix was not given back where no room could be had behind it",
    hunks=(Hunk(f"{DECODE}._reserve", healthy="self._cache.unlock(receipt)", broken="pass"),),
    caught_by=("node_locks_match_receipts", "receipts_match_records", "drained_engine_is_empty"),
)
TAKEN_OVER_WITH_PAGES_MISSING = in_a_pair(
    id="S167",
    source="a decode that begins when the last message has come, though some before it have not",
    hunks=(Hunk(f"{INCOMING}.is_whole", healthy="not any(self.missing.values()) and", broken="True and"),),
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)
SHARED_WITHOUT_ITS_WINDOW = in_a_pair(
    id="S168",
    source="found here by random traffic: what came of a window was published up to where more of it would be read",
    hunks=(
        Hunk(
            f"{DECODE}.withholds",
            healthy="return window is not None and",
            broken="return False and window is not None and",
        ),
    ),
    caught_by=("published_prefixes_match", "locked_nodes_stay_live", "locked_windows_are_live"),
)
SENT_FROM_WHERE_IT_WAS_BEFORE = in_a_pair(
    id="S169",
    source="pages that are read for the other side one place too early, from the second chunk on",
    hunks=(
        Hunk(
            f"{PREFILL}._ship",
            healthy="record.handles[first : first + count]",
            broken="record.handles[max(0, first - 1) : first + count - (first > 0)]",
        ),
    ),
    caught_by=("sent_pages_are_held", "slots_hold_their_prefix"),
)
LATE_COMERS_FIRST = in_a_pair(
    id="S170",
    source="a queue for room that is served from its end",
    hunks=(
        Hunk(
            f"{DECODE}.take_in",
            healthy="self._queue[request.room] = one",
            broken="self._queue = {request.room: one, **self._queue}",
        ),
    ),
    caught_by=("reservations_follow_arrival_order",),
)
COMES_BACK_AT_ITS_PROMPT = in_a_pair(
    id="S171",
    source="a decode that comes back from where it was set aside as if it had said nothing yet",
    hunks=(
        Hunk(
            f"{INCOMING}.length",
            healthy="self.request.prompt_len if self.aside is None else len(self.request.tokens) - 1",
            broken="self.request.prompt_len",
        ),
    ),
    caught_by=("taken_over_len_was_computed", "requests_resume_where_they_stopped", "launches_match_reservations"),
)
FILLED_ONE_PLACE_OFF = in_a_pair(
    id="S172",
    source="what comes of the second page and on is written one page before its own",
    hunks=(
        Hunk(
            "engine_under_test.disaggregation.payload:write_pages",
            healthy="[handles[index] for index in wanted]",
            broken="[handles[max(0, index - 1)] for index in wanted]",
        ),
    ),
    caught_by=("filled_pages_were_reserved", "slots_hold_their_prefix"),
)
SET_ASIDE_AND_FORGOTTEN = in_a_pair(
    id="S173",
    source="a decode that gave its pages back and stands in no queue",
    hunks=(
        Hunk(f"{DECODE}.sets_aside", healthy="self._aside[request.room] = Incoming(request, aside)", broken="pass"),
    ),
    caught_by=("set_aside_requests_are_kept",),
)
GIVEN_BACK_WITHOUT_A_WORD = in_a_pair(
    id="S174",
    source="what was reserved for a request that ended is given back, and whoever watches is not told",
    hunks=(Hunk(f"{DECODE}.ended", healthy="self._notice(LetGo(request.id, reason))", broken="pass"),),
    caught_by=("transfers_keep_pages_until_released",),
)
