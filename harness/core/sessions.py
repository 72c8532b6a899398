"""The sessions that clients hold with an engine, and its live requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from swarden.harness.core.ops import CloseSession, OpenSession, Turn, expand
from swarden.harness.core.port import EnginePort, Submission
from swarden.invariants.events import FinishReason
from swarden.invariants.reference import Reference


class QueuedTurn(NamedTuple):
    """A turn that waits for the end of the turn before it, and its new tokens."""

    request: int
    submission: Submission


@dataclass(slots=True)
class ClientSession:
    """An open session: the request of its last turn that has begun (0: none), and the turns queued behind it."""

    session: int
    namespace: int
    last_turn: int = 0
    queued: list[QueuedTurn] = field(default_factory=list)


class ClientSessions:
    """The open sessions in the order in which they were opened, with their tokens."""

    def __init__(self, port: EnginePort, reference: Reference) -> None:
        self._sessions, self._queues_turns = port.sessions, port.queues_turns
        self._reference = reference
        self._open: list[ClientSession] = []
        self._session_of: dict[int, ClientSession] = {}  # by its unfinished turns, if turns are queued

    def open(self, op: OpenSession) -> bool:
        """Open a session; False for an engine without sessions."""
        if self._sessions is not None:
            self._open.append(ClientSession(self._sessions.open_session(namespace=op.namespace), op.namespace))
        return self._sessions is not None

    def session_of(self, op: Turn) -> ClientSession | None:
        """The session of a turn; None if no session is open."""
        return self._open[op.session % len(self._open)] if self._open else None

    def submission(self, session: ClientSession, op: Turn) -> Submission:
        """The submission of a turn: its prompt begins with the tokens of the session, less the last `rewind`.

        The `tokens` of an op are its whole prompt, except that the first `kept` tokens are those of the session.  A
        turn that will be queued has its new tokens only.
        """
        if self._is_busy(session):
            new = expand(op.recipe) if op.tokens is None else op.tokens[op.kept :]
            return Submission(new, op.max_new_tokens, op.stop, op.priority, session.namespace, session.session)
        tokens = self._reference.tokens_of(session.last_turn)
        if op.tokens is None:
            prompt = expand(op.recipe, tokens[: max(0, len(tokens) - op.rewind)])
        else:
            kept = tokens[: min(op.kept, len(op.tokens))]
            prompt = [*kept, *op.tokens[len(kept) :]]
        return Submission(prompt, op.max_new_tokens, op.stop, op.priority, session.namespace, session.session)

    def turn_sent(self, session: ClientSession, request: int, submission: Submission) -> None:
        """Note that a turn was submitted as this request."""
        if self._is_busy(session):
            session.queued.append(QueuedTurn(request, submission))
        else:
            session.last_turn = request
        if self._queues_turns:
            self._session_of[request] = session

    def turn_ended(self, request: int, reason: str) -> None:
        """Note that a request has ended: if it is a turn, the prompt of the turn queued behind it is known now."""
        session = self._session_of.pop(request, None)
        if session is None:
            return
        if request != session.last_turn:
            session.queued = [turn for turn in session.queued if turn.request != request]
        elif session.queued and reason in (FinishReason.STOP, FinishReason.LENGTH):
            session.last_turn, sent = session.queued.pop(0)
            prompt = [*self._reference.tokens_of(request)[:-1], *sent.tokens]
            self._reference.submitted(session.last_turn, namespace=sent.namespace, prompt=prompt, stop=sent.stop)
            self._reference.expectations[session.last_turn].grammar = sent.grammar

    def turn_aborted(self, request: int) -> None:
        """Note that a client cancels a request: if it is a turn, the engine ends all turns of its session."""
        if (session := self._session_of.get(request)) is not None:
            for turn in (session.last_turn, *[turn.request for turn in session.queued]):
                self._session_of.pop(turn, None)
                self._reference.aborted(turn)
            session.queued.clear()

    def _is_busy(self, session: ClientSession) -> bool:
        """Would a turn be queued behind the session's last one?"""
        return session.last_turn in self._session_of

    def close(self, op: CloseSession) -> bool:
        """Close a session; False if no session is open."""
        if not self._open or self._sessions is None:
            return False
        self._sessions.close_session(self._open.pop(op.session % len(self._open)).session)
        return True

    def close_all(self) -> None:
        while self.close(CloseSession()):
            pass


class LiveRequests:
    """The live sequences in order of arrival, each with the most tokens that it can have."""

    def __init__(self) -> None:
        self.most_tokens: dict[int, int] = {}
        self._siblings: dict[int, range] = {}
        self._left: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.most_tokens)

    def add(self, sequences: range, most_tokens: int) -> None:
        self.most_tokens.update(dict.fromkeys(sequences, most_tokens))
        if len(sequences) > 1:
            self._siblings.update(dict.fromkeys(sequences, sequences))

    def end(self, request: int) -> None:
        del self.most_tokens[request]
        self._siblings.pop(request, None)

    def of_client(self, ordinal: int) -> Sequence[int]:
        """All live sequences of the request that has the sequence at `ordinal`, modulo the number of sequences."""
        chosen = list(self.most_tokens)[ordinal % len(self.most_tokens)]
        return [sibling for sibling in self._siblings.get(chosen, (chosen,)) if sibling in self.most_tokens]

    def leave(self, request: int) -> None:
        """The client of this sequence has its answer and is gone; `left` returns the request's other sequences once."""
        gone = self._siblings.get(request, ())
        self._left += [sibling for sibling in gone if sibling != request and sibling not in self._left]
        for sibling in gone:
            self._siblings.pop(sibling, None)

    def left(self) -> Sequence[int]:
        """The live sequences that have lost their client since the last call; the next step aborts them first."""
        left, self._left = [sibling for sibling in self._left if sibling in self.most_tokens], []
        return left
