"""What happens to streaming sessions, in the words of the invariants."""

from collections.abc import Sequence
from typing import NamedTuple


class SessionOpened(NamedTuple):
    """A conversation begins."""

    session: int
    namespace: int
    now_ms: int


class Lent(NamedTuple):
    """A turn goes on from the first `length` tokens of what its session kept, on `pages` of the first component."""

    session: int
    request_id: int
    length: int
    pages: Sequence[int]


class Kept(NamedTuple):
    """A turn has ended, and its session keeps the KV of `length` tokens."""

    session: int
    request_id: int
    length: int


class GivenUp(NamedTuple):
    """A session keeps nothing any more."""

    session: int
    cause: str


class TurnRefused(NamedTuple):
    """A request came as a turn of a session that was not open, or that somebody else had."""

    session: int
    request_id: int


class SessionClosed(NamedTuple):
    """Nobody can take a turn any more."""

    session: int


SessionEvent = SessionOpened | Lent | Kept | GivenUp | TurnRefused | SessionClosed
