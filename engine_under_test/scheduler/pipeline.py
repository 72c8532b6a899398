"""The passes that are in flight: launched in order, collected in order."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import Computed, ForwardBatch, ForwardFailed, Ports
from swarden.engine_under_test.scheduler.batch import Entry, forward_batch
from swarden.engine_under_test.scheduler.speculation import Speculation
from swarden.invariants.events import Completed, Failed, Late, Launched, Proposed


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """One pass between its launch and its completion."""

    entries: Sequence[Entry]
    batch: ForwardBatch


@dataclass(frozen=True, slots=True, eq=False)
class CompletedPass:
    """A completed pass: the result of each entry, or no results and the reason if the pass failed."""

    launch: int
    entries: Sequence[Entry]
    computed: Sequence[Computed]
    failure: str | None = None


class Pipeline:
    """The passes in flight: one, or two if a pass is launched before the result of the previous pass is known.

    `speculation` verifies the drafts against the tokens that the passes sampled.
    """

    def __init__(self, config: EngineConfig, memory: KVMemory, ports: Ports) -> None:
        assert ports.forward is not None, "an engine has a forward, its own or a given one"
        self.flights: deque[Flight] = deque()
        self.speculation = Speculation(config, ports)
        self._memory = memory
        self._forward = ports.forward
        self._observer = ports.observer
        self._depth = config.most_launches
        self._launch = 0

    def __len__(self) -> int:
        return len(self.flights)

    @property
    def can_launch(self) -> bool:
        return len(self.flights) < self._depth

    def launch(self, entries: Sequence[Entry]) -> None:
        """Start a pass; the records of its entries are read and written until it has completed."""
        self._launch += 1
        batch = forward_batch(self._memory, self._launch, entries)
        for entry in entries:
            entry.record.launched_len = entry.end
            entry.record.written_len = max(entry.record.written_len, entry.reach)
            entry.record.last_launch = self._launch
        self.flights.append(Flight(entries, batch))
        if self._observer:
            spans = tuple((entry.request.id, entry.start, entry.end) for entry in entries)
            self._observer.notice(Launched(self._launch, spans))
            for entry in entries:
                if entry.drafts:
                    self._observer.notice(Proposed(self._launch, entry.request.id, entry.drafts))
        self._forward.launch(batch)

    def collect(self) -> CompletedPass | None:
        """The result of the oldest pass; None while it runs.  Its completion frees the units fenced for it."""
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
        verified = [
            self.speculation.verify(launch, *pair) for pair in zip(flight.entries, computed, strict=bool(computed))
        ]
        self._memory.complete(launch)
        if self._observer:
            if failure is not None:
                self._observer.notice(Failed(launch, failure))
            self._observer.notice(Completed(launch))
        return CompletedPass(launch, flight.entries, verified, failure)
