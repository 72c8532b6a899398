"""The port through which the harness drives any engine, ours or a real one."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from harness.core.event_log import EventLog
from harness.core.faults import FaultPlan
from invariants.reference import Reference
from invariants.view import Snapshot

LINKED_MS_PER_STEP = 1  # what is sent needs a while, and who waits for it looks at the clock


class Submission(NamedTuple):
    """A request as a client would send it."""

    tokens: Sequence[int]
    max_new_tokens: int
    stop: Sequence[int]
    priority: int
    namespace: int
    session: int = 0  # whose turn it is; 0: of none
    transfer_id: int = 0  # of the transfer between two linked engines; 0: none


class Streamed(NamedTuple):
    """What came back for one request in one step."""

    request_id: int
    token_ids: Sequence[int]
    finish_reason: str | None
    cached_tokens: int
    num_retractions: int


class SessionPort(Protocol):
    """Conversations whose KV stays from turn to turn."""

    def open_session(self, *, namespace: int = 0) -> int:
        """Begin one; its id, which a submission names whose turn it is."""

    def close_session(self, session: int) -> None: ...


class DraftPort(Protocol):
    """Guesses that are as good as they are told to be."""

    def accept(self, lengths: Sequence[int]) -> None:
        """How many draft tokens of one guess after the other are right, over and over; () for no guesses."""


class EnginePort(Protocol):
    """One engine.  Every call returns; a shortage, an abort or a refusal shows in what is streamed.

    An engine that has no such thing as a clock, a flush, a pause or a neighbour says False, and the op is a no-op.
    `pool_names` are the pools of which `pressure` can take units.  `faults` are those that its stand-ins can have; each
    firing is told among the engine's events.  `sessions` is None for an engine without any, `drafts` for one that does
    not guess, or whose guesses cannot be chosen.  `log` keeps the events until they are taken.
    """

    log: EventLog
    faults: FaultPlan
    pool_names: Sequence[str] = ()
    sessions: SessionPort | None = None
    drafts: DraftPort | None = None

    def reference(self) -> Reference:
        """What can be foretold of this engine's outputs, before the first request; of most engines nothing."""
        return Reference()

    def submit(self, submission: Submission) -> int:
        """Queue a request; its id."""

    def abort(self, request_id: int) -> None: ...

    def step(self) -> Sequence[Streamed]:
        """One engine step; everything that clients get to see since the last one."""

    @property
    def has_work(self) -> bool: ...

    def capture(self) -> Snapshot:
        """The facts, found by walking, and the engine's claims."""

    def take_events(self) -> list[NamedTuple]:
        """What happened since the last call, in order; asked for after the capture, so that owners can be inferred."""
        return self.log.take()

    def advance_clock(self, ms: int) -> bool:
        """Let so many milliseconds pass."""
        return False

    def flush(self) -> bool:
        """Drop what is cached and not locked, as the engine's own command for it does."""
        return False

    def clear(self) -> None:
        """At the end of a drain: evict everything that is cached, one by one.

        Never a reset of the pools, which would hide a leak.
        """
        self.flush()

    def pressure(self, pool: str, pages: int) -> bool:
        """Hold `pages` of a pool outside of the engine, or as many as are free; the earlier ones go back."""
        return False

    def pause(self) -> bool:
        """Retract every running request and launch nothing until `resume`."""
        return False

    def resume(self) -> None: ...
