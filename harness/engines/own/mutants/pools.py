"""Bugs of the pools: ledgers, the peers between their pages, the storage and the rows."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

LEDGER = "swarden.engine_under_test.pools.ledger:Ledger"
PAIRED = "swarden.engine_under_test.pools.paired:PairedLedgers"
CLEARED = "self._pair(follower, handles, [NO_PAGE] * len(handles))"

bug(
    "B1",
    "sglang pull 25805: recycled full pages kept their old SWA peers where only the tail was mapped anew",
    Hunk(f"{PAIRED}._free_peers", CLEARED, "pass"),
    Hunk(
        f"{PAIRED}.take",
        "self._pair(follower, paired, pages)",
        "peers = self.pages_of(follower.name, paired)\n        "
        "kept = [old or new for old, new in zip(peers[:-1], pages)] + pages[-1:]\n        "
        "self._pair(follower, paired, kept)",
    ),
    caught_by=("peers_are_unique_and_live", "free_units_have_no_peer"),
)

bug(
    "B3",
    "sglang pull 27779: freeing the SWA part of a page cleared the map for some of its tokens only",
    at=f"{PAIRED}._free_peers",
    healthy=CLEARED,
    broken="self._pair(follower, handles[1:], [NO_PAGE] * len(handles[1:]))",
    caught_by=(
        "peers_are_unique_and_live",
        "live_nodes_hold_their_pages",
        "free_units_have_no_peer",
        "unit_has_one_owner",
        "private_pages_match_frontier",
    ),
)

bug(
    "B4",
    "sglang pulls 25270, 25385, 25901, 27586: a recovered tombstone's old pages still led to SWA pages in use",
    Hunk(f"{PAIRED}.take_over", "self._pair(follower, incoming, [NO_PAGE] * len(incoming))", "pass"),
    Hunk(f"{PAIRED}._check_no_peers", "if page:", "if False:"),
    caught_by=("peers_are_unique_and_live", "free_units_have_no_peer"),
)

TWO_PAGES_SHARE_A_PEER = bug(
    "B7",
    "sglang issue 35501: two full pages led to one SWA page, and the first to be freed gave it away",
    at=f"{PAIRED}.take",
    healthy="self._pair(follower, paired, pages)",
    broken="self._pair(follower, paired, pages[:1] + pages[:-1])",
    caught_by=("peers_are_unique_and_live", "held_follower_units_are_peers", "units_move_only_by_their_owner"),
)

bug(
    "B8",
    "sglang issue 35338: a decode took its full page, found no SWA page, and rolled nothing back",
    Hunk(f"{PAIRED}.take", "for ledger in self.ledgers:", "for ledger in self.ledgers[:1]:"),
    Hunk(f"{PAIRED}.take", "follower.take_checked(", "follower.take("),
    caught_by=("refused_takes_change_nothing", "unit_has_one_owner"),
)

bug(
    "B10",
    "sglang pull 17630: storage was sized before the pools were split, so kernels wrote beyond its end",
    at="swarden.engine_under_test.pools.kv_store:KVStore.__init__",
    healthy="shape = (*outer, spec.num_pages + 1, spec.slots or page_size, *inner)",
    broken="shape = (*outer, min(one.num_pages for one in pools) + 1, spec.slots or page_size, *inner)",
    caught_by=("IndexError", "RuntimeError"),
)

bug(
    "B11",
    "sglang pull 26972: an allocation went beyond the end of the row, where writes and frees were cut off",
    Hunk(
        "swarden.engine_under_test.pools.memory:KVMemory.for_config",
        "num_pages(config.max_context_len, config.page_size)",
        "num_pages(config.max_context_len // 8, config.page_size)",
    ),
    Hunk(
        "swarden.engine_under_test.pools.memory:RequestTable.write",
        "assert first + len(handles) <= self.width, (",
        "handles = handles[: max(0, self.width - first)]\n    assert True, (",
    ),
    caught_by=("rows_match_their_records", "writes_go_to_private_units", "IndexError"),
)

bug(
    "B88",
    "sglang releases 0.5.10 to 0.5.17, reproduced: a nested group of frees dropped what the outer one had queued",
    at=f"{LEDGER}.free",
    healthy="self._fenced.setdefault(after, []).extend(units)",
    broken="self._fenced[after] = list(units)",
    caught_by=("unit_has_one_owner", "drained_engine_is_empty"),
)

bug(
    "S3",
    "sglang pull 38519: page 0, which is padding, was freed with pages that were free already, and handed out",
    Hunk(f"{PAIRED}.free", "if self.anchor.name in lacks:", "if False:"),
    Hunk(f"{PAIRED}._check_handles", "if not all(handles):", "if False:"),
    caught_by=("padding_unit_is_never_moved",),
)

bug(
    "S4",
    "a completed launch also frees the units that wait for a later launch",
    at=f"{LEDGER}.complete",
    healthy="if fence <= launch]",
    broken="if fence]",
    caught_by=("fenced_units_wait_for_their_launch",),
)

bug(
    "S5",
    "the number of free units includes fenced units, which cannot be taken yet",
    at=f"{LEDGER}.num_free",
    healthy="return len(self._free)",
    broken="return len(self._free) + sum(map(len, self._fenced.values()))",
    caught_by=("free_counters_match_pools",),
)
