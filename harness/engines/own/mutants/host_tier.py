"""Bugs of the host tier: backups, loads and host evictions."""

from harness.core.mutant import Hunk, Mutant

BACKUPS = "engine_under_test.host.backups:Backups"
LOADS = "engine_under_test.host.loads:Loads"
TIER = "engine_under_test.host.tier:HostTier"
ADMISSION = "engine_under_test.scheduler.admission"
LOCK_OF_A_LOAD = "receipt = self._cache.lock(match.farthest)"

LOADED_PAGES_ARE_NOT_PAID_FOR = Mutant(
    id="B37",
    source="sglang pull 27391: the pages that a load restores were not in the budget, so a prefill ran out of memory",
    hunks=(Hunk(f"{ADMISSION}:Wish.total", healthy="count + self.load.get(pool, 0)", broken="count"),),
    caught_by=("reserved_units_never_run_out", "loads_are_reserved_once"),
)

PAGES_TO_LOAD_ARE_NOT_PINNED = Mutant(
    id="B51",
    source="sglang pulls 26728, 26881 and 27424: host pages chosen for a load were evicted before it began",
    hunks=(
        Hunk(f"{LOADS}.begin", healthy="_pin(absent, 1)", broken="pass"),
        Hunk(f"{LOADS}.begin", healthy="_pin(absent, -1)", broken="pass"),
        Hunk(f"{LOADS}.end", healthy="node.host.pins[component] -= 1", broken="pass"),
    ),
    caught_by=("copies_keep_both_ends", "ValueError"),
)

FAILED_LOAD_KEEPS_ITS_LOCKS = Mutant(
    id="B53",
    source="sglang pull 27108: a load that returned early kept its locks on the device and had none on the host",
    hunks=(
        Hunk(
            f"{LOADS}.begin",
            healthy="self._cache.unlock(receipt)",
            broken="pass",
        ),
    ),
    caught_by=("node_locks_match_receipts",),
    machine="host",
)

COPIES_UNDER_WAY_ARE_NOT_PINNED = Mutant(
    id="B54",
    source="sglang pull 28468: pages that were being written back were not kept until acknowledged",
    hunks=(
        Hunk(
            f"{BACKUPS}.begin",
            healthy="receipt = self._cache.lock_from(chain[0].start, node)",
            broken="receipt = self._cache.lock_from(chain[0].start, node)\n    self._cache.unlock(receipt)",
        ),
        Hunk(f"{BACKUPS}.end", healthy="self._cache.unlock(job.receipt)", broken="pass"),
    ),
    caught_by=("node_locks_match_receipts", "copies_keep_both_ends"),
)

WINDOW_DROPPED_WITHOUT_BACKUP = Mutant(
    id="B55",
    source="sglang pulls 29204, 37496 and 40712: the window of an inner node was dropped without a copy, for good",
    hunks=(
        Hunk(
            f"{TIER}.make_room",
            healthy="node.id not in hopeless and bool(lacking(node))",
            broken="node.is_device_leaf and node.id not in hopeless and bool(lacking(node))",
        ),
    ),
    caught_by=("evicted_nodes_are_written_back",),
)

LONG_HOST_SEGMENT_LOADED_WHOLE = Mutant(
    id="B57",
    source="sglang pull 31771: a host segment far longer than the window was charged and loaded whole",
    hunks=(
        Hunk(
            f"{LOADS}.begin",
            healthy=LOCK_OF_A_LOAD,
            broken=(
                "node, length = match.farthest\n    "
                "node = self._cache.tree.split(node, length - node.start) if length < node.end else node\n    "
                "start = max(0, min(node.start, length - min(self._cache.tree.tail_lens)))\n    "
                "receipt = self._cache.lock_from(start, node)\n    "
                "need = {pool.name: sum(one.num_pages for one in receipt.segment(index) if not one.live[index])\n    "
                "        for index, pool in enumerate(self._memory.pools)}"
            ),
        ),
    ),
    caught_by=("loads_bring_only_the_window", "loads_are_reserved_once"),
)

COPY_OF_WHAT_CAME_BACK_STAYS = Mutant(
    id="B58",
    source="sglang pull 34046: host copies of nodes that were restored stayed, until the host pool was full",
    hunks=(
        Hunk(
            "engine_under_test.cache.lru:Candidates._is_idle_copy",
            healthy="(node.is_on_device or not node.is_locked)",
            broken="not node.is_on_device\n        and not node.is_locked",
        ),
    ),
    caught_by=("evicted_nodes_are_written_back", "drained_engine_is_empty"),
)

WINDOW_ALONE_IS_NOT_LOADED = Mutant(
    id="S130",
    source="sglang pull 27391: only the full pool decided about a load, so a window that the host had was computed "
    "again",
    hunks=(
        Hunk(
            f"{TIER}.pages_to_load",
            healthy="return pages if ends_with_tombstones or is_worth_it else {}",
            broken="return pages if any(pages[pool.name] for pool in pools if not pool.leaves_tombstones) else {}",
        ),
    ),
    caught_by=("host_prefixes_are_loaded",),
)

LOAD_UNDER_WAY_IS_PAID_FOR_AGAIN = Mutant(
    id="S131",
    source="a request that joins a load in flight reserves the pages of that load again",
    hunks=(Hunk(f"{ADMISSION}:Admission._wish", healthy="load = dict.fromkeys(load, 0)", broken="pass"),),
    caught_by=("loads_are_reserved_once",),
)

LOAD_THAT_BRINGS_TOO_LITTLE_IS_JOINED = Mutant(
    id="S176",
    source="found here by review: a request joined a load of a part of its prefix, and computed the rest that the "
    "host had",
    hunks=(Hunk(f"{LOADS}.under_way_to", healthy="UnderWay(job.id, all(", broken="UnderWay(job.id, True or all("),),
    caught_by=("joined_loads_bring_all_missing_pages",),
)

FAILED_BACKUP_IS_TRUSTED = Mutant(
    id="S132",
    source="a backup that failed half-way counts as a copy",
    hunks=(Hunk(f"{BACKUPS}.end", healthy="if succeeded and", broken="if"),),
    caught_by=("slots_hold_their_prefix", "outputs_match_reference", "part_matches_its_model"),
    machine="host",
)

COPY_WITHOUT_WHAT_IS_BEFORE_IT = Mutant(
    id="S133",
    source="a copy is kept although the prefix before it was not copied, so no request can match it",
    hunks=(
        Hunk(
            f"{BACKUPS}._chain",
            healthy="while not self._prefix_is_copied(chain[0]):",
            broken="while False:",
        ),
        Hunk(f"{BACKUPS}.end", healthy="else self._prefix_is_copied(node)", broken="else True"),
    ),
    caught_by=("cached_nodes_are_reachable", "host_copies_follow_their_prefix"),
)

LOADED_IN_VAIN_IS_LOST = Mutant(
    id="S134",
    source="pages of a failed load, or of a load for a node that became live again meanwhile, are never freed",
    hunks=(
        Hunk(
            f"{LOADS}.end",
            healthy="ledgers.ledgers[component].free(part.on_device, owner=owner, cause=cause)",
            broken="pass",
        ),
    ),
    caught_by=("unit_has_one_owner",),
    machine="host",
)

SPLIT_LOSES_PINS = Mutant(
    id="S135",
    source="a node is split while it is loaded, and its upper part loses the pins on the host pages",
    hunks=(
        Hunk(
            "engine_under_test.cache.node:HostSide.split",
            healthy="list(self.pins)",
            broken="[0] * len(self.pins)",
        ),
    ),
    caught_by=("copies_keep_both_ends",),
    machine="host",
)

DROPPED_WINDOWS_ARE_LOST = Mutant(
    id="S136",
    source="a dropped copy frees its full pages on the host, but its windowed pages leak",
    hunks=(
        Hunk(
            f"{BACKUPS}._drop",
            healthy="ledger.free(pages, owner=TREE, cause=FreeCause.DROPPED)",
            broken="ledger.free(pages if ledger is self._host.ledgers[0] else [], owner=TREE, cause=FreeCause.DROPPED)",
        ),
    ),
    caught_by=("unit_has_one_owner", "PoolExhausted"),
)

COMES_BACK_WITH_DEAD_WINDOWS = Mutant(
    id="S137",
    source="a node that is only on the host is published again, and counts as live below the frontier too",
    hunks=(
        Hunk(
            "engine_under_test.cache.tree:RadixTree._merge",
            healthy="given = incoming.has(one.start, one.end)",
            broken="given = [is_given or not one.is_on_device for is_given in incoming.has(one.start, one.end)]",
        ),
    ),
    caught_by=("live_nodes_hold_their_pages",),
    machine="host",
)

ABORTED_WHILE_LOADING_STAYS = Mutant(
    id="S138",
    source="a request that ends while it waits for a load stays in the loading queue",
    hunks=(
        Hunk(
            "engine_under_test.scheduler.scheduler:Scheduler._remove",
            healthy="self.loading.remove(request)",
            broken="pass",
        ),
    ),
    caught_by=(
        "requests_are_in_one_queue",
        "records_match_request_places",
        "one_request_is_between_chunks",
        "finished_requests_hold_nothing",
        "retracted_requests_hold_nothing",
        "aborted_requests_are_released",
        "aborted_requests_stop_decoding",
        "KeyError",
    ),
)

FLUSH_FORGETS_THE_HOST = Mutant(
    id="S139",
    source="a flush drops only what is cached on the device, and keeps the host copies",
    hunks=(Hunk(f"{TIER}.flush", healthy="self.backups.drop_all()", broken="pass"),),
    caught_by=("drained_engine_is_empty",),
)

LOADED_AND_NOT_USED = Mutant(
    id="S140",
    source="a request that waited for a load ignores the loaded pages, and computes their tokens again",
    hunks=(
        Hunk(
            "engine_under_test.cache.prefix_cache:PrefixCache.extend",
            healthy="if match.length > record.protected_len:",
            broken="if False:",
        ),
    ),
    caught_by=("loaded_prefixes_are_used",),
)

PAGES_ARE_MIXED_UP_ON_THE_WAY = Mutant(
    id="S141",
    source="the host pages of a copy are filled in reverse order",
    hunks=(
        Hunk(
            "engine_under_test.host.copy_jobs:CopyJobs.begin",
            healthy="sides = (device_kv, here, host_kv, there)",
            broken="sides = (device_kv, here, host_kv, there[::-1])",
        ),
    ),
    caught_by=("copies_equal_their_source",),
)

WINDOW_BEFORE_A_BACKUP_STAYS = Mutant(
    id="S142",
    source="found here by random traffic: a backup spared the host window of the node before it, and found no free "
    "page",
    hunks=(Hunk(f"{BACKUPS}._make_room", healthy="if is_whole and node in beside", broken="if node in beside"),),
    caught_by=("evicted_nodes_are_written_back", "dropped_copies_are_replaced"),
)

WHOLE_BRANCH_GOES_WITH_ITS_END = Mutant(
    id="S143",
    source="found here by random traffic: after one node could not be copied, the next victims were evicted without "
    "copies",
    hunks=(
        Hunk(f"{TIER}.make_room", healthy="hopeless.add(node.id)", broken="waits = False"),
        Hunk(
            f"{TIER}.make_room",
            healthy="waits = bool(spared) and succeeded",
            broken="waits = waits and bool(spared) and succeeded",
        ),
    ),
    caught_by=("evicted_nodes_are_written_back",),
)

COPIES_GO_FOR_WHAT_NEVER_FITS = Mutant(
    id="S155",
    source="found here by random traffic: host copies were dropped for a backup that did not fit even then",
    hunks=(Hunk(f"{BACKUPS}._make_room", healthy="if is_enough:", broken="if True:"),),
    caught_by=("dropped_copies_are_replaced", "evicted_nodes_are_written_back"),
)

INNER_COPY_GOES_FIRST = Mutant(
    id="S177",
    source="made here: the host drops the copy of an inner node before those of its descendants, which no match "
    "reaches then",
    hunks=(
        Hunk(
            "engine_under_test.cache.lru:Candidates._is_idle_copy",
            healthy="(not self.is_rooted or not any(map(self._has_copy, node.children.values())))",
            broken="True",
        ),
    ),
    caught_by=("cached_nodes_are_reachable", "host_copies_follow_their_prefix"),
    machine="host",
)
