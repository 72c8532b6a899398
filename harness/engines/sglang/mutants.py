"""Bugs of older releases as data: the reverse of their fixes, to be planted into a release that has the fix.

They fit 0.5.23; a release whose text differs is told by the mutant's StaleMutant.
"""

from harness.core.mutant import Hunk, Mutant

CATALOG = (
    Mutant(
        "preempted-request-lost",
        "to 0.5.17: a request that is preempted in vain is not put back into the queue (docs/findings)",
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
        "to 0.5.17: a mixed batch decodes without asking for free memory (docs/findings)",
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
        "page-larger-than-window",
        "pull 22470, to 0.5.10: with pages larger than the window, the last page that is cached has lost its window",
        (
            Hunk(
                "sglang.srt.mem_cache.common:free_swa_out_of_window_slots",
                "ceil_align(\n            max(sliding_window_size, page_size), page_size\n        )",
                "sliding_window_size",
            ),
        ),
        ("live_nodes_hold_their_pages",),
    ),
)
