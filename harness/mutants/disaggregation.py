"""Bugs of prefill and decode on engines of their own, which are to come."""

from functools import partial

from harness.mutants.unplanted import Waiting

in_disaggregation = partial(Waiting, capability="disaggregation")

WHOLE_PROMPT_TAKEN_FOR_DECODE = in_disaggregation(
    "B73", "sglang pulls 24036 and 24857: the decode side took windowed pages for the whole prompt"
)
TAIL_WITHOUT_ITS_FLAG = in_disaggregation(
    "B75", "sglang pull 25419: eviction did not know that only a prompt's tail had windowed pages"
)
WHOLE_PROMPT_PRICED = in_disaggregation(
    "B78", "sglang pull 37506: a preallocation priced the whole prompt in every pool, and what fitted was refused"
)
DRAFT_WINDOW_IS_NOT_SENT = in_disaggregation("B80", "sglang pull 30461: the draft model's window was not transferred")
