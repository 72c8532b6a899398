"""Bugs of older releases as data: the reverse of their fixes, to be planted into 0.5.23, which has the fixes."""

from swarden.harness.core.mutant import Mutants
from swarden.harness.core.target import PAIR

MUTANTS = Mutants()
bug = MUTANTS.bug

bug(
    "preempted-request-lost",
    "to 0.5.21: a request that is preempted in vain is not put back into the queue (docs/findings)",
    at="sglang.srt.managers.scheduler:Scheduler._get_new_batch_prefill_raw",
    healthy="for req in adder.preempt_list:\n            self._add_request_to_queue(req)\n        return None,",
    broken="return None,",
    caught_by=("requests_are_in_one_queue",),
)

bug(
    "mixed-batch-out-of-memory",
    "to 0.5.20: a mixed batch decodes without asking for free memory (docs/findings)",
    at="sglang.srt.managers.scheduler:Scheduler._get_new_batch_prefill_raw",
    healthy="if not running_batch.is_empty() and running_batch.check_decode_mem():",
    broken="if not running_batch.is_empty():",
    caught_by=("RuntimeError",),
)

bug(
    "use-after-free-of-a-locked-node",
    "pull 29352, to 0.5.14: a prompt that is computed again replaces the pages of a node that others read",
    at="sglang.srt.mem_cache.unified_cache.components.swa:SWAComponent._recover_from_incoming",
    healthy="if full_cd.lock_ref > 0:",
    broken="if False:",
    caught_by=("shared_pages_match_tree_path", "locked_nodes_stay_live", "units_move_only_by_their_owner"),
)

bug(
    "chunked-prefill-out-of-memory",
    "pull 23174, to 0.5.10: the next chunk of a prompt is not limited by the free tokens of the windowed pool",
    at="sglang.srt.managers.schedule_policy:PrefillAdder.add_chunked_req",
    healthy="""    _rem_tokens = self.memory_budget.fit_chunk(
        extend_input_len=cand_extend_input_len,
        max_new_tokens=self._swa_new_tokens(req),
        chunk_limit=_rem_tokens,
    )
    if _rem_tokens is None:
        return req
""",
    broken="    _rem_tokens = self.rem_chunk_tokens\n",
    caught_by=("RuntimeError",),
)

bug(
    "reset-during-a-backup",
    "before pull 20746: a flush does not wait for the copies to the host that are in flight",
    at="sglang.srt.managers.scheduler:Scheduler.is_fully_idle",
    healthy="idle &= len(tc.ongoing_write_through) == 0",
    broken="pass",
    caught_by=("reset_spares_kv_in_use",),
)

bug(
    "evicted-page-not-reported",
    "the KV events of an eviction leave out nodes of one page, so a router takes them for cached",
    at="sglang.srt.mem_cache.events:KVCacheEventRecorder.record_remove",
    healthy="if block_hashes:",
    broken="if block_hashes[1:]:",
    caught_by=("router_view_matches_cache",),
    is_canary=True,
)

bug(
    "uncached-request-is-cached",
    "no release has it: a request that asks not to be cached (skip_radix_cache_insert) is inserted when it ends",
    at="sglang.srt.mem_cache.common:release_kv_cache",
    healthy="checkpoint = checkpoint and not req.skip_radix_cache_insert",
    broken="checkpoint = bool(checkpoint)",
    caught_by=("uncached_requests_insert_nothing",),
)

bug(
    "half-of-a-prompt-looked-up",
    "no release has it: a look-up goes only through the first half of a prompt, so cached tokens are computed again",
    at="sglang.srt.managers.schedule_batch:Req._compute_max_prefix_len",
    healthy="max_prefix_len = input_len - 1",
    broken="max_prefix_len = input_len // 2",
    caught_by=("first_passes_skip_cached_prefixes",),
    is_canary=True,
)

bug(
    "states-of-drafts-not-kept",
    "before pull 26351: NGRAM leaves the state of a request as it was before its accepted drafts",
    at="sglang.srt.speculative.spec_utils:commit_mamba_states_after_verify",
    healthy="if mambaish_config(model_runner.model_config) is None:",
    broken="if True:",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "first-transfer-not-taken-over",
    "no release has it: a decode side passes over the first transfer of its queue, so its request waits forever",
    at="sglang.srt.disaggregation.decode:DecodeTransferQueue.pop_transferred",
    healthy="enumerate(zip(self.queue, polls)):",
    broken="list(enumerate(zip(self.queue, polls)))[1:]:",
    caught_by=("due_transfers_are_taken_over",),
    machine=PAIR,
)

bug(
    "row-of-a-chunk-counted-twice",
    "pull 37558: a chunked prompt keeps its row and is in the new batch, so another row stays free",
    at="sglang.srt.managers.scheduler:Scheduler._get_new_batch_prefill_raw",
    healthy="num_held_rows = sum(r.kv.holds_kv for r in adder.can_run_list)",
    broken="num_held_rows = 0",
    caught_by=("waiting_requests_take_free_places",),
)

bug(
    "newest-request-admitted-first",
    "no release has it: a request waits for as long as others arrive, as with `lpm` (issue 31954), which promises less",
    at="sglang.srt.managers.scheduler:Scheduler._get_new_batch_prefill_raw",
    healthy="for req in self.waiting_queue:\n        # A spent",
    broken="for req in reversed(self.waiting_queue):\n        # A spent",
    caught_by=("waiting_requests_are_not_passed_over",),
)

bug(
    "refused-turn-keeps-its-session",
    "to 0.5.17: a turn that is refused counts, so a session stays open for as long as its client sends such turns",
    at="sglang.srt.session.session_controller:Session.create_req",
    healthy="fill_ids = carry_fill\n",
    broken="fill_ids = carry_fill\n    if abort:\n        self.last_active_time = time.monotonic()\n",
    caught_by=("idle_sessions_close_in_time",),
)

bug(
    "abort-reported-as-length",
    "no release has it: a running request that is aborted ends as if it had all of its tokens",
    at="sglang.srt.managers.scheduler:Scheduler.abort_request",
    healthy="req.to_finish = FINISH_ABORT()",
    broken="req.to_finish = __import__('sglang').srt.managers.schedule_batch.FINISH_LENGTH(length=0)",
    caught_by=("outputs_end_as_asked",),
)

bug(
    "clock-of-the-tree-runs-backwards",
    "no release has it: what was used last has the earliest time, so prefixes in use are evicted before others",
    at="sglang.srt.mem_cache.evict_policy:LRUStrategy.get_priority",
    healthy="return node.last_access_time",
    broken="return -node.last_access_time",
    caught_by=("longest_idle_units_are_evicted_first",),
)

bug(
    "host-not-evicted-for-a-prefetch",
    "issue 12875: the host makes no room for a prefetch, which gets what happens to be free",
    at="sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller:HybridCacheController.allocate_storage_hit",
    healthy="evict_host(hit_tokens)",
    broken="pass",
    caught_by=("prefetches_get_idle_host_memory",),
)

bug(
    "kv-restored-without-its-index-keys",
    "issue 30057, to 0.5.16: a prefetch counts KV that it has read without its index keys",
    at="sglang.srt.managers.cache_controller:HiCacheController._page_transfer_kv_batch",
    healthy="return min([kv_hits, *sidecar_hits.values()])",
    broken="return kv_hits",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "eviction-of-all-that-is-needed",
    "pull 32016, to 0.5.16: an eviction frees as many tokens as are needed, beside those that are free",
    at="sglang.srt.mem_cache.allocator.base:BaseTokenToKVPoolAllocator.evict_to_free_tokens",
    healthy="EvictParams(num_tokens=shortfall)",
    broken="EvictParams(num_tokens=num_tokens)",
    caught_by=("evictions_serve_takes",),
)
