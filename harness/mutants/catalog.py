"""The historical bugs that are planted, by the number under which this project knows them."""

from harness.mutants.mutant import Hunk, Mutant

ADMISSION = "engine_under_test.scheduler.admission:Admission"
SCHEDULER = "engine_under_test.scheduler.scheduler:Scheduler"
TREE = "engine_under_test.cache.tree:RadixTree"
PAIRED = "engine_under_test.pools.paired:PairedLedgers"

CHUNK_BEYOND_THE_ROOM = Mutant(
    id="B30",
    source="sglang pull 23174: a chunk was not capped by what the SWA pool had left, nor was a page kept in reserve",
    hunks=(
        Hunk(
            f"{ADMISSION}.plan_chunk",
            healthy="    if min(room, book.budget) <= 0:\n        return None\n",
            broken="    room = book.budget\n",
        ),
    ),
    caught_by=("admitted_work_never_runs_out",),
)

PARKED_CHUNK_COUNTS_AS_COMPUTED = Mutant(
    id="B31",
    source="sglang issues 24252, 24275, 24318: parking advanced the computed end, so junk was published",
    hunks=(
        Hunk(
            f"{SCHEDULER}._plan_chunk",
            healthy="if planned is None:\n",
            broken="if planned is None:\n        record.allocated_len += 1\n        record.committed_len += 1\n",
        ),
    ),
    caught_by=(
        "batches_are_well_formed",
        "every_slot_read_holds_its_prefix",
        "cursors_are_ordered",
        "rows_hold_the_pages_of_their_record",
        "locks_cover_what_is_read",
        "computation_goes_on_where_it_stopped",
    ),
)

RECOVERY_OVER_A_LOCKED_NODE = Mutant(
    id="B18",
    source="sglang pull 29352: recovering a tombstone freed the full pages that another request had locked",
    hunks=(
        Hunk(
            f"{TREE}._recover",
            healthy="locked = self.windowed != 0 and node.locks[0] > 0",
            broken="locked = False",
        ),
    ),
    caught_by=(
        "each_unit_has_one_owner",
        "rows_begin_with_the_tree_path",
        "units_move_only_by_their_owner",
        "every_slot_read_holds_its_prefix",
    ),
)

PAGE_LARGER_THAN_WINDOW = Mutant(
    id="B14",
    source="sglang pull 22470: with a page above the window the last page to be published was dead already",
    hunks=(
        Hunk(
            "engine_under_test.cache.window:kept_len",
            healthy="return align_up(max(lookback(window), page_size), page_size)",
            broken="return lookback(window)",
        ),
    ),
    caught_by=("inserted_prefixes_match", "live_nodes_hold_live_pages", "frontiers_spare_the_window"),
)

REFUSED_TAKE_KEEPS_PAGES = Mutant(
    id="B8",
    source="sglang issue 35338: a decode took its full page, found no SWA page, and rolled nothing back",
    hunks=(
        Hunk(
            f"{PAIRED}.take",
            healthy="for ledger in self.ledgers:",
            broken="for ledger in self.ledgers[:1]:",
        ),
    ),
    caught_by=("a_refused_take_changes_nothing", "each_unit_has_one_owner", "the_model_agrees"),
    machine="ledger",
)

ADMISSION_THAT_NEVER_PASSES = Mutant(
    id="B34",
    source="sglang issue 31205: a demand above the SWA pool could never be met, and blocked everyone behind it",
    hunks=(
        Hunk(f"{ADMISSION}.plan_new", healthy="if not alone or pages <= 0:", broken="if True:"),
        Hunk(
            f"{ADMISSION}._longest_chunk",
            healthy="return min([extent.end - extent.start, *lengths])",
            broken="return extent.end - extent.start",
        ),
    ),
    caught_by=("work_makes_progress",),
)

PEER_OUTLIVES_ITS_PAGE = Mutant(
    id="B3",
    source="sglang pull 27779: freeing the SWA part of a page cleared the map for some of its tokens only",
    hunks=(
        Hunk(
            f"{PAIRED}._free_peers",
            healthy="self._pair(follower, handles, [NO_PAGE] * len(handles))",
            broken="self._pair(follower, handles[1:], [NO_PAGE] * len(handles[1:]))",
        ),
    ),
    caught_by=(
        "peers_are_one_to_one_and_live",
        "live_nodes_hold_live_pages",
        "a_free_unit_has_no_peer",
        "each_unit_has_one_owner",
        "the_model_agrees",
        "windowed_pages_go_with_the_frontier",
    ),
)

CHUNKED_REQUEST_RUNS_TOO = Mutant(
    id="B46",
    source="sglang issues 1787, 1837 and 1858: a request with an unfinished chunk was merged into the running batch",
    hunks=(
        Hunk(
            f"{SCHEDULER}._take_in",
            healthy="    self.chunked = request\n",
            broken="    self.chunked = request\n            self.running.append(request)\n",
        ),
    ),
    caught_by=("requests_are_in_one_place", "batches_are_well_formed"),
)

HANDLES_OUTLIVE_THE_LOCK = Mutant(
    id="S1",
    source="found here by random traffic: with SWA layers only, a row kept pages of its prefix that it had unlocked",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.custody:Custody._slide",
            healthy="shared = ledgers.without_windowed(record.handles[first:border])",
            broken="shared = record.handles[first:border]",
        ),
    ),
    caught_by=("units_move_only_by_their_owner", "each_unit_has_one_owner", "AccountingError"),
)

RECEIPT_OUTLIVES_ITS_SLIDE = Mutant(
    id="S2",
    source="found here by review: a receipt that a slide had replaced was taken back, and released too much",
    hunks=(
        Hunk(
            "engine_under_test.cache.locks:LockDesk.slide",
            healthy="lens[component] = receipt.node.end - frontier",
            broken="pass",
        ),
    ),
    caught_by=("locks_equal_their_receipts", "locks_cover_what_is_read", "AccountingError"),
)

CATALOG: tuple[Mutant, ...] = (
    CHUNK_BEYOND_THE_ROOM,
    PARKED_CHUNK_COUNTS_AS_COMPUTED,
    RECOVERY_OVER_A_LOCKED_NODE,
    PAGE_LARGER_THAN_WINDOW,
    REFUSED_TAKE_KEEPS_PAGES,
    ADMISSION_THAT_NEVER_PASSES,
    PEER_OUTLIVES_ITS_PAGE,
    CHUNKED_REQUEST_RUNS_TOO,
    HANDLES_OUTLIVE_THE_LOCK,
    RECEIPT_OUTLIVES_ITS_SLIDE,
)

BY_ID = {mutant.id: mutant for mutant in CATALOG}
