"""Where a request comes from, or goes on, when one engine does not do all of it."""

from collections.abc import Sequence

from engine_under_test.cache.record import KVRecord
from engine_under_test.reasons import Ending
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

    def check_transfer_id(self, transfer_id: int) -> None:
        """Raises EngineError for an id that is not above all ids before it."""

    def add_request(self, request: Request) -> None:
        """Accept a new request with a transfer."""
        raise AssertionError(f"{request.owner} has a transfer in an engine without another side")

    def is_withheld(self, record: KVRecord, end: int) -> bool:
        """Must [0, end) of a record stay out of the tree?"""
        return False

    def published(self, request: Request, record: KVRecord) -> None:
        """More of a prompt has been computed."""

    def hold_finished(self, request: Request, record: KVRecord) -> bool:
        """Take the record of a finished request for the other side; False where the record is to be released."""
        return False

    def swap_out(self, request: Request, record: KVRecord) -> bool:
        """Copy the KV of a retracted request, and restore it later; False where the request must be queued again."""
        return False

    def has_request(self, request: Request) -> bool:
        """Is a request here, and not in the scheduler?"""
        return False

    def ended(self, request: Request, ending: Ending) -> None:
        """A request has ended, wherever it was."""
