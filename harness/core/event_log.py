"""The log of an engine's events, from which the driver takes them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from swarden.harness.core.origins import UNKNOWN_CODE, EngineCode
from swarden.invariants.events import OF_OBSERVERS

CAPTURES_PER_AUDIT = 16  # at least
UNITS_PER_CAPTURE = 256  # that audits read on average


class PassedOver(NamedTuple):
    """A function of the engine took a branch that leaves a request out of this step."""

    request_id: int  # 0: no particular one
    condition: str  # the source text of the one that held
    values: tuple[tuple[str, str], ...]  # in the condition, as text
    place: str  # in the engine's code


class Tracer(Protocol):
    """Follows the engine's code within its steps; `found` are the branches by which it leaves out requests."""

    found: list[PassedOver]

    def tracing(self) -> AbstractContextManager[None]: ...


TracerOf = Callable[[EngineCode], Tracer | None]  # makes the tracer of a run; None: nothing of this code is followed


class EventLog:
    """The observer of an engine: keeps its events until they are taken.

    Events that only an engine's own observers read are not taken.  `origins` are the places in the engine's `code` of
    the events taken last, and `passed_over` are the requests left out since then; both are () if not traced.
    """

    is_replayed = False  # the run is that of an op-log, so that an adapter audits each of its captures
    captures = 0  # begun; 0 makes the next one an audit

    def __init__(self, *, code: EngineCode = UNKNOWN_CODE) -> None:
        self.origins: Sequence[str] = ()
        self.passed_over: Sequence[PassedOver] = ()
        self._code = code
        self._events: list[NamedTuple] = []
        self._places: dict[int, str] | None = None  # by the index of an event in _events
        self._tracer: Tracer | None = None
        self._listeners: dict[type, list[Callable[[Any], None]]] = {}
        self.when_traced: Callable[[], None] = lambda: None  # an adapter begins to watch what only a story shows

    def forward_to(self, listen: Callable[[Any], None], *kinds: type) -> None:
        """Pass each event of these types to `listen`, too, if it comes by `notice`; an event of `add` is only kept."""
        for kind in kinds:
            self._listeners.setdefault(kind, []).append(listen)

    def notice(self, event: NamedTuple) -> None:
        self.add(event)
        for listen in self._listeners.get(type(event), ()):
            listen(event)

    def add(self, event: NamedTuple) -> None:
        if self._places is not None:
            self._places[len(self._events)] = self._code.origin_of_caller()
        self._events.append(event)

    def begin_capture(self, units: int) -> bool:
        """Must the capture that begins read all `units` of the pools, also those that no event or call has marked?

        Such an audit is each capture of a replay, else the first, those at the end of a drain, and a share that reads
        few units per capture.
        """
        is_audit = self.is_replayed or self.captures % max(CAPTURES_PER_AUDIT, units // UNITS_PER_CAPTURE) == 0
        self.captures += 1
        return is_audit

    def trace(self, tracer_of: TracerOf = lambda _: None) -> None:
        """Record the place in the engine's code of each later event; each event costs a walk over the stack.

        The tracer finds the requests that later steps leave out.
        """
        self._places = {}
        self._tracer = tracer_of(self._code)
        self.when_traced()

    def in_step(self) -> AbstractContextManager[None]:
        """The context of an engine step; in a traced run, it reports why requests are passed over."""
        return nullcontext() if self._tracer is None else self._tracer.tracing()

    def take(self) -> list[NamedTuple]:
        """Return the events since the last call, and forget them."""
        if self._places is not None:
            taken = [index for index, event in enumerate(self._events) if type(event) not in OF_OBSERVERS]
            self.origins = [self._places.get(index, "") for index in taken]
            self._places.clear()
        if self._tracer is not None:
            self.passed_over = tuple(self._tracer.found)
            self._tracer.found.clear()
        events = [event for event in self._events if type(event) not in OF_OBSERVERS]
        self._events.clear()
        return events
