"""Ten bugs for the demo's engine. Each is planted with a fix of the engine's own leak, so that there is only one."""

from swarden import kit

ENGINE = "swarden.harness.engines.demo.engine:Engine"
ABORT, STEP, ADMIT = f"{ENGINE}.abort", f"{ENGINE}.step", f"{ENGINE}._admit"
LEAK = "self.pool.free(request.blocks[:num_full], request.id)  # the bug: a block that is not full leaks"
FREE = "self.pool.free(request.blocks, request.id)"
TAKE = "request.blocks = self.pool.take(need, request.id)"
MUTANTS = kit.Mutants(fixes=(kit.Hunk(ABORT, LEAK, FREE),))
bug = MUTANTS.bug

bug(
    "stop-token-leaks",
    "a request that ends with a stop token keeps its blocks",
    at=STEP,
    healthy=FREE,
    broken='self.pool.free(request.blocks if reason == "length" else [], request.id)',
    caught_by=("unit_has_one_owner",),
)

bug(
    "abort-between-chunks",
    "an abort between two chunks of a prompt frees only the blocks that are computed",
    at=ABORT,
    healthy=FREE,
    broken="self.pool.free(request.blocks[: num_full if 0 < num_full and not request.outputs else None], request.id)",
    caught_by=("unit_has_one_owner",),
)

bug(
    "freed-twice-at-the-border",
    "an abort of a decoding request whose computed blocks are all full frees its last block twice",
    at=ABORT,
    healthy=FREE,
    broken="self.pool.free(request.blocks + request.blocks[-1:] * "
    "(len(request.outputs) > 1 and request.computed_len % self.block_size == 0), request.id)",
    caught_by=("unit_has_one_owner",),
)

bug(
    "abort-empties-the-queue",
    "an abort of a waiting request takes those behind it out of the queue",
    at=ABORT,
    healthy="self.waiting = [other for other in self.waiting if other is not request]",
    broken="self.waiting = self.waiting[: self.waiting.index(request)] if request in self.waiting else self.waiting",
    caught_by=("drained_engine_is_empty",),
)

bug(
    "last-block-leaks",
    "a request that takes all blocks that are free beside running ones forgets one of them",
    at=ADMIT,
    healthy=TAKE,
    broken="request.blocks = self.pool.take(need, request.id)[: None if self.pool.free_blocks or not self.running "
    "else -1]",
    caught_by=("unit_has_one_owner",),
)

bug(
    "equal-prompts-share",
    "a request takes the blocks of a running one with an equal prompt, and each of them frees these blocks",
    at=ADMIT,
    healthy=TAKE,
    broken="request.blocks = next((one.blocks for one in self.running if one.prompt == request.prompt and "
    "len(one.blocks) == need), None) or self.pool.take(need, request.id)",
    caught_by=("unit_has_one_owner",),
)

bug(
    "full-batch-ends-admission",
    "an abort of a waiting request while the batch is full leaves one place less in the batch",
    at=ABORT,
    healthy='self.outputs.append(Output(request, None, "abort"))',
    broken='self.outputs.append(Output(request, None, "abort"))\n'
    "        self.max_running -= not request.blocks and len(self.running) == self.max_running",
    caught_by=("stuck",),
)

bug(
    "one-token-too-many",
    "a request whose prompt ends with a full chunk gets one token more than it asked for",
    at=STEP,
    healthy="len(request.outputs) >= request.max_new_tokens:",
    broken="len(request.outputs) >= request.max_new_tokens + (len(request.prompt) % self.chunk_len == 0):",
    caught_by=("outputs_stay_within_max_new_tokens",),
)

bug(
    "refused-in-silence",
    "a request that is longer than the pool gets no answer while another one waits",
    at=f"{ENGINE}.add",
    healthy='self.outputs.append(Output(request, None, "rejected"))',
    broken='self.outputs += [] if self.waiting else [Output(request, None, "rejected")]',
    caught_by=("drained_engine_is_empty",),
)

bug(
    "abort-before-a-queue-leaks",
    "of the blocks of a request that is aborted while two others wait, the first one leaks",
    at=ABORT,
    healthy=FREE,
    broken="self.pool.free(request.blocks[len(self.waiting) > 1 :], request.id)",
    caught_by=("unit_has_one_owner",),
)
