"""The port through which the harness drives any engine, ours or a real one."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from harness.core.event_log import EventLog
from harness.core.faults import FaultPlan
from invariants.reference import Reference
from invariants.view import Snapshot

LINKED_MS_PER_STEP = 1  # by which the clock of linked engines advances, so that peer timeouts expire


class Submission(NamedTuple):
    """A request as a client would send it."""

    tokens: Sequence[int]
    max_new_tokens: int
    stop: Sequence[int]
    priority: int
    namespace: int
    session: int = 0  # the session of a turn; 0: no turn
    transfer_id: int = 0  # of the transfer between two linked engines; 0: none


class Streamed(NamedTuple):
    """The output of one request in one step."""

    request_id: int
    token_ids: Sequence[int]
    finish_reason: str | None
    cached_tokens: int
    num_retractions: int


class SessionPort(Protocol):
    """Sessions whose KV is kept from turn to turn."""

    def open_session(self, *, namespace: int = 0) -> int:
        """Open a session; its id, which the submissions of its turns name."""

    def close_session(self, session: int) -> None: ...


class DraftPort(Protocol):
    """Draft tokens that are as right as they are told to be."""

    def accept(self, lengths: Sequence[int]) -> None:
        """How many draft tokens of one proposal after the other are right, over and over; () for no drafts."""


class EnginePort(Protocol):
    """One engine.  Every call returns; a shortage, an abort or a refusal shows in the output.

    An engine that has no such thing as a clock, a flush, a pause or a neighbour says False, and the op is a no-op.
    `pool_names` are the pools of which `pressure` can take units.  `faults` are those that its stand-ins can have; each
    firing is told among the engine's events.  `sessions` is None for an engine without any, `drafts` for one
    without speculation, or whose drafts cannot be chosen.  `log` keeps the events until they are taken.
    """

    log: EventLog
    faults: FaultPlan
    pool_names: Sequence[str] = ()
    sessions: SessionPort | None = None
    drafts: DraftPort | None = None

    def reference(self) -> Reference:
        """The expected outputs, before the first request; empty for an engine whose outputs cannot be foretold."""
        return Reference()

    def submit(self, submission: Submission) -> int:
        """Queue a request; its id."""

    def abort(self, request_id: int) -> None: ...

    def step(self) -> Sequence[Streamed]:
        """One engine step; all output to clients since the last one."""

    @property
    def has_work(self) -> bool: ...

    def capture(self) -> Snapshot:
        """The facts, found by walking, and the engine's claims."""

    def take_events(self) -> list[NamedTuple]:
        """The events since the last call, in order; called after the capture, which may infer owners."""
        return self.log.take()

    def advance_clock(self, ms: int) -> bool:
        """Let so many milliseconds pass."""
        return False

    def flush(self) -> bool:
        """Drop the cached pages that are not locked, by the engine's own command."""
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
