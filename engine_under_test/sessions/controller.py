"""The open sessions: their turns, and the KV that idle sessions keep."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from swarden.engine_under_test.cache.departures import Departures
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.units import align_down, align_up, common_len, num_pages, session_owner
from swarden.invariants.events import Event, FreeCause, GivenUp, Kept, Lent, Owner, SessionClosed, SessionOpened


@dataclass(slots=True, eq=False)
class Session:
    """A session, which holds the KV of its last turn between two turns."""

    id: int
    namespace: int
    used_ms: int
    record: KVRecord | None = None  # without a row; None while a turn holds it, and after a release
    tokens: list[int] = field(default_factory=list)  # of the KV in the record
    turn: int = 0  # the request that runs or waits as its turn; 0: none
    is_closing: bool = False

    @property
    def owner(self) -> Owner:
        return session_owner(self.id)

    def kept_len(self, prompt: Sequence[int], pools: Sequence[Component], *, page_size: int) -> int:
        """How many tokens of a prompt the record already has; the last prompt token is always computed.

        The record is cut to the end of the prompt, or to where the prompt differs, or to a page boundary before that
        at which some recurrent state is kept.  The result is 0 if the cut would lose pages of the tree, or if the
        record lacks pages that the next token reads:

            |the tree's |private          |committed_len
                   |..pages of a window gone..|frontier
                                              |window| where a turn may go on
        """
        if self.record is None:
            return 0
        length = common_len(prompt[:-1], self.tokens)
        lowest = max(self.record.protected_len, self.record.highest_frontier)  # pages below are gone
        page_ends = range(align_down(length, page_size), lowest - 1, -page_size)
        for end in chain([length], page_ends):
            if self.record.protected_len <= end and self.record.can_continue(end, pools):
                return end
        return 0


class Sessions:
    """One turn at a time holds the KV of its session: the record moves whole to the turn, and back.

    `by_id` has all open sessions.  Idle sessions keep at most the configured share of each pool.  In a shortage their
    KV is released before any request is retracted.
    """

    def __init__(
        self, config: EngineConfig, memory: KVMemory, departures: Departures, observer: Observer | None
    ) -> None:
        self._config = config
        self._memory = memory
        self._departures = departures
        self._observer = observer
        self.by_id: dict[int, Session] = {}  # the most recently used session is last
        self._num_sessions = 0

    @property
    def records(self) -> list[KVRecord]:
        """The records of idle sessions, the least recently used session first."""
        return [session.record for session in self.by_id.values() if session.record is not None]

    def open(self, namespace: int, now_ms: int) -> int:
        """Open a session; returns its id."""
        self._num_sessions += 1
        self.by_id[self._num_sessions] = Session(self._num_sessions, namespace, now_ms)
        self._notice(SessionOpened(self._num_sessions, namespace, now_ms))
        return self._num_sessions

    def why_refused(self, session_id: int) -> str | None:
        """Why a turn cannot begin; None if it can."""
        session = self.by_id.get(session_id)
        if session is None or session.is_closing:
            return f"session {session_id} is not open"
        return f"request {session.turn} has the turn of session {session_id}" if session.turn else None

    def begin_turn(self, request: Request) -> None:
        session = self.by_id[request.session] = self.by_id.pop(request.session)
        session.turn, session.used_ms = request.id, request.arrival_ms

    def end_turn(self, request: Request) -> None:
        """End the turn of a request, for any finish reason; a closing session is closed now."""
        session = self.by_id.get(request.session)
        if session is not None and session.turn == request.id:
            session.turn = 0
            if session.is_closing:
                self._close(session)

    def kept_len(self, request: Request) -> int:
        """How many tokens of a waiting turn can be reused from the KV of its session."""
        session = self.by_id.get(request.session)
        if session is None:
            return 0
        return session.kept_len(request.tokens, self._memory.pools, page_size=self._memory.page_size)

    def lend(self, request: Request) -> KVRecord:
        """Move the record to an admitted turn, cut to the reused tokens and with a new row."""
        session = self.by_id[request.session]
        record, length = session.record, self.kept_len(request)
        assert record is not None, f"session {session.id} keeps nothing"
        session.record, session.tokens = None, []
        self._cut(record, length)
        self._departures.give(record, request.owner)
        [record.row] = self._memory.table.rows.take(1, owner=request.owner)
        record.write(self._memory.table, 0, record.handles)
        self._notice(Lent(session.id, request.id, length, tuple(record.handles)))
        return record

    def keep(self, request: Request, record: KVRecord) -> None:
        """Keep the record of a finished turn; its row and its empty pages are freed.

        If idle sessions exceed their share, the least recently used release their records.  A record that exceeds the
        share alone is released at once.  No session releases its record for a closing session.
        """
        session = self.by_id[request.session]
        self._cut(record, record.committed_len)
        rows, row, record.row = self._memory.table.rows, record.row, 0
        rows.free([row], owner=record.owner, cause=FreeCause.TURN_ENDED, after=record.last_launch)
        self._departures.give(record, session.owner)
        session.record, session.tokens = record, request.tokens[: record.committed_len]
        self._notice(Kept(session.id, request.id, record.committed_len))
        if self._exceeds_share([record]):
            self._release(session, FreeCause.PAGES_NEEDED)
        while not session.is_closing and self._exceeds_share(self.records):
            self.release_oldest()

    def release_kept(self, request: Request) -> None:
        """Release the KV of a session whose turn starts from the tree instead."""
        if (session := self.by_id.get(request.session)) is not None:
            self._release(session, FreeCause.DIVERGED)

    def release_oldest(self, request: Request | None = None, *, including_own: bool = True) -> bool:
        """Release the KV of the least recently used session; False where none holds KV that may be released.

        The session of `request` comes last, and only with `including_own`.
        """
        keeping = [session for session in self.by_id.values() if session.record is not None]
        others = [session for session in keeping if request is None or session.turn != request.id]
        first = next(iter(others or (keeping if including_own else ())), None)
        if first is not None:
            self._release(first, FreeCause.PAGES_NEEDED)
        return first is not None

    def close(self, session_id: int) -> None:
        """Close a session and release its KV, at once or when its turn has ended; unknown ids are ignored."""
        session = self.by_id.get(session_id)
        if session is not None and session.turn:
            session.is_closing = True
        elif session is not None:
            self._close(session)

    def expire(self, now_ms: int) -> None:
        """Close the sessions that were idle for the session timeout."""
        limit = self._config.session_timeout_ms
        for session in list(self.by_id.values()) if limit is not None else ():
            if session.turn:
                session.used_ms = now_ms
            elif limit is not None and now_ms - session.used_ms >= limit:
                self._close(session)

    def _close(self, session: Session) -> None:
        self._release(session, FreeCause.CLOSED)
        del self.by_id[session.id]
        self._notice(SessionClosed(session.id))

    def _release(self, session: Session, cause: str) -> None:
        if session.record is not None:
            record, session.record, session.tokens = session.record, None, []
            self._departures.release(record, cause=cause)
            self._notice(GivenUp(session.id, cause))

    def _cut(self, record: KVRecord, length: int) -> None:
        """Cut a record to `length` tokens; the pages behind are free once no pass in flight writes there.

        |..... kept ......|length
        |page |page |page |begun page, kept|page, free|
        """
        page_size, ledgers = self._memory.page_size, self._memory.ledgers
        kept_end, end = align_up(length, page_size), align_up(record.allocated_len, page_size)
        for handles, lacks in record.parts(kept_end, end, page_size=page_size):
            ledgers.free(handles, owner=record.owner, cause=FreeCause.CUT, after=record.last_launch, lacks=lacks)
        del record.handles[kept_end // page_size :]
        record.forget_holes(0, kept_end)
        record.committed_len = record.launched_len = record.allocated_len = length

    def _exceeds_share(self, records: Sequence[KVRecord]) -> bool:
        """Do these records exceed the share of idle sessions?"""
        share = self._config.idle_session_share
        return any(self._num_kept(records, pool) > share * pool.num_pages for pool in self._memory.pools)

    def _num_kept(self, records: Sequence[KVRecord], pool: Component) -> int:
        """An upper bound of the pages that records hold in a pool; a page of two records counts twice."""
        page_size, count = self._memory.page_size, 0
        for record in records:
            first = max(record.frontier(pool.name), record.protected_len - pool.tail_len)
            holes = [range(max(hole.start, first), hole.stop) for hole in record.holes.get(pool.name, ())]
            count += num_pages(record.allocated_len, page_size) - first // page_size - sum(map(len, holes)) // page_size
        return count

    def _notice(self, event: Event) -> None:
        if self._observer:
            self._observer.notice(event)
