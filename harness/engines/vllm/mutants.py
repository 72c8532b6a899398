"""Bugs of the block pool, of states, of the second tier, of copies of single blocks, of saves, of structured output,
of the transfers of a pair and of chunks of LMCache, to be planted into a release.

They fit 0.33.0; planting one into a release whose text differs raises StalePatch.
"""

from swarden.harness.core.mutant import Hunk, Mutants
from swarden.harness.core.target import PAIR

MUTANTS = Mutants()
bug = MUTANTS.bug

POOL = "vllm.v1.core.block_pool:BlockPool"
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
WORKER = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker"
TIERS = "vllm.v1.kv_offload.tiering"
SIMPLE = "vllm.v1.simple_kv_offload.manager:SimpleCPUOffloadScheduler"
MOONCAKE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.scheduler:MooncakeStoreScheduler"
GRAMMARS = "vllm.v1.structured_output:StructuredOutputManager"
STATES = "vllm.v1.core.single_type_kv_cache_manager:MambaManager"

bug(
    "freed-block-lost",
    "the first of the blocks without a hash that a request frees does not come back to the free queue",
    at=f"{POOL}.free_blocks",
    healthy="self.free_block_queue.prepend_n(blocks_to_evict_first)",
    broken="self.free_block_queue.prepend_n(blocks_to_evict_first[1:])",
    caught_by=("unit_has_one_owner", "pools_conserve_units"),
    is_canary=True,
)

bug(
    "shared-block-freed-by-one-reader",
    "a block is put into the free queue by each of its readers, not by the last one",
    at=f"{POOL}.free_blocks",
    healthy="block.ref_cnt -= 1\n        if block.ref_cnt == 0:",
    broken="block.ref_cnt -= 1\n        if True:",
    caught_by=("unit_has_one_owner",),
    is_canary=True,
)

bug(
    "second-reader-not-counted",
    "a hit of a block that another request reads does not count its new reader",
    at=f"{POOL}.touch",
    healthy="            self.free_block_queue.remove(block)\n        block.ref_cnt += 1",
    broken="            self.free_block_queue.remove(block)\n            block.ref_cnt += 1",
    caught_by=("cached_units_count_their_readers",),
    is_canary=True,
)

bug(
    "evicted-block-not-reported",
    "the KV events of an eviction leave out the first hash of the block, so a router takes it for cached",
    at=f"{POOL}._emit_block_removed_events",
    healthy="for block_hash in block_hashes:",
    broken="for block_hash in block_hashes[1:]:",
    caught_by=("router_view_matches_cache",),
)

bug(
    "stored-block-reported-behind-itself",
    "the parent in a KV event is the first stored block, not the one before it",
    at=f"{POOL}.cache_full_blocks",
    healthy="block_hashes[num_cached_blocks - 1]",
    broken="block_hashes[num_cached_blocks]",
    caught_by=("stored_blocks_have_known_parents",),
)

bug(
    "running-state-freed",
    "a request frees the block with the state after its last computed token, from which its next pass begins",
    at=f"{STATES}.get_num_skipped_tokens",
    healthy="return num_computed_tokens - 1",
    broken="return num_computed_tokens",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "blocks-freed-before-they-are-read",
    "a prefill side frees the blocks of a prompt when it ends, and not when the decode side has read them",
    at=f"{SCHEDULER}._free_request",
    healthy="    if not delay_free_blocks:\n",
    broken="    if connector_delay_free_blocks:\n"
    "        self.kv_cache_manager.free(request)\n"
    "    if not delay_free_blocks:\n",
    caught_by=("sent_pages_are_held",),
    machine=PAIR,
)

bug(
    "finished-sending-ignored",
    "a prefill side takes no note of the requests whose blocks have been read",
    at=f"{SCHEDULER}._update_from_kv_xfer_finished",
    healthy="for req_id in kv_connector_output.finished_sending or ():",
    broken="for req_id in ():",
    caught_by=("stuck",),
    machine=PAIR,
)

bug(
    "preempted-prefill-answered-without-blocks",
    "pull 50297: a prompt that is preempted while its last pass runs is answered, and has no blocks to be read",
    at=f"{SCHEDULER}.schedule",
    healthy="drop_stale_output=self.requires_kv_delivery,",
    broken="drop_stale_output=False,",
    caught_by=("AssertionError",),
    machine=PAIR,
)

bug(
    "finished-read-ignored",
    "no release has it: a decode side takes no note that a read has ended, so its request waits forever",
    at=f"{SCHEDULER}._update_from_kv_xfer_finished",
    healthy="self.finished_recving_kv_req_ids.add(req_id)",
    broken="pass",
    caught_by=("due_transfers_are_taken_over",),
    machine=PAIR,
)

bug(
    "first-blocks-read-instead-of-the-last",
    "the decode side reads as many blocks as it lacks, but the first of those that it is offered, not the last",
    at=f"{WORKER}._apply_prefix_caching",
    healthy="            if num_decode_blocks < len(prefill_group):\n"
    "                prefill_block_ids[i] = prefill_group[-num_decode_blocks:]",
    broken="            if num_decode_blocks < len(prefill_group):\n"
    "                prefill_block_ids[i] = prefill_group[:num_decode_blocks]",
    caught_by=("sent_pages_are_held",),
    machine=PAIR,
)

bug(
    "cached-blocks-read-again",
    "the decode side reads the whole prompt, also the blocks of its hit: what they have is written once more",
    at="vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler:"
    "NixlPullConnectorScheduler.update_state_after_alloc",
    healthy="blocks.get_unhashed_block_ids_all_groups()",
    broken="[[block.block_id for block in group if not block.is_null] for group in blocks.blocks]",
    caught_by=("copies_go_to_private_units",),
    machine=PAIR,
)

bug(
    "cached-blocks-evicted-beside-free-ones",
    "to 0.24, pull 33710: freed blocks without a hash go to the end of the queue, behind those that are cached",
    at=f"{POOL}.free_blocks",
    healthy="self.free_block_queue.prepend_n(blocks_to_evict_first)",
    broken="self.free_block_queue.append_n(blocks_to_evict_first)",
    caught_by=("evictions_serve_takes",),
)

bug(
    "fenced-requests-preempted",
    "issue 49674, to 0.27: a request is preempted although its blocks wait for a pass in flight, then the next one",
    at=f"{SCHEDULER}.schedule",
    healthy="if not self._request_blocks_can_be_freed(preempted_req):",
    broken="if False:",
    caught_by=("preempted_requests_free_units_at_once",),
)

bug(
    "running-request-skipped",
    "pull 26754 and issue 49097: after a preemption the index of the running requests is one too high",
    at=f"{SCHEDULER}.schedule",
    healthy="if victim_index < req_index:",
    broken="if False:",
    caught_by=("running_requests_are_computed",),
)

bug(
    "last-output-of-a-turn-kept",
    "a session keeps the last output of a turn, which was never computed, before its next input",
    at=f"{SCHEDULER}._update_request_as_session",
    healthy="keep_end = session.num_tokens - 1",
    broken="keep_end = session.num_tokens",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "half-of-a-request-looked-up",
    "no release has it: a look-up goes only through the first half of a request, so cached blocks are computed again",
    at="vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks",
    healthy="max_cache_hit_length = request.num_tokens - 1",
    broken="max_cache_hit_length = request.num_tokens // 2",
    caught_by=("first_passes_skip_cached_blocks",),
)

bug(
    "files-read-into-each-others-chunks",
    "no release has it: the files of a job are read into the chunks of CPU memory in the wrong order",
    at=f"{TIERS}.fs.manager:FileSystemTierManager.submit_load",
    healthy="for cid in job_metadata.chunk_ids]",
    broken="for cid in reversed(job_metadata.chunk_ids)]",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "chunks-written-to-each-others-files",
    "no release has it: the chunks of a job are written to the files in the wrong order",
    at=f"{TIERS}.fs.manager:FileSystemTierManager.submit_store",
    healthy="for cid in job_metadata.chunk_ids]",
    broken="for cid in reversed(job_metadata.chunk_ids)]",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "pending-stores-not-reported",
    "up to 0.29.0: an engine core without requests does not learn that a copy has ended, and its blocks stay pinned",
    at="vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector:"
    "SimpleCPUOffloadConnector.has_pending_push_work",
    healthy="return self.scheduler_manager.has_pending_stores()",
    broken="return False",
    caught_by=("drained_engine_is_empty",),
)

bug(
    "loaded-cpu-blocks-not-pinned",
    "no release has it: a load does not count as a reader of its blocks of CPU memory, but is taken off when it ends",
    at=f"{SIMPLE}.update_state_after_alloc",
    healthy="self.cpu_block_pool.touch(cpu_blocks_to_touch)",
    broken="pass",
    caught_by=("cached_units_count_their_readers",),
)

bug(
    "blocks-freed-before-they-are-saved",
    "issue 46240 without its assertion: the blocks of an ended request are freed though its connector still reads them",
    at=f"{SCHEDULER}._free_request",
    healthy="    if not delay_free_blocks:\n",
    broken="    if connector_delay_free_blocks:\n"
    "        self._free_request_blocks(request)\n"
    "    if not delay_free_blocks:\n",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "newest-blocks-evicted-first",
    "no release has it: cached blocks that a request frees are put before those of earlier ones in the free queue",
    at=f"{POOL}.free_blocks",
    healthy="self.free_block_queue.append_n(blocks_to_evict_last)",
    broken="self.free_block_queue.prepend_n(blocks_to_evict_last)",
    caught_by=("longest_idle_units_are_evicted_first",),
)

bug(
    "save-keeps-no-block",
    "a save in the Mooncake store keeps no block, so a preemption frees what it reads (0.26.0, issue 52360)",
    Hunk(f"{MOONCAKE}._reference_save_blocks", "pool.touch([pool.blocks[block_id] for block_id in block_ids])", "pass"),
    at=f"{MOONCAKE}.update_connector_output",
    healthy="pool.free_blocks(pool.blocks[bid] for bid in reversed(block_ids))",
    broken="pass",
    caught_by=("cached_units_count_their_readers",),
)

bug(
    "chunks-unpinned-twice",
    "LMCache 5090, to 0.5.5: a load takes the pins of the look-up off its chunks, and the end of the request once more",
    at="lmcache.v1.cache_engine:LMCacheEngine.retrieve",
    healthy="if (self.async_loading or self._is_passive()) and memory_obj.is_pinned:",
    broken="if memory_obj.is_pinned:",
    caught_by=("cached_units_count_their_readers",),
)

bug(
    "newest-request-admitted-first",
    "no release has it: the queue of waiting requests is a stack, so a request waits for as long as others arrive",
    Hunk("vllm.v1.core.sched.request_queue:FCFSRequestQueue.peek_request", "return self[0]", "return self[-1]"),
    at="vllm.v1.core.sched.request_queue:FCFSRequestQueue.pop_request",
    healthy="return self.popleft()",
    broken="return self.pop()",
    caught_by=("waiting_requests_are_not_passed_over",),
)

bug(
    "last-place-left-empty",
    "no release has it: one request fewer than allowed is admitted beside running ones",
    at=f"{SCHEDULER}.schedule",
    healthy="if num_running >= self.max_num_active_reqs:",
    broken="if num_running >= max(1, self.max_num_active_reqs - 1):",
    caught_by=("waiting_requests_take_free_places",),
)

bug(
    "bitmask-rows-of-each-other",
    "the rows of the bitmask are those of the requests in the reverse order",
    at=f"{GRAMMARS}.grammar_bitmask",
    healthy="cumulative_index = grammar_idx * mask_stride",
    broken="cumulative_index = (len(structured_output_request_ids) - 1 - grammar_idx) * mask_stride",
    caught_by=("outputs_match_reference", "grammars_get_only_what_they_allow"),
)

bug(
    "grammar-not-rolled-back",
    "a grammar stays behind the drafts for which the bitmask was filled",
    at=f"{GRAMMARS}.grammar_bitmask",
    healthy="grammar.rollback(state_advancements)",
    broken="pass",
    caught_by=("grammars_get_only_what_they_allow",),
)

bug(
    "failed-grammar-parks-its-request",
    "a request whose grammar cannot be compiled waits for it for ever",
    at=f"{SCHEDULER}._handle_blocked_waiting_request",
    healthy="struct_output_req.grammar is None:",
    broken="isinstance(struct_output_req.grammar, Exception | None):",
    caught_by=("work_makes_progress",),
)
