"""Bugs of the worker, which no scheduler shows: only the forward pass of a model meets them.

They fit 0.5.23, with the fix of a known bug of its attention on CPUs.
"""

from pathlib import Path

from swarden.harness.core.known_bug import read_bug
from swarden.harness.core.mutant import Mutants
from swarden.harness.engines.sglang.worker_model import LAGUNA

OF_ATTENTION = read_bug(Path(__file__).parent / "findings/windowed-layers-read-by-full-slots.toml")
OF_MEMORY, OF_ANSWERS = OF_BOTH = "kv_is_that_of_its_tokens", "outputs_match_uncached_model"
MUTANTS = Mutants(model=LAGUNA, fixes=OF_ATTENTION.patches[0].hunks, caught_by=OF_BOTH)
bug = MUTANTS.bug

ATTENTION = "sglang.srt.layers.attention.torch_native_backend:TorchNativeAttnBackend"
BATCH = "sglang.srt.model_executor.forward_batch_info"

bug(
    "windowed-kv-written-to-full-slots",
    "the KV of windowed layers is written to the slots of the full ones (the other half of the known bug)",
    at=f"{ATTENTION}.init_forward_metadata",
    healthy="""self.swa_out_cache_loc = (
            self.token_to_kv_pool.translate_loc_from_full_to_swa(
                forward_batch.out_cache_loc
            )
        )""",
    broken="self.swa_out_cache_loc = forward_batch.out_cache_loc",
    caught_by=(OF_MEMORY, OF_ANSWERS, "IndexError"),
)

bug(
    "window-one-token-short",
    "a layer with a sliding window does not see the first token of the window",
    at=f"{ATTENTION}._make_sliding_window_mask",
    healthy="k_pos >= q_pos - sliding_window_size",
    broken="k_pos > q_pos - sliding_window_size",
)

bug(
    "decode-masked-as-a-first-token",
    "the mask of a decode is that of position 0, so a windowed layer sees the first token alone",
    at=f"{ATTENTION}._run_sdpa_forward_decode",
    healthy="query_offset=seq_len_kv - seq_len_q,",
    broken="query_offset=0,",
)

bug(
    "prompts-read-the-first-row",
    "each prompt of a batch reads the cached prefix by the row of the first request",
    at=f"{ATTENTION}._run_sdpa_forward_extend",
    healthy="req_pool_idx = req_pool_indices[seq_idx]",
    broken="req_pool_idx = req_pool_indices[0]",
    caught_by=(OF_MEMORY, OF_ANSWERS, "IndexError"),
)

bug(
    "kv-of-a-lone-decode-not-written",
    "a decode of one request does not write its KV",
    at=f"{ATTENTION}.forward_decode",
    healthy="if save_kv_cache and k is not None and v is not None:",
    broken="if save_kv_cache and k is not None and v is not None and len(k) > 1:",
)

bug(
    "key-of-the-last-token-not-written",
    "the key of the last token of a pass is not written",
    at="sglang.srt.mem_cache.memory_pool:_set_kv_buffer_impl",
    healthy="        k_cache[indices] = k\n        v_cache[indices] = v",
    broken="        k_cache[indices[:-1]] = k[:-1]\n        v_cache[indices] = v",
)

bug(
    "decode-at-the-next-position",
    "a decode is computed at the position behind its own",
    at=f"{BATCH}:ForwardBatch.init_new",
    healthy="ret.positions = clamp_position(batch.seq_lens)",
    broken="ret.positions = clamp_position(batch.seq_lens + 1)",
)

bug(
    "chunk-at-the-positions-of-the-first-one",
    "the tokens behind a cached prefix are computed at the positions from 0 on",
    at=f"{BATCH}:compute_position_torch",
    healthy="prefix_len, prefix_len + extend_len,",
    broken="0, extend_len,",
)

bug(
    "logits-of-the-first-prompt",
    "the logits of each prompt of a batch are taken as if it were the first one",
    at="sglang.srt.layers.logits_processor:LogitsProcessor._get_pruned_states",
    healthy="torch.cumsum(logits_metadata.extend_seq_lens, dim=0) - 1",
    broken="logits_metadata.extend_seq_lens - 1",
    caught_by=(OF_ANSWERS,),
)

bug(
    "token-of-another-request",
    "the tokens of a pass are handed to the wrong requests",
    at="sglang.srt.model_executor.model_runner:ModelRunner.sample",
    healthy="return next_token_ids",
    broken="return next_token_ids.roll(1)",
    caught_by=(OF_ANSWERS,),
)
