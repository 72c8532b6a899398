"""The common part of adapters: the events of passes and moves, and the snapshot of the facts that they give."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_FAULTS, FaultPlan
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort
from swarden.harness.kit.clients import Clients
from swarden.harness.kit.part import Capability, Part
from swarden.harness.kit.passes import Pass, Passes, TableEntry
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.tags import ReadTags
from swarden.invariants.events import REQUEST_KIND, Owner
from swarden.invariants.limits import Limits
from swarden.invariants.reference import Reference
from swarden.invariants.reuse import sharing
from swarden.invariants.view import ComponentView, Counters, PoolView, RecordView, RequestView, Snapshot


class Adapted(EnginePort):
    """An engine behind its port.  A subclass has its facts, from `pools` on, and its calls.

    `reported` are the names of the events that it reports, `one_sided` those of laws that could not fail or do not
    apply.  A model of tags has a `vocabulary`.  A subclass sets `components`, `limits` and, if it has records, its
    `requests`; a step calls `begin_step` first.
    """

    code: EngineCode
    reported: frozenset[str]
    one_sided: frozenset[str] = frozenset()
    vocabulary = 0
    parts: Sequence[Part] = ()
    components: Sequence[ComponentView]
    limits: Limits
    requests: Clients[Any]
    is_paused = False

    def __init__(self, faults: Iterable[str] = CLIENT_FAULTS) -> None:
        self.log = EventLog(code=self.code)
        self.faults = FaultPlan(faults, on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        self.passes = Passes[Any]()
        self._steps = 0
        self._last: Snapshot | None = None

    # --- the facts

    @property
    def in_flight(self) -> Sequence[Pass[Any]]:
        """The passes in flight, in launch order."""
        return self.passes.in_flight

    def pools(self) -> Iterable[PoolView]:
        """The pools, from a walk over the structures of the engine."""
        return ()

    def request_views(self) -> Iterable[RequestView]:
        return self.requests.views()

    def records(self) -> Iterable[RecordView] | None:
        """The KV of each request; None: it is not known, nor what the passes in flight use."""
        return None

    def counted(self) -> Mapping[str, int] | None:
        """The free units of each pool, as the engine counts them."""
        return None

    def further(self) -> Mapping[str, Any]:
        """The further parts of a snapshot, by their names; they are found first."""
        return {}

    def settle(self) -> Iterable[NamedTuple]:
        """The events of units that have another owner now, although no call moved them."""
        return ()

    def audit(self) -> None:
        """Read all of what a capture else reads only where a call has marked it as changed."""

    def is_used(self, entry: Any) -> bool:
        """Will the result of a pass in flight for this entry be used?"""
        return self.requests.is_used(entry)

    def units_in_use(self, entry: Any) -> tuple[Sequence[int], ...]:
        """The units that an entry of a pass in flight reads or writes, per component."""
        return tuple(entry.units)

    def session_of(self, entry: Any) -> int:
        """The session of which an entry of a pass computes a turn; 0: none."""
        return 0

    # --- the port

    def reference(self) -> Reference:
        return Reference(self.vocabulary, tuple([component.window for component in self.components]))

    @property
    def has_work(self) -> bool:
        return bool(self.requests or self.in_flight or any(part.has_work for part in self.parts))

    def begin_step(self) -> None:
        self._steps += 1
        for part in self.parts:
            part.begin_step()

    def clear(self) -> None:
        for part in self.parts:
            part.clear()
        super().clear()

    def capture(self) -> Snapshot:
        for part in self.parts:
            part.settle()
        self.audit_in_turn()
        self.report(self.settle())
        snapshot = self.snapshot()
        for part in self.parts:
            snapshot = part.views(snapshot)
        self._last = snapshot if self._last is None else sharing(self._last, snapshot)
        return self._last

    def audit_in_turn(self) -> None:
        """Audit before a capture, if the log says that one is due."""
        if self.log.begin_capture(sum([pool.capacity for pool in self._last.pools]) if self._last is not None else 0):
            self.audit()

    def snapshot(self) -> Snapshot:
        """The facts; a subclass that has more of them may add them here."""
        further, records, counted = self.further(), self.records(), self.counted()
        passes = [(in_flight, [*map(self.session_of, in_flight.entries)]) for in_flight in self.in_flight]
        launches = [in_flight.view(self.units_in_use, self.is_used, sessions=turns) for in_flight, turns in passes]
        parts: dict[str, Any] = {
            "records": None if records is None else tuple(records),
            "requests": tuple(self.request_views()),
            "counters": None if counted is None else Counters(counted, {}, {}, 0),
            "launches": None if records is None else tuple(launches),
            "is_paused": self.is_paused,
            "unreported": self.unreported,
        }
        pools = tuple(self.pools())
        return Snapshot(self._steps, self.limits, tuple(self.components), pools, **{**parts, **further})

    # --- what a subclass calls

    @cached_property
    def unreported(self) -> frozenset[str]:
        """The names of the events that are never reported, and of the laws that do not apply."""
        return (seen.ALL_EVENTS - self.reported) | self.one_sided

    def provide(self, capabilities: Iterable[Capability], config: Any, release: Any = None) -> None:
        """Attach the capabilities of a configuration to the engine, which has been built."""
        for capability in capabilities:
            self.reported |= names_of(capability.reported(config))
            self.one_sided |= frozenset(capability.inapplicable(config, release))
            self.parts = (*self.parts, *capability.attach(self))

    def report(self, events: Iterable[NamedTuple]) -> None:
        for event in events:
            self.log.notice(event)

    def launch(self, entries: Sequence[TableEntry]) -> Pass[TableEntry]:
        """Report the launch of a pass, but not what it writes."""
        flight = self.passes.launch(entries)
        self.log.notice(flight.launched())
        return flight

    def report_written(self, flight: Pass[TableEntry]) -> None:
        for request, start, end, _, tables, *_ in flight.entries:
            for index, (component, table) in enumerate(zip(self.components, tables, strict=True)):
                units = self.units_from(index, table, start, end)
                self.log.notice(seen.Written(flight.launch, request, component.pool, start, end, units, index))

    def read(self, flight: Pass[TableEntry], index: int, component: int, read: ReadTags) -> None:
        """Keep the tags that the layers of a component have read for an entry, until its pass completes."""
        entry, of_layers = flight.entries[index], self.components[component]
        tags = read.tags[: entry.start - read.first] if of_layers.has_states else read.tags
        flight.reports.append(seen.Read(flight.launch, entry.request, of_layers.pool, read.first, tags, component))

    def complete(self, flight: Pass[Any]) -> None:
        self.report(self.passes.complete(flight).completed(self.is_used))

    def entry(self, number: int, start: int, end: int, units: Sequence[Sequence[int]], req: Any = None) -> TableEntry:
        """Positions [start, end) of a request in a pass that begins now."""
        return TableEntry(number, start, end, self.requests.run_of(number), units, req)

    def launched_len(self, number: int, computed_len: int) -> int:
        """The tokens of a request that passes have computed or are computing, of which the engine counts some."""
        return max([entry.ids[2] for entry in self._counting(number)], default=computed_len)

    def units_from(self, index: int, table: Sequence[int], start: int, end: int) -> tuple[int, ...]:
        """The units of the table of a component that have the slots of positions [start, end)."""
        component = self.components[index]
        if component.is_ring and component.window is not None:
            start = max(start, end - component.window)
        indices = dict.fromkeys(component.page_index(position) for position in range(start, end))
        return tuple([table[index] for index in indices if index < len(table)])

    def record(
        self, number: int, units: tuple[Sequence[int], ...], *, computed_len: int, shared_len: int, allocated_len: int
    ) -> RecordView:
        """The record of a request that the engine counts as computed up to `computed_len`; it shares whole pages."""
        lens = (*self.lens(number, computed_len, shared_len), allocated_len)
        return RecordView(Owner(REQUEST_KIND, number), 0, *lens, frontiers=(0,) * len(units), units=units)

    def lens(self, number: int, computed_len: int, shared_len: int) -> tuple[int, int, int]:
        """The protected, the committed and the launched length of such a record."""
        counting, size = [entry.ids for entry in self._counting(number)], self.limits.page_size
        launched = max([end for _, _, end in counting], default=computed_len)
        committed = min([start for _, start, _ in counting], default=launched)
        return min(shared_len, committed // size * size), committed, launched

    def _counting(self, number: int) -> list[Any]:
        """The entries of a request in passes in flight whose results will be used."""
        entries = [entry for flight in self.in_flight for entry in flight.entries if entry.ids[0] == number]
        return list(filter(self.is_used, entries))
