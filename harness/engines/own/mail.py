"""The messages between the sides of a pair: which transfers were sent whole, and have no message that was not read."""

from collections import Counter

from swarden.engine_under_test.messages import Message, TransferEnd, TransferRequest
from swarden.invariants.events import Finished, FinishReason, FreeCause, LetGo

NOT_GIVEN_UP = (FinishReason.LENGTH, FinishReason.STOP, FreeCause.HANDED_OVER)


class Mail:
    """Counts by transfer the messages of both directions that were sent and not received.

    A lost message is never received.  A request has the number of its transfer.  A late TransferRequest that is read
    behind the TransferEnd is taken for that of a restarted engine, so the decode side awaits another TransferEnd.
    """

    def __init__(self) -> None:
        self._unread = Counter[int]()
        self._ended: set[int] = set()
        self._was_read: set[int] = set()
        self._given_up: set[int] = set()

    def notice(self, event: Finished | LetGo) -> None:
        """Take note of the end of a request or a transfer on the prefill side."""
        if (event.reason if isinstance(event, Finished) else event.cause) not in NOT_GIVEN_UP:
            self._given_up.add(event.request_id)

    def take_given_up(self) -> list[int]:
        """The transfers, each once, that the prefill side has given up, and whose messages have all been read.

        The decode side needs nothing of one that it has read whole.
        """
        taken = sorted(number for number in self._given_up - self._was_read if not self._unread[number])
        self._given_up.difference_update(taken)
        return taken

    def count(self, message: Message, change: int) -> None:
        """A message was sent (1) or received (-1)."""
        transfer_id = message.transfer_id
        self._unread[transfer_id] += change
        if isinstance(message, TransferEnd):
            self._ended.add(transfer_id)
        elif isinstance(message, TransferRequest) and change < 0:
            self._ended.discard(transfer_id)
            self._was_read.discard(transfer_id)
        if self.is_read(transfer_id):
            self._was_read.add(transfer_id)

    def is_read(self, transfer_id: int) -> bool:
        """Whether the last message with KV was sent, and each message of the transfer has been read."""
        return transfer_id in self._ended and not self._unread[transfer_id]

    def was_read(self, transfer_id: int) -> bool:
        """Whether `is_read` has been true: since then the decode side lacks no KV, even if a later message is lost."""
        return transfer_id in self._was_read
