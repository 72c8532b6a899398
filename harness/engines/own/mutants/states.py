"""Bugs of recurrent states: pages, slots, cached states, drafts, copies and transfers."""

from swarden.harness.core.mutant import Hunk, Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

STATE = "swarden.engine_under_test.components:RecurrentState"
SLOTS = "swarden.engine_under_test.scheduler.batch:state_slots"
CONTENT = ("slots_hold_their_prefix", "outputs_match_reference")


bug(
    "B71",
    "sglang release 0.5.15 and pull 23496: the states of a session were not freed when it released its KV",
    Hunk(
        "swarden.engine_under_test.cache.departures:Departures.release",
        "lacks=freed",
        "lacks=[*freed, 'state'] if record.owner.kind == 'session' else freed",
    ),
    Hunk("swarden.engine_under_test.pools.paired:PairedLedgers._check_no_peers", "if page:", "if False:"),
    caught_by=(
        "unit_has_one_owner",
        "drained_engine_is_empty",
        "free_units_have_no_peer",
        "live_nodes_hold_their_pages",
    ),
)

bug(
    "S180",
    "vllm pull 34587: a block was cached whose state did not cover all of its tokens, after a chunked prefill",
    at=SLOTS,
    healthy="sorted({*page_ends, *newest})}",
    broken="newest}",
    caught_by=CONTENT,
)

bug(
    "S181",
    "sglang pulls 12693, 16067 and 21404: a state that was taken for a request leaked when the request did not "
    "start, or was aborted",
    at="swarden.engine_under_test.cache.record:KVRecord.private_parts",
    healthy="return self.parts(",
    broken="self.skip('state', [], self.allocated_len // page_size, self.allocated_len // page_size + 1, "
    "page_size=page_size)\n    return self.parts(",
    caught_by=("unit_has_one_owner", "AccountingError"),
)

bug(
    "S182",
    "vllm pull 57605: the pages of states for the lookahead were not taken, and a stale entry was written",
    at=f"{STATE}.taken",
    healthy="range(kept_from, stop)",
    broken="range(kept_from, min(stop, num_pages(end, self.page_size)))",
    caught_by=(*CONTENT, "writes_go_to_private_units", "AccountingError", "records_keep_their_last_state"),
)

bug(
    "S183",
    "tpu-inference pull 3178: the next pass started from the state after the last draft, rejected ones included",
    at=SLOTS,
    healthy="slot(start - 1) if start else 0",
    broken="slot(min(max(start, entry.record.written_len), num_pages(start, page_size) * page_size) - 1) "
    "if start else 0",
    caught_by=CONTENT,
)

bug(
    "S184",
    "vllm issue 53912: with speculation and prefix caching a state was kept for the last draft only",
    at=SLOTS,
    healthy="max(start, reach - pool.kept_states)",
    broken="reach - 1",
    caught_by=(*CONTENT, "AccountingError"),
)

bug(
    "S185",
    "sglang issue 39830: after a hit on the host the request went on from the state of another request",
    at="swarden.engine_under_test.host.copy_jobs:CopyJobs.begin",
    healthy="copies.append(",
    broken="if to_host or pool.name != 'state': copies.append(",
    caught_by=(*CONTENT, "copies_equal_their_source"),
)

bug(
    "S186",
    "sglang pull 32995: the state that was transferred was cleared before the first decode",
    at=SLOTS,
    healthy="slot(start - 1) if start else 0",
    broken="slot(start - 1) if entry.record.last_launch else 0",
    caught_by=(*CONTENT, "reads_cover_the_window"),
    machine="pd",
)

bug(
    "S187",
    "vllm issue 53142 and pull 55601: after a hit the index of the state was counted in blocks of another size",
    at=SLOTS,
    healthy="(position - span.first_position) // pool.page_size",
    broken="(position - span.first_position) // max(1, pool.page_size // 2)",
    caught_by=(*CONTENT, "writes_go_to_private_units", "IndexError"),
)

bug(
    "S188",
    "sglang pull 36770: a chunk was computed for whose state no slot was free or evictable",
    Hunk(f"{STATE}.chunk_capacity", "if count < 2:", "if False:"),
    Hunk(
        f"{STATE}.chunk_capacity",
        "UNBOUNDED if self._interval is None else max(dense, (count - 2) * self._interval)",
        "UNBOUNDED",
    ),
    caught_by=(
        "reserved_units_never_run_out",
        "reservations_cover_taken_units",
        "admission_matches_planner",
        "reservations_match_planner",
    ),
)

bug(
    "S189",
    "vllm issues 43587 and 45238: the only state of a prompt was behind its last whole block, and never matched",
    at=f"{STATE}.taken",
    healthy="self.frontier(end) // self.page_size",
    broken="(end - 1) // self.page_size",
    caught_by=("published_prefixes_match", "reservations_match_planner", "admission_matches_planner", *CONTENT),
)

bug(
    "S190",
    "vllm-mlx pull 744: a request that started from a cached state advanced that state in place",
    at=SLOTS,
    healthy="[*kept.values()])",
    broken="[slot(start - 1) if index == 0 and start == entry.record.protected_len and start else place "
    "for index, place in enumerate(kept.values())])",
    caught_by=("writes_go_to_private_units", *CONTENT),
)

bug(
    "S191",
    "vllm pull 56525: a state was cached when its chunk was scheduled, and matched before the chunk had run",
    at="swarden.engine_under_test.scheduler.scheduler:Scheduler._process",
    healthy="self.custody.publish(request, end=record.committed_len)",
    broken="self.custody.publish(request, end=record.launched_len)",
    caught_by=("cursors_are_ordered", "writes_go_to_private_units", *CONTENT, "AssertionError", "AccountingError"),
)

bug(
    "S192",
    "vllm pull 55450: the retirement of passed states stopped at the first block without one, and the older "
    "states stayed until the request ended",
    at="swarden.engine_under_test.cache.record:KVRecord.held",
    healthy="return [page for page, start in pages if not overlap(holes, start, start + page_size)]",
    broken="gap = max([start for start in starts if overlap(holes, start, start + page_size)], default=-1)\n"
    "    return [page for page, start in pages if start > gap]",
    caught_by=("passed_states_are_freed", "AccountingError"),
)

bug(
    "S193",
    "vllm pull 57253: the state at the end of what was computed was freed as passed, although the next prompt "
    "that continues it starts there",
    at="swarden.engine_under_test.sessions.controller:Sessions.keep",
    healthy="self._cut(record, record.committed_len)",
    broken="size = self._memory.page_size\n"
    "    self._cut(record, record.committed_len)\n"
    "    last = (record.committed_len - 1) // size\n"
    "    for pool in self._memory.pools if last * size >= record.protected_len else ():\n"
    "        if pool.slots:\n"
    "            self._memory.ledgers.free_alone(pool.name, record.handles[last:], owner=record.owner, "
    "cause=FreeCause.CUT, after=record.last_launch)\n"
    "            record.holes.setdefault(pool.name, []).append(range(last * size, (last + 1) * size))",
    caught_by=("records_keep_their_last_state",),
)

bug(
    "S194",
    "lmcache pull 5004: of a chunk whose state was never written a page was cached as if it had one",
    Hunk(
        "swarden.engine_under_test.cache.tree:IncomingPages.has",
        "[not overlap(spans, start, end) for spans in self.absent]",
        "[not overlap(spans, end - 1, end) for spans in self.absent]",
    ),
    Hunk(
        "swarden.engine_under_test.cache.tree:RadixTree._extend",
        "cuts.update(own, [max(first_live, end - tail_len)])",
        "cuts.update([] if self.components[-1].slots and spans is incoming.absent[-1] else own, "
        "[max(first_live, end - tail_len)])",
    ),
    caught_by=("live_nodes_hold_all_states", "live_nodes_hold_their_pages", "tree_counters_match_nodes"),
)
