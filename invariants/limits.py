"""The configured limits and the policies of an engine, as far as they are known."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Estimates(NamedTuple):
    """How admission estimates a request's output: at most `most_new_len` tokens, times the new-token ratio."""

    most_new_len: int
    initial_ratio: int  # in millionths; it decays to its floor
    decay_steps: int  # decode steps until it is there


class Ends(StrEnum):
    """The ends of the prefixes that an engine keeps of a prompt, so that a request can begin behind them."""

    PAGES = "pages"  # of each whole page
    PASSES = "passes"  # of the last whole page of each pass
    PROMPT = "prompt"  # of the last whole page before the last token of the prompt


class Replays(NamedTuple):
    """The prefixes of a computed prompt behind which an engine promises to begin another request that shares them.

    The request must share `peek_len` tokens more, which it computes again: a drafter looks at them.  The last prefix of
    a prompt ends `drop_len` tokens before its last whole page.
    """

    ends: Ends
    peek_len: int = 0
    drop_len: int = 0


class SessionTimeout(NamedTuple):
    """A session is closed `ms` after its last turn that was not refused, or its begin; at most `late_ms` later."""

    ms: int
    late_ms: int = 0
    from_begin: bool = False


BOTH, PREFILL, DECODE = "both", "prefill", "decode"


class Limits(NamedTuple):
    """The limits of one engine, and what is known of its policies."""

    page_size: int  # tokens of the pages by which prefixes are shared
    max_running_requests: int
    max_context_len: int
    chunk_len: int | None = None
    window_slack: int = 0  # tokens by which a frontier may lag behind the window
    ratio_floor: int = 0  # of the new-token ratio, in millionths
    lookahead_len: int = 0  # tokens beyond the next for which a decode allocates pages
    most_launches: int = 1  # passes in flight at once
    decodes_after_abort: int = 0  # passes that decode a request which was aborted before its first output
    preemption_threshold: int | None = None  # a priority must be higher by more than this; None: no preemption
    max_forward_retries: int | None = None  # failed passes that a request survives; None: any number
    waits_by: Sequence[str] = ()  # the keys that sort the waiting queue, PRIORITY first, then ARRIVAL; (): not known
    reuses_in_launch_order: bool = False  # a freed unit may be taken while a pass reads it: the next pass runs later
    estimates: Estimates | None = None  # None: the formula of admission is not known
    retracts_least_done: bool = False  # the request with the least output is retracted first; False: not known
    mixes_batches: bool = False  # a pass may have prefills and decodes, and all its tokens count against chunk_len
    load_back_threshold: int | None = None  # a load saves as many tokens, or restores a window; None: not known
    writes_back: bool = False  # a page is copied to the host before it is evicted, or other pages are evicted first
    writes_through: bool = False  # what a request inserts is copied to the host at once
    keeps_live_copies: bool = False  # the host drops only copies of nodes that are not on the device
    draft_len: int = 0  # the most draft tokens that a decode computes
    draft_row_len: int = 0  # tokens beyond max_context_len for which a row has entries, for drafts
    request_timeout_ms: int | None = None  # the age at which a request times out; None: never, or not known
    role: str = BOTH  # which part of each request the engine serves
    spare_len: int = 0  # free positions behind its prompt that a request must have when it arrives
    session_timeout: SessionTimeout | None = None  # None: no session is closed without its client, or not known
    ms_per_step: int = 0  # the clock advances by this much when a step begins
    shares_prefixes: bool = False  # the KV of ended requests is kept for others
    evicts_longest_idle: bool = False  # of the cached units without a reader, the longest without one is evicted first
    shares_uncomputed: bool = False  # shared when taken: each request that shares a page writes the same KV
    replays: Replays | None = None  # None: not promised
    names_aborts: bool = False  # a request ends as aborted only if its client has aborted it
    chunks_count_pages: bool = False  # a request counts against chunk_len in whole pages
    state_interval: int | None = None  # tokens between checkpoints of recurrent states; None: no checkpoints


PRIORITY = "priority"  # the highest first
LONGEST_MATCH = "longest match"  # the most cached tokens first
ARRIVAL = "arrival"  # the lowest id first
