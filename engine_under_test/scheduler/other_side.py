"""Where a request comes from, or goes on, when one engine does not do all of it."""

from collections.abc import Sequence

from engine_under_test.cache.record import KVRecord
from engine_under_test.request import Request


class OtherSide:
    """Nobody: requests begin and end in this engine.  A side of a pair of engines says otherwise."""

    @property
    def requests(self) -> Sequence[Request]:
        """Those that have not ended, and are not the scheduler's just now."""
        return ()

    @property
    def records(self) -> Sequence[KVRecord]:
        """What is held for the other side, or for what comes from there; it comes free by itself."""
        return ()

    @property
    def has_work(self) -> bool:
        """Is something still to be sent, or to come?"""
        return False

    def step(self, now_ms: int) -> None:
        """Take in what has come, and say what is due; before the scheduler's step."""

    def check_room(self, room: int) -> None:
        """Raises EngineError for a room that was used before, or is below one that was."""

    def take_in(self, request: Request) -> None:
        """A new request comes to its room."""
        raise AssertionError(f"{request.owner} has come to an engine without another side")

    def withholds(self, record: KVRecord, end: int) -> bool:
        """Is nobody else to share [0, end) of what a record has?"""
        return False

    def published(self, request: Request, record: KVRecord) -> None:
        """More of a prompt has been computed."""

    def inherits(self, request: Request, record: KVRecord) -> bool:
        """Is the record of a finished request held for the other side?"""
        return False

    def sets_aside(self, request: Request, record: KVRecord) -> bool:
        """Is what is computed kept, while a request gives its record back?  Then it comes again by itself."""
        return False

    def gives_up(self, request: Request) -> bool:
        """Let go of a request that ends here; False where it is the scheduler's."""
        return False

    def ended(self, request: Request, reason: str) -> None:
        """A request has ended, wherever it was."""
