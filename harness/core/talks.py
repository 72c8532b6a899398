"""The conversations that clients have with an engine."""

from dataclasses import dataclass

from harness.core.ops import CloseSession, OpenSession, Turn
from harness.core.port import EnginePort, Submission
from harness.core.recipes import expand
from invariants.reference import Reference


@dataclass(slots=True)
class Talk:
    """A session that is open, and the request that was its turn last; 0: nobody has said anything yet."""

    session: int
    namespace: int
    last_turn: int = 0


class Talks:
    """The open sessions, in the order in which they were opened, and what was said in each."""

    def __init__(self, port: EnginePort, reference: Reference) -> None:
        self._sessions = port.sessions
        self._reference = reference
        self._open: list[Talk] = []

    def open(self, op: OpenSession) -> bool:
        """False where the engine knows no sessions."""
        if self._sessions is not None:
            self._open.append(Talk(self._sessions.open_session(namespace=op.namespace), op.namespace))
        return self._sessions is not None

    def talk(self, op: Turn) -> Talk | None:
        """Whose turn it is; None where nobody talks."""
        return self._open[op.session % len(self._open)] if self._open else None

    def submission(self, talk: Talk, op: Turn) -> Submission:
        """A turn with all that was said, less what is taken back, in front."""
        said = self._reference.tokens_of(talk.last_turn)
        kept = said[: max(0, len(said) - op.rewind)]
        prompt = list(op.tokens) if op.tokens is not None else expand(op.recipe, kept)
        return Submission(prompt, op.max_new_tokens, op.stop, op.priority, talk.namespace, talk.session)

    def close(self, op: CloseSession) -> bool:
        """False where none is open."""
        if not self._open or self._sessions is None:
            return False
        self._sessions.close_session(self._open.pop(op.session % len(self._open)).session)
        return True

    def close_all(self) -> None:
        while self.close(CloseSession()):
            pass
