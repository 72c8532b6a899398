"""Bugs of transfers between a prefill engine and a decode engine."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants(machine="pd")
bug = MUTANTS.bug

PREFILL = "swarden.engine_under_test.disaggregation.prefill:PrefillSide"
DECODE = "swarden.engine_under_test.disaggregation.decode:DecodeSide"
INCOMING = "swarden.engine_under_test.disaggregation.decode:IncomingRequest"


bug(
    "B73",
    "sglang pulls 24036 and 24857: the decode side took windowed pages for the whole prompt",
    at=f"{DECODE}._reserve",
    healthy="places=places",
    broken="places=None",
    caught_by=(
        "reserved_pages_cover_the_prompt",
        "decode_reserves_only_missing_pages",
        "empty_decode_engine_reserves_at_once",
    ),
)

bug(
    "B75",
    "sglang pull 25419: eviction did not know that only a prompt's tail had windowed pages",
    at=f"{DECODE}._reserve",
    healthy="prefix_len, length, frontiers)",
    broken="prefix_len, length, {})",
    caught_by=("private_pages_match_frontier", "AccountingError", "live_nodes_hold_their_pages"),
)

bug(
    "B78",
    "sglang pull 37506: a preallocation counted the whole prompt in every pool, and refused prompts that fit",
    at=f"{DECODE}._begin_transfer",
    healthy="self._fits(need,",
    broken="self._fits(dict.fromkeys(need, max(need.values())),",
    caught_by=("empty_decode_engine_reserves_at_once",),
)

bug(
    "B80",
    "sglang pull 30461: windowed pages were not transferred, and the decode side read stale ones",
    at=f"{DECODE}._begin_transfer",
    healthy="set(pages) for pool",
    broken="set(pages) if pool == 'full' else set() for pool",
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)

bug(
    "S163",
    "found here by random traffic: the window of a cached prefix was locked, but the prompt reads a later one",
    at=f"{DECODE}._begin_transfer",
    healthy="frontiers=frontiers",
    broken="frontiers={}",
    caught_by=("empty_decode_engine_reserves_at_once",),
)

bug(
    "S164",
    "the prefill side releases its pages when all are sent, not when the decode side has them",
    at=f"{PREFILL}.hold_finished",
    healthy="_link.send(outgoing.end)",
    broken="_link.send(outgoing.end)\n    self._scheduler.custody.departures.release(record, cause='sent')",
    caught_by=("transfers_keep_pages_until_released", "unit_has_one_owner", "rows_match_their_records"),
)

bug(
    "S165",
    "sglang issue 9817: an abort during a transfer leaked the pages that were reserved for it",
    at=f"{DECODE}.ended",
    healthy="self._scheduler.custody.departures.release(incoming.record, cause=ending.reason)",
    broken="pass",
    caught_by=("unit_has_one_owner", "transfers_keep_pages_until_released", "pools_conserve_units"),
)

bug(
    "S166",
    "sglang pull 26218: the lock on a matched prefix was not released when no pages could be reserved after it",
    at=f"{DECODE}._reserve",
    healthy="self._cache.unlock(receipt)",
    broken="pass",
    caught_by=("node_locks_match_receipts", "receipts_match_records", "drained_engine_is_empty"),
)

bug(
    "S167",
    "a decode starts when the last message of the transfer arrives, though earlier pages are missing",
    at=f"{INCOMING}.is_complete",
    healthy="not any(self.missing.values()) and",
    broken="True and",
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)

bug(
    "S168",
    "found here by random traffic: a prefix was published whose match reads windowed pages that never arrived",
    at=f"{DECODE}.is_withheld",
    healthy="return any(record.frontier",
    broken="return False and any(record.frontier",
    caught_by=("published_prefixes_match", "locked_nodes_stay_live", "locked_windows_are_live"),
)

bug(
    "S169",
    "from the second chunk on the pages that are sent are read one index too early",
    at=f"{PREFILL}._send_pages",
    healthy="record.handles[first : first + count]",
    broken="record.handles[max(0, first - 1) : first + count - (first > 0)]",
    caught_by=("sent_pages_are_held", "slots_hold_their_prefix"),
)

bug(
    "S170",
    "the queue of requests that wait for pages is served from its end",
    at=f"{DECODE}.add_request",
    healthy="self._queue[request.transfer_id] = incoming",
    broken="self._queue = {request.transfer_id: incoming, **self._queue}",
    caught_by=("reservations_follow_arrival_order",),
)

bug(
    "S171",
    "a swapped-out request is restored as if it had no output tokens",
    at=f"{INCOMING}.length",
    healthy="self.request.prompt_len if self.swapped_out is None else len(self.request.tokens) - 1",
    broken="self.request.prompt_len",
    caught_by=("taken_over_len_was_computed", "requests_resume_where_they_stopped", "launches_match_reservations"),
)

bug(
    "S172",
    "from the second page on arriving pages are written one page too early",
    at="swarden.engine_under_test.disaggregation.payload:write_pages",
    healthy="[handles[index] for index in wanted]",
    broken="[handles[max(0, index - 1)] for index in wanted]",
    caught_by=("filled_pages_were_reserved", "slots_hold_their_prefix"),
)

bug(
    "S173",
    "a request was swapped out, and is in no queue",
    at=f"{DECODE}.swap_out",
    healthy="self._swapped_out[request.transfer_id] = IncomingRequest(request, swapped_out)",
    broken="pass",
    caught_by=("set_aside_requests_are_kept",),
)

bug(
    "S174",
    "the pages reserved for an ended request are released without an event",
    at=f"{DECODE}.ended",
    healthy="self._notice(LetGo(request.id, ending.reason))",
    broken="pass",
    caught_by=("transfers_keep_pages_until_released",),
)

bug(
    "S210",
    "sglang pull 29471: a restore writes the pages of the cached prefix, too, with the content that they have",
    at=f"{DECODE}._begin_transfer",
    healthy="incoming.missing = {pool: set(pages) for pool, pages in due.items()}",
    broken="whole = payload.all_pages_due(self._memory, prefix_len=0, length=incoming.length)\n"
    "    incoming.missing = {\n"
    "        pool: set(pages if incoming.swapped_out is None else whole[pool]) for pool, pages in due.items()\n"
    "    }",
    caught_by=("copies_go_to_private_units",),
)

bug(
    "S220",
    "vllm pull 50558: the decode side awaits a page for the first output token, which is not sent",
    at=f"{DECODE}._begin_transfer",
    healthy="{pool: set(pages) for",
    broken="{pool: {*pages, incoming.length // self._memory.page_size} for",
    caught_by=("awaited_pages_are_due",),
)

bug(
    "S221",
    "the prefill side takes the page that a chunk has begun for sent, so the transfer is never complete",
    at=f"{PREFILL}.published",
    healthy="pages.stop * self._memory.page_size",
    broken="(pages.stop + 1) * self._memory.page_size",
    caught_by=("due_transfers_are_taken_over",),
)

bug(
    "S231",
    "as vllm pull 18632: a decode side that reads no KV, or ends at once, never says that it needs nothing more",
    Hunk(
        f"{DECODE}._join_complete",
        "swapped_out is None:",
        "swapped_out is None and record.protected_len < incoming.length and incoming.request.tokens_left > 1:",
    ),
    Hunk(
        f"{DECODE}._receive_without_transfer",
        "elif is_accepted and",
        "elif message.transfer_id in self._close_reasons and",
    ),
    caught_by=("delivered_transfers_never_time_out",),
)

bug(
    "S246",
    "sglang pull 30551: the prefill side ends a transfer, and does not close it",
    at=f"{PREFILL}.ended",
    healthy="self._close(request.transfer_id, str(ending))",
    broken="pass",
    caught_by=("failed_transfers_end_on_both_sides",),
)
