"""Bugs of the locks on the tree and of their receipts."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

DESK = "swarden.engine_under_test.cache.locks:LockDesk"
SEGMENT = "self._release(list(receipt.segment(component)), component)"

bug(
    "B20",
    "sglang pull 24153: acquire and release walked different segments, and a count fell below zero",
    at=f"{DESK}.unlock",
    healthy=SEGMENT,
    broken="fresh = LockReceipt(receipt.id, receipt.node, self._tree.covered_lens(receipt.node.end))\n        "
    "self._release(list(fresh.segment(component)), component)",
    caught_by=("node_locks_match_receipts", "AccountingError"),
    is_canary=True,
)

bug(
    "B21",
    "sglang pull 27038: a lock released without its boundary was released up to the root",
    at=f"{DESK}.unlock",
    healthy=SEGMENT,
    broken="self._release(list(receipt.node.upward()), component)",
    caught_by=("node_locks_match_receipts", "AccountingError"),
)

bug(
    "B27",
    "sglang issue 27210: a lock pinned the whole of a long node, and the SWA pool ran out too early",
    at=f"{DESK}.lock",
    healthy="self._cut(node, node.end - length)",
    broken="pass",
    caught_by=("locks_cover_pages_read", "window_locks_are_minimal"),
)

bug(
    "S2",
    "found here by review: the receipt after a slide had its old length, so the unlock released too much",
    at=f"{DESK}.slide",
    healthy="lens[index] = receipt.node.end - frontier",
    broken="pass",
    caught_by=("node_locks_match_receipts", "locks_cover_pages_read", "window_locks_are_minimal", "AccountingError"),
)

bug(
    "S20",
    "a lock covers only a window in the full pool too, so the beginning of a prefix in use can be evicted",
    at="swarden.engine_under_test.cache.tree:RadixTree.covered_lens",
    healthy="min(end, tail_len) for tail_len in",
    broken="min(end, *self.tail_lens) for _ in",
    caught_by=("locks_cover_pages_read", "window_locks_are_minimal", "locks_extend_to_ancestors"),
)

bug(
    "S21",
    "a request that publishes takes a new lock and never releases the old one",
    at="swarden.engine_under_test.cache.prefix_cache:PrefixCache.publish",
    healthy="self._desk.unlock(old)",
    broken="pass",
    caught_by=("receipts_match_records", "node_locks_match_receipts", "drained_engine_is_empty"),
)

bug(
    "S22",
    "a lock does not update the counters, so admission counts locked pages as evictable",
    at=f"{DESK}._protect",
    healthy="if node.locks[component] == 1 and node.live[component]:",
    broken="if False:",
    caught_by=("tree_counters_match_nodes",),
)

bug(
    "S28",
    "a lock returns the receipt of another holder of that prefix, so the first unlock releases both",
    at=f"{DESK}.lock",
    healthy="self._num_receipts += 1",
    broken="for other in self._out.values():\n        "
    "if other.node is node and node.in_tree:\n            "
    "return other\n    "
    "self._num_receipts += 1",
    caught_by=("receipts_match_records", "node_locks_match_receipts"),
)
