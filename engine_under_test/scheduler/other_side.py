"""The connection to the peer engine, when two engines serve a request."""

from collections.abc import Collection, Mapping, Sequence

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.request import Ending, Request


class OtherSide:
    """No peer: requests begin and end in this engine.  The prefill side and the decode side replace this class.

    Transfers up to `last_transfer_id` were accepted, rejected or skipped here.
    """

    last_transfer_id = 0

    @property
    def requests(self) -> Sequence[Request]:
        """The unfinished requests that are not in the scheduler."""
        return ()

    @property
    def records(self) -> Sequence[KVRecord]:
        """The records held for transfers; they become free without the scheduler."""
        return ()

    @property
    def awaited(self) -> Mapping[int, Mapping[str, Collection[int]]]:
        """By request, and by pool, the page indices that have not arrived."""
        return {}

    @property
    def has_work(self) -> bool:
        """Is a message still to be sent or received?"""
        return False

    def step(self, now_ms: int) -> None:
        """Receive messages, and send those that are due; runs before the scheduler's step."""

    def add_request(self, request: Request) -> None:
        """Accept a new request with a transfer."""
        raise AssertionError(f"{request.owner} has a transfer in an engine without another side")

    def is_withheld(self, record: KVRecord, end: int) -> bool:
        """Must [0, end) of a record stay out of the tree?"""
        return False

    def published(self, request: Request, record: KVRecord) -> None:
        """Note that the computed part of a prompt has grown."""

    def hold_finished(self, request: Request, record: KVRecord) -> bool:
        """Take the record of a finished request for the other side; False where the record is to be released."""
        return False

    def swap_out(self, request: Request, record: KVRecord) -> bool:
        """Copy the KV of a request before its release, and restore it later; False where it must be queued again."""
        return False

    def has_request(self, request: Request) -> bool:
        """Is a request held by this side, and not by the scheduler?"""
        return False

    def ended(self, request: Request, ending: Ending) -> None:
        """Note that a request has ended, in the scheduler or on this side."""
