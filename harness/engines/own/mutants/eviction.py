"""Bugs of eviction: the victims, their order, and the number of evicted pages."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

EVICT = "swarden.engine_under_test.cache.evict"
VICTIMS = "swarden.engine_under_test.cache.lru:Victims"
CHOICE = "victim.is_device_leaf and not victim.is_locked"

bug(
    "B23",
    "sglang pull 23882: a leaf locked in the full pool and not in the SWA pool was removed, which crashed",
    at=f"{EVICT}:_evict_node",
    healthy=CHOICE,
    broken="victim.is_device_leaf and not victim.locks[component]",
    caught_by=(
        "AssertionError",
        "eviction_is_least_recently_used",
        "eviction_spares_locked_nodes",
        "evictions_free_what_is_needed",
    ),
)

bug(
    "B26",
    "sglang issues 26577, 26907 and 35515: strict LRU order evicted the last window of idle branches",
    at=f"{VICTIMS}.pop",
    healthy="or not self.is_tail(node)",
    broken="or True",
    caught_by=("idle_branches_keep_their_window", "dead_interior_is_evicted_first"),
)

bug(
    "S23",
    "a windowed node with only one lock counts as unlocked: it is evicted while a request reads it",
    at=f"{VICTIMS}._is_unlocked_and_live",
    healthy="and not node.locks[self._index]",
    broken="and node.locks[self._index] < 2",
    caught_by=(
        "eviction_spares_locked_nodes",
        "locked_nodes_stay_live",
        "locked_windows_are_live",
        "copies_keep_both_ends",
    ),
)

bug(
    "S24",
    "an eviction stops after its first victim, however many pages are needed",
    at=f"{EVICT}:evict",
    healthy="while eviction.freed[component] + eviction.num_spared[component] < wanted:",
    broken="while not eviction.freed[component] + eviction.num_spared[component] and wanted > 0:",
    caught_by=("evictions_free_what_is_needed", "reserved_units_never_run_out"),
)

bug(
    "S25",
    "the key of the LRU heap has the wrong sign, so the most recently used node is evicted first",
    Hunk(
        "swarden.engine_under_test.cache.lru:LruQueue.push",
        "(node.last_used, node.end, self._num_pushes, node)",
        "(-node.last_used, node.end, self._num_pushes, node)",
    ),
    Hunk(
        "swarden.engine_under_test.cache.lru:LruQueue.pop",
        "(last_used, end) == (node.last_used, node.end)",
        "(-last_used, end) == (node.last_used, node.end)",
    ),
    Hunk(
        "swarden.engine_under_test.cache.lru:LruQueue._compact",
        "entry[0] == entry[3].last_used",
        "-entry[0] == entry[3].last_used",
    ),
    caught_by=("eviction_is_least_recently_used",),
)

bug(
    "S26",
    "the tombstones above an evicted leaf stay: no request can match them, and their full pages are never freed",
    at=f"{EVICT}:_remove",
    healthy="if node is not leaf and (all(node.live) or node.has_copy):",
    broken="if node is not leaf:",
    caught_by=("drained_engine_is_empty",),
)

bug(
    "S27",
    "a node becomes a tombstone, but its windowed pages are not freed",
    at="swarden.engine_under_test.cache.prefix_cache:PrefixCache.evict",
    healthy="node.handles = self._ledgers.free_alone(pool, node.handles, owner=TREE, cause=FreeCause.EVICTED)",
    broken="pass",
    caught_by=("evictions_free_what_is_needed", "live_nodes_hold_their_pages", "AccountingError"),
)

bug(
    "S85",
    "a compaction of the LRU queue keeps the stale entries and drops the valid ones, so their nodes are never evicted",
    at="swarden.engine_under_test.cache.lru:LruQueue._compact",
    healthy="if entry[0] == entry[3].last_used",
    broken="if entry[0] < entry[3].last_used",
    caught_by=(
        "evictions_free_what_is_needed",
        "dead_interior_is_evicted_first",
        "eviction_is_least_recently_used",
        "drained_engine_is_empty",
        "reserved_units_never_run_out",
    ),
)

bug(
    "S235",
    "a flush does nothing while requests are unfinished",
    at="swarden.engine_under_test.engine:Engine.flush",
    healthy="self.cache.flush()",
    broken="if self.scheduler.has_work:\n        return\n    self.cache.flush()",
    caught_by=("flush_drops_what_is_idle",),
)

bug(
    "S200",
    "sglang pulls 32016, 32574 and 40748: an eviction frees twice the pages that are needed",
    at=f"{EVICT}:evict",
    healthy="while eviction.freed[component] + eviction.num_spared[component] < wanted:",
    broken="while eviction.freed[component] + eviction.num_spared[component] < 2 * wanted:",
    caught_by=("evictions_serve_takes",),
)
