"""The events of an engine, on their way to the invariants."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from harness.core.origins import UNKNOWN_CODE, EngineCode


class Listener(Protocol):
    """Another observer of the events."""

    def notice(self, event: object) -> None: ...


class EventLog:
    """The observer of an engine: keeps its events until they are taken.

    `translate` makes of an engine's event one of `invariants.events`, or None where no invariant reads it; without it
    events are kept as they are.  `origins` are the places in the engine's `code` of the events
    taken last; () unless traced.
    """

    def __init__(
        self, translate: "Callable[[NamedTuple], NamedTuple | None] | None" = None, *, code: EngineCode = UNKNOWN_CODE
    ) -> None:
        self.origins: Sequence[str] = ()
        self._translate = translate
        self._code = code
        self._heard: list[NamedTuple] = []
        self._places: dict[int, str] | None = None  # by the index of an event in _heard
        self.notice: Callable[[NamedTuple], None] = self._heard.append
        self.tell = self._heard.append

    def also(self, listener: Listener) -> None:
        """Pass every event to a listener too, right after it was kept."""

        def notice(event: NamedTuple) -> None:
            self.tell(event)
            listener.notice(event)

        self.notice = notice

    def trace(self) -> None:
        """Note from now on the place in the engine's code of each event; costs a walk over the stack for each."""
        places = self._places = {}

        def tell(event: NamedTuple) -> None:
            places[len(self._heard)] = self._code.origin_of_caller()
            self._heard.append(event)

        if self.notice == self.tell:
            self.notice = tell
        self.tell = tell

    def take(self) -> list[NamedTuple]:
        translated = self._heard[:] if self._translate is None else [self._translate(event) for event in self._heard]
        if self._places is not None:
            judged = [index for index, event in enumerate(translated) if event is not None]
            self.origins = [self._places.get(index, "") for index in judged]
            self._places.clear()
        self._heard.clear()
        return [event for event in translated if event is not None]
