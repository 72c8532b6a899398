"""A link between two engines that is not to be relied on."""

from collections.abc import Callable
from typing import ClassVar

from engine_under_test.ports import Link, Message
from fakes.faults import Faults


class UnsteadyLink:
    """One end of another link, which loses what cannot be read, and permits these faults:

    Each message that is sent is a crossing, and each look at what has come; `damaged` makes of a message what
    came of it with a bit turned over, None where that shows.
    """

    FAULTS: ClassVar = {
        "link.drop": "a message that is sent is lost",
        "link.corrupt": "a bit of a message is turned over on its way, and the other end does not take it",
        "link.duplicate": "a message that is sent comes twice",
        "link.delay": "what has come is not seen yet",
        "link.reorder": "what has come is seen in another order",
        "link.down": "nothing that is sent gets through, and nothing that has come is seen",
    }

    def __init__(self, steady: Link, plan: Faults, damaged: Callable[[Message], Message | None]) -> None:
        self._steady = steady
        self._plan = plan
        self._damaged = damaged
        self._late: list[Message] = []

    def send(self, message: Message) -> None:
        if self._plan.fires("link.down") or self._plan.fires("link.drop"):
            return
        came: Message | None = self._damaged(message) if self._plan.fires("link.corrupt") else message
        if came is None:
            return
        self._steady.send(came)
        if self._plan.fires("link.duplicate"):
            self._steady.send(came)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear

    def receive(self) -> list[Message]:
        self._late += self._steady.receive()
        if not self._late or self._plan.fires("link.down") or self._plan.fires("link.delay"):
            return []
        come, self._late = self._late, []
        return come[::-1] if len(come) > 1 and self._plan.fires("link.reorder") else come
