"""What an engine was built for, as far as it can be told."""

from collections.abc import Sequence
from typing import NamedTuple


class Estimates(NamedTuple):
    """By what admission counts on tokens that are still to come: so many of a request at most, and the new-token
    ratio, which begins at `initial_ratio` (in millionths) and is at its floor after `decay_steps` decode steps."""

    most_new_len: int
    initial_ratio: int
    decay_steps: int


BOTH, PREFILL, DECODE = "both", "prefill", "decode"


class Limits(NamedTuple):
    """What the engine was built for."""

    page_size: int
    max_running_requests: int
    max_context_len: int
    chunk_len: int | None = None
    window_slack: int = 0  # tokens by which a window's frontier may lag
    ratio_floor: int = 0  # of the new-token ratio, in millionths
    lookahead_len: int = 0  # tokens beyond the next for which a decode makes room
    most_launches: int = 1  # passes in flight at once
    preemption_threshold: int | None = None  # a priority must be higher by more than this; None: nobody is preempted
    max_forward_retries: int | None = None  # so many failed passes a request survives; None: any number
    waits_by: Sequence[str] = ()  # what of those who wait decides who is next, PRIORITY before ARRIVAL; () is not known
    reuses_in_launch_order: bool = False  # a freed unit may be taken at once: a pass in flight is done with it before
    estimates: Estimates | None = None  # None: how admission foresees is not known
    retracts_least_done: bool = False  # who has least to lose gives way first; False: in an order that is not known
    mixes_batches: bool = False  # who decodes goes on beside a prefill, and its tokens count against chunk_len
    least_load_len: int | None = None  # a load that saves fewer tokens is not worth it; None: it is not known
    writes_back: bool = False  # what has no copy on the host gets one before it is evicted, or others go before it
    draft_len: int = 0  # draft tokens that a decode computes at most
    timeout_ms: int | None = None  # the age at which a request ends; None: it never does, or it is not known
    role: str = BOTH  # what an engine does of each request
    ms_per_step: int = 0  # by so much the clock goes on when a step begins, beside what its driver does


PRIORITY = "priority"  # the higher is the more important
LONGEST_MATCH = "longest match"  # who finds most of its tokens cached
ARRIVAL = "arrival"  # who came first has the lower id
