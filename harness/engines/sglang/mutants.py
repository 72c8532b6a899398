"""Bugs of older releases as data: the reverse of their fixes, to be planted into a release that has the fix.

They fit 0.5.23; a release whose text differs is told by the mutant's StaleMutant.
"""

from harness.core.mutant import Hunk, Mutant

CATALOG = (
    Mutant(
        "preempted-request-lost",
        "to 0.5.21: a request that is preempted in vain is not put back into the queue (docs/findings)",
        (
            Hunk(
                "sglang.srt.managers.scheduler:Scheduler._get_new_batch_prefill_raw",
                "for req in adder.preempt_list:\n            self._add_request_to_queue(req)\n        return None,",
                "return None,",
            ),
        ),
        ("requests_are_in_one_queue",),
    ),
    Mutant(
        "mixed-batch-out-of-memory",
        "to 0.5.20: a mixed batch decodes without asking for free memory (docs/findings)",
        (
            Hunk(
                "sglang.srt.managers.scheduler:Scheduler._get_new_batch_prefill_raw",
                "if not running_batch.is_empty() and running_batch.check_decode_mem():",
                "if not running_batch.is_empty():",
            ),
        ),
        ("RuntimeError",),
    ),
    Mutant(
        "use-after-free-of-a-locked-node",
        "pull 29352, to 0.5.14: a prompt that is computed again replaces the pages of a node that others read",
        (
            Hunk(
                "sglang.srt.mem_cache.unified_cache.components.swa:SWAComponent._recover_from_incoming",
                "if full_cd.lock_ref > 0:",
                "if False:",
            ),
        ),
        ("shared_pages_match_tree_path", "locked_nodes_stay_live", "units_move_only_by_their_owner"),
    ),
    Mutant(
        "chunked-prefill-out-of-memory",
        "pull 23174, to 0.5.10: the next chunk of a prompt is not limited by the free tokens of the windowed pool",
        (
            Hunk(
                "sglang.srt.managers.schedule_policy:PrefillAdder.add_chunked_req",
                """    _rem_tokens = self.memory_budget.fit_chunk(
        extend_input_len=cand_extend_input_len,
        max_new_tokens=self._swa_new_tokens(req),
        chunk_limit=_rem_tokens,
    )
    if _rem_tokens is None:
        return req
""",
                "    _rem_tokens = self.rem_chunk_tokens\n",
            ),
        ),
        ("RuntimeError",),
    ),
)
