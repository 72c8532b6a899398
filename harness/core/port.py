"""The port through which the harness drives any engine, ours or a real one."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fakes.faults import FaultPlan
from harness.core.event_log import EventLog
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
    room: int = 0  # where another engine has its part in it; 0: nowhere


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

    `faults` knows what can go wrong in the stand-ins that this engine runs on, of which at least `client.gone`
    is the harness's own; each firing is told among the engine's events.  `sessions` is None for an engine without any,
    `drafts` for one that does not guess, or whose guesses nobody can choose.
    `log` keeps the events until they are taken.
    """

    pool_names: Sequence[str]
    faults: FaultPlan
    sessions: SessionPort | None
    drafts: DraftPort | None
    log: EventLog

    def reference(self) -> Reference:
        """What can be foretold of this engine's outputs, before anybody has asked for any."""

    def submit(self, submission: Submission) -> int:
        """Queue a request; its id."""

    def abort(self, request_id: int) -> None: ...

    def step(self) -> Sequence[Streamed]:
        """One engine step; everything that clients get to see since the last one."""

    def advance_clock(self, ms: int) -> None: ...

    def flush(self) -> None: ...

    def pressure(self, pool: str, pages: int) -> None:
        """Hold `pages` of a pool outside of the engine, or as many as are free; the earlier ones go back."""

    def pause(self) -> bool:
        """Retract everybody and launch nothing until `resume`; False where this engine cannot."""

    def resume(self) -> None: ...

    @property
    def has_work(self) -> bool: ...

    def capture(self) -> Snapshot:
        """The facts, found by walking, and the engine's claims."""

    def take_events(self) -> list[NamedTuple]:
        """What happened since the last call, translated, in order."""
