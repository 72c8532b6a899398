"""Bugs of the block pool and of the states of Mamba layers, to be planted into a release.

They fit 0.33.0; a release whose text differs is told by the mutant's StaleMutant.
"""

from harness.core.mutant import Hunk, Mutant

POOL = "vllm.v1.core.block_pool:BlockPool"
STATES = "vllm.v1.core.single_type_kv_cache_manager:MambaManager"

CATALOG = (
    Mutant(
        "freed-block-lost",
        "the first of the blocks without a hash that a request frees does not come back to the free queue",
        (
            Hunk(
                f"{POOL}.free_blocks",
                "self.free_block_queue.prepend_n(blocks_to_evict_first)",
                "self.free_block_queue.prepend_n(blocks_to_evict_first[1:])",
            ),
        ),
        ("unit_has_one_owner", "pools_conserve_units"),
    ),
    Mutant(
        "shared-block-freed-by-one-reader",
        "a block is put into the free queue by each of its readers, not by the last one",
        (
            Hunk(
                f"{POOL}.free_blocks",
                "block.ref_cnt -= 1\n        if block.ref_cnt == 0:",
                "block.ref_cnt -= 1\n        if True:",
            ),
        ),
        ("unit_has_one_owner",),
    ),
    Mutant(
        "second-reader-not-counted",
        "a hit of a block that another request reads does not count its new reader",
        (
            Hunk(
                f"{POOL}.touch",
                "            self.free_block_queue.remove(block)\n        block.ref_cnt += 1",
                "            self.free_block_queue.remove(block)\n            block.ref_cnt += 1",
            ),
        ),
        ("cached_units_count_their_readers",),
    ),
    Mutant(
        "running-state-freed",
        "a request frees the block with the state after its last computed token, from which its next pass begins",
        (Hunk(f"{STATES}.get_num_skipped_tokens", "return num_computed_tokens - 1", "return num_computed_tokens"),),
        ("slots_hold_their_prefix",),
    ),
)
