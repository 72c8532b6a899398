"""The sessions that clients hold with an engine."""

from dataclasses import dataclass

from swarden.harness.core.ops import CloseSession, OpenSession, Turn
from swarden.harness.core.port import EnginePort, Submission
from swarden.harness.core.recipes import expand
from swarden.invariants.reference import Reference


@dataclass(slots=True)
class ClientSession:
    """An open session, and the request of its last turn; 0 if it had no turn yet."""

    session: int
    namespace: int
    last_turn: int = 0


class ClientSessions:
    """The open sessions in the order in which they were opened, with their tokens."""

    def __init__(self, port: EnginePort, reference: Reference) -> None:
        self._sessions = port.sessions
        self._reference = reference
        self._open: list[ClientSession] = []

    def open(self, op: OpenSession) -> bool:
        """False for an engine without sessions."""
        if self._sessions is not None:
            self._open.append(ClientSession(self._sessions.open_session(namespace=op.namespace), op.namespace))
        return self._sessions is not None

    def session_of(self, op: Turn) -> ClientSession | None:
        """The session of a turn; None if no session is open."""
        return self._open[op.session % len(self._open)] if self._open else None

    def submission(self, session: ClientSession, op: Turn) -> Submission:
        """The submission of a turn: its prompt begins with the tokens of the session, less the last `rewind`.

        An op with `tokens` has its whole prompt there, but for the first `kept` ones.
        """
        tokens = self._reference.tokens_of(session.last_turn)
        if op.tokens is None:
            prompt = expand(op.recipe, tokens[: max(0, len(tokens) - op.rewind)])
        else:
            kept = tokens[: min(op.kept, len(op.tokens))]
            prompt = [*kept, *op.tokens[len(kept) :]]
        return Submission(prompt, op.max_new_tokens, op.stop, op.priority, session.namespace, session.session)

    def close(self, op: CloseSession) -> bool:
        """False if no session is open."""
        if not self._open or self._sessions is None:
            return False
        self._sessions.close_session(self._open.pop(op.session % len(self._open)).session)
        return True

    def close_all(self) -> None:
        while self.close(CloseSession()):
            pass
