"""Bugs of the prefix tree: insert, split, recovery and match."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

TREE = "swarden.engine_under_test.cache.tree:RadixTree"
CACHE = "swarden.engine_under_test.cache.prefix_cache:PrefixCache"
LONGEST = "swarden.engine_under_test.cache.match:longest"

bug(
    "B16",
    "sglang issue 34823: key and frontier were counted in different units, so a leaf lived on freed pages",
    at=f"{CACHE}.publish",
    healthy="absent=record.absent,",
    broken="absent={pool: [range(max(0, one - self._page_size))] for pool, one in record.frontiers.items()},",
    caught_by=("live_nodes_hold_their_pages", "published_prefixes_match", "AccountingError"),
)

bug(
    "B18",
    "sglang pull 29352: recovering a tombstone freed the full pages that another request had locked",
    at=f"{TREE}._recover",
    healthy="node.is_locked or ",
    broken="",
    caught_by=(
        "unit_has_one_owner",
        "shared_pages_match_tree_path",
        "units_move_only_by_their_owner",
        "slots_hold_their_prefix",
    ),
)

bug(
    "B24",
    "sglang pulls 23259 and 36909: an unfinished request was published without its frontier, dead pages as live",
    at=f"{CACHE}.publish",
    healthy="absent=record.absent,",
    broken="absent={},",
    caught_by=("live_nodes_hold_their_pages", "published_prefixes_match", "AccountingError"),
)

bug(
    "B29",
    "sglang issue 35129: one SWA tombstone on the way vetoed the match of every long session",
    at=LONGEST,
    healthy="elif dead_until[component] and end - dead_until[component] < tail_len:",
    broken="elif dead_until[component]:",
    caught_by=("matches_are_valid", "matches_are_longest", "published_prefixes_match", "admission_matches_planner"),
)

bug(
    "B13",
    "sglang pull 27789: after an insertion a page had two owners, so the sum was one page above the capacity",
    at=f"{CACHE}.publish",
    healthy="record.protected_len = end",
    broken="record.protected_len = end - self._page_size",
    caught_by=("unit_has_one_owner", "shared_pages_match_tree_path", "AccountingError"),
)

bug(
    "S9",
    "a match ignores tombstones: the window at its end may have no pages",
    at=LONGEST,
    healthy="dead_until[component], is_usable = end, False",
    broken="is_usable = False",
    caught_by=("matches_are_valid", "matches_are_longest", "locked_nodes_stay_live", "locked_windows_are_live"),
)

bug(
    "S10",
    "the cache ignores the adapter in the key: a request reads what another model has computed",
    at=f"{TREE}.walk",
    healthy="node = self.roots.get(namespace)",
    broken="node = next(iter(self.roots.values()), None)",
    caught_by=(
        "slots_hold_their_prefix",
        "matches_are_valid",
        "matches_are_longest",
        "units_move_only_by_their_owner",
        "published_prefixes_match",
        "tree_counters_match_nodes",
        "reservations_match_planner",
    ),
)

bug(
    "S11",
    "a match up to the last token: nothing is left to compute, so nothing can be sampled",
    at=f"{CACHE}.match",
    healthy="len(tokens) - 1",
    broken="len(tokens)",
    caught_by=(
        "passes_compute_each_request_once",
        "passes_prefill_within_chunk_len",
        "matches_are_valid",
        "matches_are_longest",
        "IndexError",
    ),
)

bug(
    "S12",
    "after a publication a request keeps its duplicates in its row: it reads pages that are freed",
    at=f"{CACHE}._execute",
    healthy="record.write(self._table, 0, self._under_lock(insertion.handles))",
    broken="pass",
    caught_by=("shared_pages_match_tree_path", "rows_match_their_records"),
)

bug(
    "S13",
    "an insertion updates the record but not the row, from which kernels read",
    at=f"{CACHE}._execute",
    healthy="record.write(self._table, 0, self._under_lock(insertion.handles))",
    broken="handles = self._under_lock(insertion.handles)\n    record.handles[: len(handles)] = handles",
    caught_by=("rows_match_their_records",),
)

bug(
    "S14",
    "a split of a locked node leaves its upper half unlocked: it can be evicted under its reader",
    at=f"{TREE}.split",
    healthy="upper.live, upper.locks, upper.last_used = list(node.live), list(node.locks), node.last_used",
    broken="upper.live, upper.last_used = list(node.live), node.last_used",
    caught_by=(
        "AccountingError",
        "node_locks_match_receipts",
        "locks_extend_to_ancestors",
        "tree_counters_match_nodes",
    ),
)

bug(
    "S15",
    "after a split the lower half still has the old parent: walks upward skip the upper half",
    at=f"{TREE}.split",
    healthy="node.start, node.parent = upper.end, upper",
    broken="node.start = upper.end",
    caught_by=(
        "locks_cover_pages_read",
        "window_locks_are_minimal",
        "node_locks_match_receipts",
        "shared_pages_match_tree_path",
        "KeyError",
        "AccountingError",
    ),
)

bug(
    "S16",
    "after a split the lower half keeps the old start: its tokens seem to be at other positions",
    at=f"{TREE}.split",
    healthy="node.start, node.parent = upper.end, upper",
    broken="node.parent = upper",
    caught_by=("tree_is_well_formed", "AccountingError"),
)

bug(
    "S19",
    "a lock does not count as a use of its nodes: a prefix that many requests share is evicted first",
    at=f"{CACHE}.lock",
    healthy="self.tree.touch(list(node.upward()))",
    broken="pass",
    caught_by=("last_uses_follow_locks",),
)

bug(
    "S195",
    "an insertion emits no event, so the tree seems to be unchanged",
    at=f"{CACHE}.publish",
    healthy="if self._observer:",
    broken="if False:",
    caught_by=("cached_units_were_inserted",),
)

bug(
    "S196",
    "a tombstone gets pages again, and no event says so",
    at=f"{TREE}._recover",
    healthy="and not is_restored",
    broken="and is_restored",
    caught_by=("cached_units_were_inserted",),
)

bug(
    "S199",
    "found here: with SWA layers only, the first page that was cached behind the window had no parent in its KV event",
    at="swarden.engine_under_test.kv_events:KVEvents.notice",
    healthy="self._learn(event)",
    broken="pass",
    caught_by=("router_view_matches_cache",),
)

bug(
    "S233",
    "when an answer is cached, the windows and states above it are freed as if they were dead: its prompt misses",
    at=f"{CACHE}.publish",
    healthy="self._execute(insertion, record)",
    broken="self._execute(insertion, record)\n"
    "    above = insertion.node.parent\n"
    "    for index, one in enumerate(self.tree.components):\n"
    "        is_dead = one.leaves_tombstones and len(insertion.node.key) >= one.tail_len and not above.is_locked\n"
    "        if is_dead and above.in_tree and above.live[index]:\n"
    "            self.tree.set_live(above, index, live=False)\n"
    "            above.handles = self._ledgers.free_alone(one.name, above.handles, owner=TREE, cause='evicted')",
    caught_by=("served_prefixes_are_hit",),
)

bug(
    "S243",
    "the upper part of a node that is split counts as never used",
    at=f"{TREE}.split",
    healthy="list(node.live), list(node.locks), node.last_used",
    broken="list(node.live), list(node.locks), 0",
    caught_by=("last_uses_follow_locks",),
)
