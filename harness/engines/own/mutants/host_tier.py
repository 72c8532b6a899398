"""Bugs of the host tier: backups, loads and host evictions."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

BACKUPS = "swarden.engine_under_test.host.backups:Backups"
LOADS = "swarden.engine_under_test.host.tier:Loads"
TIER = "swarden.engine_under_test.host.tier:HostTier"
ADMISSION = "swarden.engine_under_test.scheduler.admission"
LOCK_OF_A_LOAD = "receipt = self._cache.lock(match.farthest)"

bug(
    "B37",
    "sglang pull 27391: the pages that a load restores were not in the budget, so a prefill ran out of memory",
    at=f"{ADMISSION}:Wish.total",
    healthy="count + self.load.get(pool, 0)",
    broken="count",
    caught_by=("reserved_units_never_run_out", "loads_are_reserved_once"),
)

bug(
    "B51",
    "sglang pulls 26728, 26881 and 27424: host pages chosen for a load were evicted before it began",
    Hunk(f"{LOADS}.begin", "_pin(absent, 1)", "pass"),
    Hunk(f"{LOADS}.begin", "_pin(absent, -1)", "pass"),
    Hunk(f"{LOADS}.end", "node.host.pins[component] -= 1", "pass"),
    caught_by=("copies_keep_both_ends", "ValueError"),
)

bug(
    "B53",
    "sglang pull 27108: a load that returned early kept its locks on the device and had none on the host",
    at=f"{LOADS}.begin",
    healthy="self._cache.unlock(receipt)",
    broken="pass",
    caught_by=("node_locks_match_receipts",),
)

bug(
    "B54",
    "sglang pull 28468: pages that were being written back were not kept until acknowledged",
    Hunk(
        f"{BACKUPS}.begin",
        "receipt = self._cache.lock_from(chain[0].start, node)",
        "receipt = self._cache.lock_from(chain[0].start, node)\n    self._cache.unlock(receipt)",
    ),
    Hunk(f"{BACKUPS}.end", "self._cache.unlock(job.receipt)", "pass"),
    caught_by=("node_locks_match_receipts", "copies_keep_both_ends"),
)

bug(
    "B55",
    "sglang pulls 29204, 37496 and 40712: the window of an inner node was dropped without a copy, for good",
    at=f"{TIER}.make_room",
    healthy="node.id not in hopeless and bool(lacking(node))",
    broken="node.is_device_leaf and node.id not in hopeless and bool(lacking(node))",
    caught_by=("evicted_nodes_are_written_back",),
)

bug(
    "B57",
    "sglang pull 31771: a host segment far longer than the window was charged and loaded whole",
    at=f"{LOADS}.begin",
    healthy=LOCK_OF_A_LOAD,
    broken="node, length = match.farthest\n    "
    "node = self._cache.tree.split(node, length - node.start) if length < node.end else node\n    "
    "start = max(0, min(node.start, length - min(self._cache.tree.tail_lens)))\n    "
    "receipt = self._cache.lock_from(start, node)\n    "
    "need = {pool.name: sum(one.num_pages for one in receipt.segment(index) if not one.live[index])\n    "
    "        for index, pool in enumerate(self._memory.pools)}",
    caught_by=("loads_bring_only_the_window", "loads_are_reserved_once"),
)

bug(
    "B58",
    "sglang pull 34046: host copies of nodes that were restored stayed, until the host pool was full",
    at="swarden.engine_under_test.cache.lru:Candidates._is_idle_copy",
    healthy="(node.is_on_device or not node.is_locked)",
    broken="not node.is_on_device\n        and not node.is_locked",
    caught_by=("evicted_nodes_are_written_back", "drained_engine_is_empty"),
)

bug(
    "S130",
    "sglang pull 27391: only the full pool decided about a load, so a window that the host had was computed again",
    at=f"{TIER}.pages_to_load",
    healthy="return pages if ends_with_tombstones or is_worth_it else {}",
    broken="return pages if any(pages[pool.name] for pool in pools if not pool.leaves_tombstones) else {}",
    caught_by=("host_prefixes_are_loaded",),
)

bug(
    "S131",
    "a request that joins a load in flight reserves the pages of that load again",
    at=f"{ADMISSION}:Admission._wish",
    healthy="load = dict.fromkeys(load, 0)",
    broken="pass",
    caught_by=("loads_are_reserved_once",),
)

bug(
    "S176",
    "found here by review: a request joined a load of a part of its prefix, and computed the rest that the host had",
    at=f"{LOADS}.under_way_to",
    healthy="LoadUnderWay(job.id, all(",
    broken="LoadUnderWay(job.id, True or all(",
    caught_by=("joined_loads_bring_all_missing_pages",),
)

bug(
    "S132",
    "a backup that failed half-way counts as a copy",
    at=f"{BACKUPS}.end",
    healthy="if succeeded and",
    broken="if",
    caught_by=("slots_hold_their_prefix", "outputs_match_reference"),
)

bug(
    "S133",
    "a copy is kept although the prefix before it was not copied, so no request can match it",
    Hunk(f"{BACKUPS}._chain", "while not self._prefix_is_copied(chain[0]):", "while False:"),
    Hunk(f"{BACKUPS}.end", "else self._prefix_is_copied(node)", "else True"),
    caught_by=("cached_nodes_are_reachable", "host_copies_follow_their_prefix"),
)

bug(
    "S134",
    "pages of a failed load, or of a load for a node that became live again meanwhile, are never freed",
    at=f"{LOADS}.end",
    healthy="ledgers.ledgers[component].free(part.on_device, owner=owner, cause=cause)",
    broken="pass",
    caught_by=("unit_has_one_owner",),
)

bug(
    "S135",
    "a node is split while it is loaded, and its upper part loses the pins on the host pages",
    at="swarden.engine_under_test.cache.node:HostSide.split",
    healthy="list(self.pins)",
    broken="[0] * len(self.pins)",
    caught_by=("copies_keep_both_ends",),
)

bug(
    "S136",
    "a dropped copy frees its full pages on the host, but its windowed pages leak",
    at=f"{BACKUPS}._drop",
    healthy="ledger.free(pages, owner=TREE, cause=FreeCause.DROPPED)",
    broken="ledger.free(pages if ledger is self._host.ledgers[0] else [], owner=TREE, cause=FreeCause.DROPPED)",
    caught_by=("unit_has_one_owner", "PoolExhausted"),
)

bug(
    "S137",
    "a node that is only on the host is published again, and counts as live below the frontier too",
    at="swarden.engine_under_test.cache.tree:RadixTree._merge",
    healthy="given = incoming.has(part.start, part.end)",
    broken="given = [is_given or not part.is_on_device for is_given in incoming.has(part.start, part.end)]",
    caught_by=("live_nodes_hold_their_pages",),
)

bug(
    "S138",
    "a request that ends while it waits for a load stays in the loading queue",
    at="swarden.engine_under_test.scheduler.scheduler:Scheduler._remove",
    healthy="self.loading.remove(request)",
    broken="pass",
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

bug(
    "S139",
    "a flush drops only what is cached on the device, and keeps the host copies",
    at=f"{TIER}.flush",
    healthy="self.backups.drop_all()",
    broken="pass",
    caught_by=("drained_engine_is_empty",),
)

bug(
    "S140",
    "a request that waited for a load ignores the loaded pages, and computes their tokens again",
    at="swarden.engine_under_test.cache.prefix_cache:PrefixCache.extend",
    healthy="if match.length > record.protected_len:",
    broken="if False:",
    caught_by=("loaded_prefixes_are_used",),
)

bug(
    "S141",
    "the host pages of a copy are filled in reverse order",
    at="swarden.engine_under_test.host.copy_jobs:CopyJobs.begin",
    healthy="sides = (device_kv, here, host_kv, there)",
    broken="sides = (device_kv, here, host_kv, there[::-1])",
    caught_by=("copies_equal_their_source",),
)

bug(
    "S142",
    "found here by random traffic: a backup spared the host window of the node before it, and found no free page",
    at=f"{BACKUPS}._make_room",
    healthy="if is_whole and node in beside",
    broken="if node in beside",
    caught_by=("evicted_nodes_are_written_back", "dropped_copies_are_replaced"),
)

bug(
    "S143",
    "found here by random traffic: after one node could not be copied, the next victims were evicted without copies",
    Hunk(f"{TIER}.make_room", "hopeless.add(node.id)", "waits = False"),
    Hunk(f"{TIER}.make_room", "waits = bool(spared) and succeeded", "waits = waits and bool(spared) and succeeded"),
    caught_by=("evicted_nodes_are_written_back",),
)

bug(
    "S155",
    "found here by random traffic: host copies were dropped for a backup that did not fit even then",
    at=f"{BACKUPS}._make_room",
    healthy="if is_enough:",
    broken="if True:",
    caught_by=("dropped_copies_are_replaced", "evicted_nodes_are_written_back"),
)

bug(
    "S177",
    "made here: the host drops the copy of an inner node before those of its descendants, which no match reaches then",
    at="swarden.engine_under_test.cache.lru:Candidates._is_idle_copy",
    healthy="(not self.is_rooted or not any(map(self._has_copy, node.children.values())))",
    broken="True",
    caught_by=("cached_nodes_are_reachable", "host_copies_follow_their_prefix"),
)

bug(
    "S222",
    "sglang pull 25065 and issue 33714: with write-through the last node of an ended prompt is not backed up",
    at=f"{TIER}.published",
    healthy="for step in node.upward() if",
    broken="for step in node.upward() if not step.is_leaf and",
    caught_by=("ended_requests_are_written_through",),
)

bug(
    "S232",
    "a request whose load has ended starts from the prefix that was cached before the load",
    at="swarden.engine_under_test.scheduler.scheduler:Scheduler._finish_loads",
    healthy="self.admission.extend(request, record)",
    broken="pass",
    caught_by=("loaded_prefixes_are_used",),
)

bug(
    "S245",
    "sglang issue 33862, by analogy: the copies on the host stay for ever, and later prefixes find no room there",
    at=f"{BACKUPS}.begin",
    healthy="if not self._make_room(need, beside=[*chain, *above]):",
    broken="if any(count > ledger.num_free for count, ledger in zip(need, self._host.ledgers)):",
    caught_by=("idle_copies_give_way",),
)
