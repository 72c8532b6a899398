"""The port through which the harness drives an engine, swarden's own or another one."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.limits import MAX_NAMESPACE
from swarden.harness.core.ops import ResetCause
from swarden.invariants.reference import Reference
from swarden.invariants.view import Snapshot

LINKED_MS_PER_STEP = 1  # the clock of linked engines advances in each step, so that peer timeouts expire

NAMESPACES_PER_ADAPTER = MAX_NAMESPACE + 1


class Submission(NamedTuple):
    """A request as a client would send it."""

    tokens: Sequence[int]
    max_new_tokens: int
    stop: Sequence[int]
    priority: int
    namespace: int  # of its KV: each adapter and each salt of a client has its own
    session: int = 0  # the session of a turn; 0 if the request is not a turn
    transfer_id: int = 0  # of the transfer between two linked engines; 0: none
    seed: int | None = None  # with which a model samples at temperature 1; None: the likeliest token
    adapter: int = 0
    uncached: bool = False
    prompt_logprobs: bool = False
    sequences: int = 1  # answers to this prompt
    grammar: int = 0  # the tokens of the grammar of its output; 0: none

    @property
    def salt(self) -> int:
        return self.namespace - self.adapter * NAMESPACES_PER_ADAPTER


class Streamed(NamedTuple):
    """The output of one request in one step; `finish_reason` is None until its last output."""

    request_id: int
    token_ids: Sequence[int]
    finish_reason: str | None
    cached_tokens: int
    num_retractions: int


class SessionPort(Protocol):
    """Sessions whose KV is kept from turn to turn."""

    def open_session(self, *, namespace: int = 0) -> int:
        """Open a session. Returns its id, for the submissions of its turns."""

    def close_session(self, session: int) -> None: ...


class DraftPort(Protocol):
    """Speculation in which the harness sets the number of correct draft tokens."""

    def accept(self, lengths: Sequence[int]) -> None:
        """Set the number of correct draft tokens of each later proposal, as a repeated sequence; () disables drafts."""


class EnginePort(Protocol):
    """One engine.  No call blocks or raises for a shortage, an abort or a rejection; the output of `step` shows them.

    A method returns False if the engine does not support the operation, for example a pause; the op is then a no-op.
    In an engine that `queues_turns` a turn of a session may arrive before the previous turn has ended: it is submitted
    with its new tokens only, and continues after the tokens of the previous turn, less the last output.
    """

    log: EventLog  # keeps the events until they are taken
    faults: FaultPlan  # of its fakes; each firing is an event of the engine
    pool_names: Sequence[str] = ()  # the pools whose units `pressure` can take
    sessions: SessionPort | None = None  # None: it has none
    drafts: DraftPort | None = None  # None: it has no speculation, or no choice of drafts
    queues_turns: bool = False
    forks: bool = False  # it can answer a prompt with several sequences
    has_uncached: bool = False  # it has requests that insert nothing
    has_grammars: bool = False  # it answers by a grammar
    turns_have_grammars: bool = False  # so it does in a turn of a session

    def reference(self) -> Reference:
        """The reference of the expected outputs; empty for an engine whose outputs cannot be predicted."""
        return Reference()

    def submit(self, submission: Submission) -> int:
        """Queue a request. Returns its id; the further sequences of the request have the next ids."""

    def abort(self, request_id: int) -> None: ...

    def step(self) -> Sequence[Streamed]:
        """Make one engine step. Returns the output to clients since the last step."""

    @property
    def has_work(self) -> bool: ...

    def capture(self) -> Snapshot:
        """The facts, from a walk over the engine's structures, and the engine's counters."""

    def take_events(self) -> list[NamedTuple]:
        """The events since the last call, in order; called after the capture, which may infer owners."""
        return self.log.take()

    def advance_clock(self, ms: int) -> bool:
        """Advance the clock by `ms` milliseconds."""
        return False

    def flush(self) -> bool:
        """Drop the cached pages that are not locked, by the engine's own flush command."""
        return False

    def clear(self) -> None:
        """Evict all cached pages one by one at the end of a drain; a reset of the pools would hide a leak."""
        self.log.captures = 0
        self.flush()

    def pressure(self, pool: str, pages: int) -> bool:
        """Hold up to `pages` free pages of a pool outside of the engine, in place of those that were held before."""
        return False

    def pause(self) -> bool:
        """Retract every running request, and launch no pass until `resume`."""
        return False

    def pause_in_place(self) -> bool:
        """Launch no pass until `resume`; the running requests keep their KV.  It may be followed by `pause`."""
        return False

    def abort_all(self) -> bool:
        """Abort all requests by one command; the harness sends no further ones until `resume`."""
        return False

    def resume(self) -> None:
        """End a pause of any kind."""
        return

    def reset(self, cause: ResetCause) -> bool:
        """Drop all KV and reset the pools, by the engine's own command; what it answers is an event, CacheReset."""
        return False
