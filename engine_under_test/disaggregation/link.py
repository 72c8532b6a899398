"""Messages between two engines of one process: what is sent is there at once."""

from collections import deque

from engine_under_test.messages import Message, Parcel


class InProcessLink:
    """One end of a link: parcels go by reference, so on a GPU pages never leave it."""

    def __init__(self, incoming: deque[Message], outgoing: deque[Message]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @classmethod
    def pair(cls) -> "tuple[InProcessLink, InProcessLink]":
        """Both ends."""
        one, other = deque[Message](), deque[Message]()
        return cls(one, other), cls(other, one)

    def send(self, message: Message) -> None:
        self._outgoing.append(message)

    def receive(self) -> list[Message]:
        come = list(self._incoming)
        self._incoming.clear()
        return come

    @property
    def is_clear(self) -> bool:
        return not any(isinstance(message, Parcel) for message in self._outgoing)
