"""Bugs of the block pool, of the states of Mamba layers and of the transfers of a pair, to be planted into a release.

They fit 0.33.0; a release whose text differs is told by the mutant's StaleMutant.
"""

from harness.core.mutant import Hunk, Mutant
from harness.engines.vllm.config import PAIR

POOL = "vllm.v1.core.block_pool:BlockPool"
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
WORKER = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker:NixlBaseConnectorWorker"
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
    Mutant(
        "blocks-freed-before-they-are-read",
        "a prefill side frees the blocks of a prompt when it ends, and not when the decode side has read them",
        (
            Hunk(
                f"{SCHEDULER}._free_request",
                "    if not delay_free_blocks:\n",
                "    if connector_delay_free_blocks:\n"
                "        self.kv_cache_manager.free(request)\n"
                "    if not delay_free_blocks:\n",
            ),
        ),
        ("sent_pages_are_held",),
        machine=PAIR,
    ),
    Mutant(
        "finished-sending-ignored",
        "a prefill side takes no note of the requests whose blocks have been read",
        (
            Hunk(
                f"{SCHEDULER}._update_from_kv_xfer_finished",
                "for req_id in kv_connector_output.finished_sending or ():",
                "for req_id in ():",
            ),
        ),
        ("stuck",),
        machine=PAIR,
    ),
    Mutant(
        "first-blocks-read-instead-of-the-last",
        "the decode side reads as many blocks as it lacks, but the first of those that it is offered, not the last",
        (
            Hunk(
                f"{WORKER}._apply_prefix_caching",
                "            if num_decode_blocks < len(prefill_group):\n"
                "                prefill_block_ids[i] = prefill_group[-num_decode_blocks:]",
                "            if num_decode_blocks < len(prefill_group):\n"
                "                prefill_block_ids[i] = prefill_group[:num_decode_blocks]",
            ),
        ),
        ("sent_pages_are_held",),
        machine=PAIR,
    ),
)
