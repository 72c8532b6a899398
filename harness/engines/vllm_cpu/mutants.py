"""Bugs of the worker, which no scheduler shows: only the forward pass of a model meets them.

They fit 0.32.0 for the CPU.  None is in a constructor: models are made once in a process, before or after a bug is
planted.  Sources are public reports of this class for vLLM and its workers on other devices.
"""

from swarden.harness.core.mutant import Mutants
from swarden.harness.engines.vllm_cpu.checkpoint import GEMMA, GRANITE, LFM2

OF_MEMORY, OF_ANSWERS = OF_BOTH = "kv_is_that_of_its_tokens", "outputs_match_uncached_model"
MUTANTS = Mutants(model=GEMMA, caught_by=OF_BOTH)
bug = MUTANTS.bug

RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
BATCH = "vllm.v1.worker.gpu_input_batch:InputBatch"
TABLE = "vllm.v1.worker.block_table:BlockTable"
TABLES = "vllm.v1.worker.block_table:MultiGroupBlockTable"
STATES = "vllm.v1.worker.mamba_utils"
KERNEL = "vllm.v1.attention.backends.cpu_attn:CPUAttentionBackendImpl"

bug(
    "resumed-request-keeps-a-block",
    "a request that resumes after its preemption keeps the first block of each of its old tables",
    at=f"{RUNNER}._update_states",
    healthy="req_state.block_ids = new_block_ids",
    broken="req_state.block_ids = tuple([*old[:1], *new[len(old[:1]):]] "
    "for old, new in zip(req_state.block_ids, new_block_ids))",
    is_canary=True,
)

bug(
    "condense-loses-the-row",
    "a request that is moved to the row of one that has ended keeps the block table of that one (tt-xla issue 5778)",
    at=f"{BATCH}.condense",
    healthy="self.block_table.move_row(last_req_index, empty_index)",
    broken="self.block_table.clear_row(last_req_index)",
)

bug(
    "condense-loses-the-last-block",
    "a row is moved without its last block (vllm-tt-plugin pull 103)",
    at=f"{TABLE}.move_row",
    healthy="block_table_np[tgt, :num_blocks] = block_table_np[src, :num_blocks]",
    broken="block_table_np[tgt, : num_blocks - 1] = block_table_np[src, : num_blocks - 1]",
)

bug(
    "condense-loses-the-computed-length",
    "a request that is moved to another row goes on at the position of the request that had this row",
    at=f"{BATCH}.condense",
    healthy="        self.num_computed_tokens_cpu[empty_index] = self.num_computed_tokens_cpu[\n"
    "            last_req_index\n"
    "        ]\n",
    broken="",
    caught_by=(OF_MEMORY, OF_ANSWERS, "work_makes_progress"),
)

bug(
    "condense-loses-the-last-token",
    "a row is moved without its last token, so the token of another request is read (vllm issue 43894, of a mask)",
    at=f"{BATCH}.condense",
    healthy="self.token_ids_cpu[empty_index, :num_tokens] = self.token_ids_cpu[\n"
    "            last_req_index, :num_tokens\n"
    "        ]",
    broken="self.token_ids_cpu[empty_index, : num_tokens - 1] = self.token_ids_cpu[\n"
    "            last_req_index, : num_tokens - 1\n"
    "        ]",
)

bug(
    "slots-of-the-first-group",
    "the KV of every group is written to the slots of the first group (vllm-gaudi pull 1323, of block sizes)",
    at=f"{TABLES}.compute_slot_mapping",
    healthy="block_table.compute_slot_mapping(num_reqs, query_start_loc, positions)",
    broken="block_table.compute_slot_mapping(num_reqs, query_start_loc, positions)\n"
    "        self.block_tables[-1].slot_mapping.gpu.copy_(self.block_tables[0].slot_mapping.gpu)",
)

bug(
    "first-group-read-by-all",
    "the layers of every group read by the block table of the first group",
    at=f"{RUNNER}._build_attention_metadata",
    healthy="cm.block_table_tensor = _get_block_table(kv_cache_gid)",
    broken="cm.block_table_tensor = _get_block_table(0)",
)

bug(
    "new-blocks-of-one-group",
    "the blocks that a running request gets are appended to the table of the first group only",
    at=f"{TABLES}.append_row",
    healthy="for i, block_table in enumerate(self.block_tables):",
    broken="for i, block_table in enumerate(self.block_tables[:1]):",
)

bug(
    "window-one-token-short",
    "a layer with a sliding window does not see the first token of the window",
    at=f"{KERNEL}.forward",
    healthy="sliding_window=self.sliding_window,\n        block_table=",
    broken="sliding_window=self.sliding_window - (self.sliding_window > 0),\n        block_table=",
)

bug(
    "resumed-request-loses-a-token",
    "a request that resumes loses its last output token (unified-cache-management issue 283)",
    at=f"{BATCH}.add_request",
    healthy="self.token_ids_cpu[req_index, start_idx:end_idx] = request.output_token_ids",
    broken="self.token_ids_cpu[req_index, start_idx : max(start_idx, end_idx - 1)] = request.output_token_ids[:-1]",
)

bug(
    "running-state-is-not-moved",
    "the running state of a request stays in its block when the request goes on in the next one",
    at=f"{STATES}:preprocess_mamba",
    healthy="if prev_state_idx != -1 and prev_state_idx != curr_state_idx:",
    broken="if prev_state_idx != -1 and prev_state_idx > curr_state_idx:",
    model=LFM2,
)

bug(
    "resumed-request-keeps-its-state-column",
    "a request that resumes reads its state where it was before (the symptom of vllm issue 44637)",
    at=f"{STATES}:cleanup_mamba_state_idx",
    healthy="itertools.chain(finished_req_ids, preempted_req_ids, resumed_req_ids)",
    broken="finished_req_ids",
    caught_by=(OF_MEMORY, OF_ANSWERS, "IndexError"),
    model=LFM2,
)

bug(
    "accepted-drafts-of-another-row",
    "the counts of accepted drafts stay in their rows when the batch is condensed, so a request goes on from the state "
    "after as many drafts as another request has accepted (the effect of vllm pull 53919)",
    at=f"{BATCH}.condense",
    healthy="        self.num_accepted_tokens_cpu[empty_index] = self.num_accepted_tokens_cpu[\n"
    "            last_req_index\n"
    "        ]\n",
    broken="",
    model=GRANITE,
)

bug(
    "accepted-drafts-lost-without-drafts",
    "a pass without drafts does not know how many drafts the pass before it has accepted, so it goes on from the state "
    "before them (vllm issue 39273 and pull 52942; pull 46424: the same condition ends the worker in mode all)",
    at=f"{RUNNER}.execute_model",
    healthy="use_spec_decode = self.speculative_config is not None",
    broken="use_spec_decode = len(scheduler_output.scheduled_spec_decode_tokens) > 0",
    model=GRANITE,
)

bug(
    "padded-prompt-tail-computed-as-a-prompt",
    "the last token of a prompt, padded with placeholders of drafts, is computed as part of the prompt, and its state "
    "has the placeholders in it (vllm pull 55178)",
    at="vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder._compute_common_metadata",
    healthy="prefill_to_decode |= padded_prompt_tail_rows",
    broken="prefill_to_decode |= padded_prompt_tail_rows & False",
    model=GRANITE,
)

bug(
    "cached-state-in-a-column-of-other-units",
    "a request that begins behind a cached prefix reads its state in a column that is counted in smaller blocks "
    "(vllm pull 55507 and issue 53142, of model runner V2)",
    at=f"{STATES}:preprocess_mamba",
    healthy="prev_state_idx = (req_state.num_computed_tokens - 1) // block_size",
    broken="prev_state_idx = (req_state.num_computed_tokens - 1) // (block_size // 2)",
    caught_by=(OF_MEMORY, OF_ANSWERS, "IndexError"),
    model=GRANITE,
)

bug(
    "convolution-without-accepted-drafts",
    "layers with a short convolution do not know how many drafts are accepted, and go on behind rejected ones (vllm "
    "pull 50272)",
    at=f"{RUNNER}._build_attention_metadata",
    healthy="                ShortConvAttentionMetadataBuilder,\n",
    broken="",
    model=LFM2,
)
