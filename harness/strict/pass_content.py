"""What passes read and write: each slot that is read has the KV of its request's prefix, in the bytes of the write."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine_under_test import events
from engine_under_test.engine import Engine
from engine_under_test.ports import PageSpan, PoolPages
from engine_under_test.scheduler.batch import Entry
from engine_under_test.scheduler.pipeline import Flight
from engine_under_test.units import lookback
from harness.strict.prefixes import Prefixes
from harness.strict.slots import Ints, SlotTable
from harness.strict.tables import Tables
from invariants.events import PrefixesCompared, WrongSlot


class WrittenSlots(NamedTuple):
    """The slots that a pass writes for an entry, and the place of each one's position among those computed."""

    places: Ints
    slots: Ints


class PassContent:
    """Compares what a pass reads when it is launched, and records what it has written when it has completed.

    Of the slots that a pass reads for an entry, every `period`th is compared, others when the request goes on.  While
    a pass is in flight, the slots that it writes have no known content, and reads of them are not compared.
    """

    def __init__(self, engine: Engine, tables: Tables, prefixes: Prefixes, period: int) -> None:
        self._pipeline, self._custody = engine.scheduler.pipeline, engine.scheduler.custody
        self._tables = tables
        self._prefixes = prefixes
        self._period = period
        self._passes: dict[int, Flight] = {}
        self._failed: set[int] = set()

    @property
    def handlers(self) -> Mapping[type, Callable[..., None]]:
        return {
            events.Launched: self.launched,
            events.Failed: lambda event: self._failed.add(event.launch),
            events.Completed: self.completed,
        }

    def launched(self, event: events.Launched) -> None:
        flight = self._pipeline.flights[-1]
        in_flight = {entry.record.row: entry.start for one in self._passes.values() for entry in one.entries}
        ends = [min(entry.start, in_flight.get(entry.record.row, entry.start)) for entry in flight.entries]
        everything = range(len(flight.entries))
        for pool in flight.batch.pools:
            self._compare(flight, pool, ends)
            table = self._tables.by_pool[pool.name]
            for written in _written(flight, everything, pool, table.page_size):
                table.tags[written.slots] = 0
        self._passes[event.launch] = flight

    def completed(self, event: events.Completed) -> None:
        """Record the slots that were written; those of discarded results, and of a failed pass, stay unknown."""
        flight = self._passes.pop(event.launch)
        kept = [index for index, one in enumerate(flight.entries) if self._custody.holds(one.request, one.record)]
        if event.launch in self._failed or not kept:
            self._failed.discard(event.launch)
            return
        tags = [self._prefixes.written(flight.entries[index]) for index in kept]
        for pool in flight.batch.pools:
            table = self._tables.by_pool[pool.name]
            written = [*_written(flight, kept, pool, table.page_size)]
            table.record(
                np.concatenate([one.slots for one in written]),
                np.concatenate([of_entry[one.places] for of_entry, one in zip(tags, written, strict=True)]),
            )

    def _compare(self, flight: Flight, pool: PoolPages, ends: Sequence[int]) -> None:
        """Compare what the pass reads in one pool, before the position in `ends` of each entry."""
        launch, table, pages = flight.batch.launch, self._tables.by_pool[pool.name], _numbers(pool)
        slots, wrong = [], []
        for index, (entry, end) in enumerate(zip(flight.entries, ends, strict=True)):
            first = 0 if pool.window is None else max(0, entry.start - lookback(pool.window))
            if pool.states:
                read = np.arange(first, end)
                of_entry = np.full(len(read), pool.states[index].read)
            else:
                read = sampled(range(first, end), entry.start + entry.request.id, self._period)
                of_entry = _slots(pages, pool.spans[index], read, table.page_size)
            differing = (table.tags[of_entry] != self._prefixes.tags(entry)[read]).nonzero()[0]
            if len(differing):
                wrong.append(self._wrong_slot(entry, table, int(read[differing[0]]), int(of_entry[differing[0]])))
            slots.append(of_entry)
        self._tables.note(PrefixesCompared(launch, pool.name, wrong))
        self._tables.compare(table, np.concatenate(slots))

    def _wrong_slot(self, entry: Entry, table: SlotTable, position: int, slot: int) -> WrongSlot:
        tag = int(table.tags[slot])
        known_from = self._prefixes.holders(tag) if tag else ()
        return WrongSlot(entry.request.id, position, slot // table.page_size, bool(tag), known_from)


def sampled(positions: range, turn: int, period: int) -> Ints:
    """Every `period`th position; each is among them once in `period` successive turns."""
    return np.arange(positions.start + (turn - positions.start) % period, positions.stop, period)


def _written(flight: Flight, indices: Sequence[int], pool: PoolPages, page_size: int) -> Iterator[WrittenSlots]:
    """What a pass writes for some of its entries."""
    pages = _numbers(pool)
    for index in indices:
        entry = flight.entries[index]
        if pool.states:
            positions, slots = (np.array(one, np.int64) for one in pool.states[index][1:])
        else:
            positions = np.arange(entry.start, entry.reach)
            slots = _slots(pages, pool.spans[index], positions, page_size)
        yield WrittenSlots(positions - entry.start, slots)


def _numbers(pool: PoolPages) -> Ints:
    pages: Ints = pool.pages.cpu().numpy()
    return pages


def _slots(pages: Ints, span: PageSpan, positions: Ints, page_size: int) -> Ints:
    """The slots of positions of one entry, whose pages are in `span`."""
    place, offset = np.divmod(positions - span.first_position, page_size)
    slots: Ints = pages[span.begin + place] * page_size + offset
    return slots
