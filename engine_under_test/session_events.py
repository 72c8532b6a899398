"""What the engine tells of its streaming sessions."""

from typing import NamedTuple


class SessionOpened(NamedTuple):
    """A conversation begins."""

    session: int
    namespace: int
    now_ms: int


class Lent(NamedTuple):
    """A turn goes on from the first `length` tokens of what its session keeps, on `pages`, which are the turn's now."""

    session: int
    request_id: int
    length: int
    pages: tuple[int, ...]


class Kept(NamedTuple):
    """A turn has ended, and its session keeps the KV of `length` tokens."""

    session: int
    request_id: int
    length: int


class GivenUp(NamedTuple):
    """A session keeps nothing any more: it was closed, others needed the room, or a turn could not go on from it."""

    session: int
    cause: str


class TurnRefused(NamedTuple):
    """A request came as a turn of a session that was not open, or that somebody else had."""

    session: int
    request_id: int


class CloseAsked(NamedTuple):
    """A client wants no more of a session, which may be closed already, or has to wait until its turn has ended."""

    session: int


class SessionClosed(NamedTuple):
    """Nobody can take a turn any more."""

    session: int


SessionEvent = SessionOpened | Lent | Kept | GivenUp | TurnRefused | CloseAsked | SessionClosed
