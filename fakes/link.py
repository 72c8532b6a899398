"""The unsteady link between two engines: a wrapper with faults."""

from collections.abc import Callable
from typing import ClassVar

from swarden.engine_under_test.ports import Link, Message
from swarden.fakes.faults import Faults

Damage = Callable[[Message], Message | None]


class UnsteadyLink:
    """Wraps one end of a link.

    Each message that is sent is one crossing, and each `receive` with messages.  `damaged` returns the message with one
    bit flipped, or None if the damage is detected.  `count` is called with each message: with 1 for each time that it
    is sent or duplicated, also if it is lost, and with -1 for each time that it is received.
    """

    FAULTS: ClassVar = {
        "link.drop": "a message is dropped",
        "link.corrupt": "one bit of a message is flipped, so that the other end drops it",
        "link.duplicate": "a message arrives twice",
        "link.delay": "messages arrive later",
        "link.reorder": "messages arrive in reverse order",
        "link.down": "messages that are sent are dropped, and messages from the other end arrive later",
    }

    def __init__(self, steady: Link, plan: Faults, damaged: Damage, count: Callable[[Message, int], object]) -> None:
        self._steady = steady
        self._plan = plan
        self._damaged = damaged
        self._count = count
        self._delayed: list[Message] = []

    def send(self, message: Message) -> None:
        self._count(message, 1)
        if self._plan.fires("link.down") or self._plan.fires("link.drop"):
            return
        arriving: Message | None = self._damaged(message) if self._plan.fires("link.corrupt") else message
        if arriving is None:
            return
        self._steady.send(arriving)
        if self._plan.fires("link.duplicate"):
            self._count(arriving, 1)
            self._steady.send(arriving)

    def reject(self, detail: str) -> None:
        self._delayed.clear()
        self._steady.reject(detail)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear

    @property
    def lag_ms(self) -> int:
        return self._steady.lag_ms

    def receive(self) -> list[Message]:
        self._delayed += self._steady.receive()
        if not self._delayed or self._plan.fires("link.down") or self._plan.fires("link.delay"):
            return []
        messages, self._delayed = self._delayed, []
        if len(messages) > 1 and self._plan.fires("link.reorder"):
            messages.reverse()
        for message in messages:
            self._count(message, -1)
        return messages
