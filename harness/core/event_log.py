"""The log of an engine's events, from which the driver takes them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from swarden.harness.core.decisions import DecisionTracer, PassedOver
from swarden.harness.core.origins import UNKNOWN_CODE, EngineCode
from swarden.invariants.events import OF_OBSERVERS


class Listener(Protocol):
    """A further observer of the events."""

    def notice(self, event: object) -> None: ...


class EventLog:
    """The observer of an engine: keeps its events until they are taken.

    Events that only an engine's own observers read are not taken.  `origins` are the places in the engine's `code` of
    the events taken last, and `passed_over` are the requests left out since then; both are () if not traced.
    """

    def __init__(self, *, code: EngineCode = UNKNOWN_CODE) -> None:
        self.origins: Sequence[str] = ()
        self.passed_over: Sequence[PassedOver] = ()
        self._code = code
        self._events: list[NamedTuple] = []
        self._places: dict[int, str] | None = None  # by the index of an event in _events
        self._decisions: DecisionTracer | None = None
        self._listeners: list[Listener] = []
        self.when_traced: Callable[[], None] = lambda: None  # an adapter begins to watch what only a story shows

    def forward_to(self, listener: Listener) -> None:
        """Pass each event of `notice` to this listener too; an event of `add` is only kept."""
        self._listeners.append(listener)

    def notice(self, event: NamedTuple) -> None:
        self.add(event)
        for listener in self._listeners:
            listener.notice(event)

    def add(self, event: NamedTuple) -> None:
        if self._places is not None:
            self._places[len(self._events)] = self._code.origin_of_caller()
        self._events.append(event)

    def trace(self, *, everywhere: bool = False) -> None:
        """Record the place in the engine's code of each later event; each event costs a walk over the stack.

        Requests are found that the `decisions` of the code leave out, or, `everywhere`, any function of the engine.
        """
        self._places = {}
        if self._code.decisions or everywhere:
            self._decisions = DecisionTracer(self._code, everywhere=everywhere)
        self.when_traced()

    def in_step(self) -> AbstractContextManager[None]:
        """The context of an engine step; in a traced run, it reports why requests are passed over."""
        return nullcontext() if self._decisions is None else self._decisions.tracing()

    def take(self) -> list[NamedTuple]:
        """Return the events since the last call, and forget them."""
        if self._places is not None:
            taken = [index for index, event in enumerate(self._events) if type(event) not in OF_OBSERVERS]
            self.origins = [self._places.get(index, "") for index in taken]
            self._places.clear()
        if self._decisions is not None:
            self.passed_over = tuple(self._decisions.found)
            self._decisions.found.clear()
        events = [event for event in self._events if type(event) not in OF_OBSERVERS]
        self._events.clear()
        return events
