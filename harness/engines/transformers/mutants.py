"""Bugs of the ledger, the sectors, the rings and the index tensors, to be planted into 5.24.0, whose text they fit."""

from swarden.harness.core.mutant import Mutants

MUTANTS = Mutants()
bug = MUTANTS.bug

BATCHING = "transformers.generation.continuous_batching"
LEDGER = f"{BATCHING}.cache_allocators.cache_allocator:BlockLedger"
ALLOCATOR = f"{BATCHING}.cache_allocators.cache_allocator:CacheAllocator"
RING = f"{BATCHING}.cache_allocators.sliding_attention:SlidingAttentionCacheAllocator"

bug(
    "reader-not-counted",
    "a match of a block that another request reads does not count its new reader",
    at=f"{LEDGER}.acquire",
    healthy="self.shared_ref_counts[block_id] = self.shared_ref_counts.get(block_id, 1) + 1",
    broken="pass",
    caught_by=("cached_units_count_their_readers",),
)

bug(
    "evicted-hash-kept",
    "an evicted block can still be found by its hash",
    at=f"{LEDGER}.evict_cached_blocks",
    healthy="self.hash_to_block.pop(block_hash)",
    broken="pass",
    caught_by=("cached_units_count_their_readers",),
)

bug(
    "last-block-not-freed",
    "a request that ends keeps its last block",
    at=f"{ALLOCATOR}.free_blocks",
    healthy="self.pool.free_blocks(self.index, freed_blocks)",
    broken="self.pool.free_blocks(self.index, freed_blocks[:-1])",
    caught_by=("unit_has_one_owner",),
    is_canary=True,
)

bug(
    "sector-lost",
    "the first of the empty sectors does not come back to the memory of all groups",
    at=f"{BATCHING}.cache_allocators.cache_pool:CachePool.try_to_free_sectors",
    healthy="for root in deleted_roots:",
    broken="for root in deleted_roots[1:]:",
    caught_by=("unit_has_one_owner",),
)

bug(
    "forked-block-not-copied",
    "the last block of a sequence that is forked is not copied",
    at=f"{BATCHING}.cache:PagedAttentionCache.perform_cache_copy",
    healthy="if src_blocks:",
    broken="if len(src_blocks) > 1:",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "ring-one-slot-off",
    "behind the first window, the reads of a ring begin one token too early",
    at=f"{RING}.get_read_indices",
    healthy="start_index = (past_length + 1) % self.sliding_window",
    broken="start_index = past_length % self.sliding_window",
    caught_by=("slots_hold_their_prefix",),
    is_canary=True,
)

bug(
    "restored-blocks-in-another-order",
    "the blocks of a copy on the CPU are restored in the reverse order",
    at=f"{BATCHING}.offloading_manager:OffloadingManager.restore_scheduled_requests",
    healthy="all_cpu_ids[name].extend(cpu_ids[:num_blocks])",
    broken="all_cpu_ids[name].extend(cpu_ids[:num_blocks][::-1])",
    caught_by=("slots_hold_their_prefix",),
)

bug(
    "carried-token-of-another-request",
    "an asynchronous batch takes the first token of the batch before it for each request",
    at=f"{BATCHING}.input_outputs:ContinuousBatchingAsyncIOs.infer_carry_over_ids",
    healthy="carry_over_ids[new_token_position] = i",
    broken="carry_over_ids[new_token_position] = 0",
    caught_by=("slots_hold_their_prefix",),
)
