"""The link between two engines of one process: a message arrives as soon as it is sent."""

from collections import deque

from swarden.engine_under_test.messages import Message, PageData


class InProcessLink:
    """One end of a link.  Page data is passed by reference, so pages on a GPU stay on it."""

    def __init__(self, incoming: deque[Message], outgoing: deque[Message]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.num_rejected = 0

    @classmethod
    def pair(cls) -> "tuple[InProcessLink, InProcessLink]":
        """Make both ends of a link."""
        one, other = deque[Message](), deque[Message]()
        return cls(one, other), cls(other, one)

    def send(self, message: Message) -> None:
        self._outgoing.append(message)

    def receive(self) -> list[Message]:
        messages = list(self._incoming)
        self._incoming.clear()
        return messages

    def reject(self, detail: str) -> None:
        self.num_rejected += 1
        self._incoming.clear()
        self._outgoing.clear()

    @property
    def lag_ms(self) -> int:
        return 0

    @property
    def is_clear(self) -> bool:
        return not any(isinstance(message, PageData) for message in self._outgoing)
