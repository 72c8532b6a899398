"""The passes that are in flight: launched in order, collected in order."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine_under_test.events import Completed, Failed, Late, Launched
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Computed, Forward, ForwardBatch, ForwardFailed, Observer
from engine_under_test.scheduler.batch import Entry, forward_batch


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """One pass between its launch and its completion."""

    entries: Sequence[Entry]
    batch: ForwardBatch


@dataclass(frozen=True, slots=True, eq=False)
class Landed:
    """A pass that has completed: what came of each entry; of none, but the reason, where it failed."""

    launch: int
    entries: Sequence[Entry]
    computed: Sequence[Computed]
    failure: str | None = None


class Pipeline:
    """At most `depth` passes in flight: one, or two where a step is launched before the last one's result is known."""

    def __init__(self, memory: KVMemory, forward: Forward, observer: Observer | None, *, depth: int) -> None:
        self.flights: deque[Flight] = deque()
        self._memory = memory
        self._forward = forward
        self._observer = observer
        self._depth = depth
        self._launch = 0

    def __len__(self) -> int:
        return len(self.flights)

    @property
    def has_room(self) -> bool:
        return len(self.flights) < self._depth

    def launch(self, entries: Sequence[Entry]) -> None:
        """Start a pass; the records of its entries are read and written until it has completed."""
        self._launch += 1
        batch = forward_batch(self._memory, self._launch, entries)
        for entry in entries:
            entry.record.launched_len = entry.end
            entry.record.last_launch = self._launch
        self.flights.append(Flight(entries, batch))
        if self._observer:
            spans = tuple((entry.request.id, entry.start, entry.end) for entry in entries)
            self._observer.notice(Launched(self._launch, spans))
        self._forward.launch(batch)

    def collect(self) -> Landed | None:
        """The oldest pass, completed; None while it still runs.  What was freed behind its fence is free then."""
        flight = self.flights[0]
        launch, failure = flight.batch.launch, None
        try:
            computed = self._forward.collect(launch)
        except ForwardFailed as failed:
            computed, failure = [], str(failed)
        if computed is None:
            if self._observer:
                self._observer.notice(Late(launch))
            return None
        self.flights.popleft()
        self._memory.complete(launch)
        if self._observer:
            if failure is not None:
                self._observer.notice(Failed(launch, failure))
            self._observer.notice(Completed(launch))
        return Landed(launch, flight.entries, computed, failure)
