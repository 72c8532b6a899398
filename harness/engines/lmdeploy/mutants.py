"""Bugs of the block managers, the trie, the checkpoints and the inputs of a pass, to be planted into 0.18.0."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

PAGING, MAKER = "lmdeploy.pytorch.paging", "lmdeploy.pytorch.engine.inputs_maker:InputsMakerAsync"
TRIE = f"{PAGING}.block_trie"

bug(
    "reader-not-counted",
    "a request that matches cached blocks does not count as their reader",
    at=f"{TRIE}.trie:BlockTrie._match_block_prefix",
    healthy="self.allocator.add_ref_count(matched_block_ids, 1)",
    broken="pass",
    caught_by=("cached_units_count_their_readers",),
)

bug(
    "duplicate-block-kept",
    "a block that is replaced by a cached one with the same tokens is not freed",
    at=f"{TRIE}.kv_lifecycle:KVBlockLifecycle.commit_path_extension",
    healthy="self.allocator.free(np.array(free_blocks))",
    broken="pass",
    caught_by=("unit_has_one_owner",),
)

bug(
    "last-block-not-freed",
    "a request that ends keeps its last block",
    at=f"{PAGING}.block_manager.default_block_manager:DefaultBlockManager.free",
    healthy="self.allocator.free(msg.logical_blocks.get_real_blocks())",
    broken="self.allocator.free(msg.logical_blocks.get_real_blocks()[:-1])",
    caught_by=("unit_has_one_owner",),
    is_canary=True,
)

bug(
    "window-one-block-short",
    "a block leaves the window while its last tokens are still read",
    at=f"{PAGING}.block_manager.window_block_manager:_num_blocks_to_drop",
    healthy="win_start_block_id = (history_len - window_size) // block_size",
    broken="win_start_block_id = (history_len - window_size) // block_size + 1",
    caught_by=("frontiers_spare_the_window", "slots_hold_their_prefix"),
)

bug(
    "state-not-restored",
    "a request that continues behind a checkpoint begins with the state of an earlier request",
    at=f"{MAKER}._prepare_prefill_cache_restore",
    healthy="return kv_restore_plan, state_restore_plan",
    broken="return kv_restore_plan, None",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "partial-block-not-restored",
    "the tokens of a checkpoint behind its last whole block are not copied to the block of the request",
    at=f"{MAKER}._prepare_prefill_cache_restore",
    healthy="if copy_plan.kv_block_pairs:",
    broken="if len(copy_plan.kv_block_pairs) > 1:",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "checkpoint-leaks-with-its-node",
    "a node that is evicted keeps the state of its checkpoint",
    at=f"{TRIE}.kv_lifecycle:KVBlockLifecycle._try_evict_leaf",
    healthy="self.state_checkpoints.release_checkpoint(leaf)",
    broken="pass",
    caught_by=("unit_has_one_owner",),
)

bug(
    "row-of-another-request",
    "a decode keeps the first rows of the batch instead of those of the requests that go on",
    at=f"{MAKER}.create_model_inputs_delta",
    healthy="indice_cpu=indices_cpu,",
    broken="indice_cpu=np.arange(len(valid_seqs)),",
    caught_by=("outputs_end_as_asked", "slots_hold_their_prefix"),
    is_canary=True,
)
