"""What passes read and write: each slot that is read has the KV of its request's prefix, in the bytes of the write."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.ports import PoolPages
from swarden.engine_under_test.scheduler.batch import Entry
from swarden.engine_under_test.scheduler.pipeline import Flight
from swarden.engine_under_test.units import lookback
from swarden.harness.engines.own.content.prefixes import Prefixes
from swarden.harness.engines.own.content.slots import Ints, SlotTable
from swarden.harness.engines.own.content.tables import Tables
from swarden.harness.strict.live import Handlers
from swarden.invariants import events


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
    def handlers(self) -> Handlers:
        return {
            events.Launched: self.launched,
            events.Failed: lambda event: self._failed.add(event.launch),
            events.Completed: self.completed,
        }

    def launched(self, event: events.Launched) -> None:
        flight = self._pipeline.flights[-1]
        in_flight = {entry.record.row: entry.start for flight in self._passes.values() for entry in flight.entries}
        ends = np.array([min(entry.start, in_flight.get(entry.record.row, entry.start)) for entry in flight.entries])
        tags = [self._prefixes.tags(entry) for entry in flight.entries]
        written = _written(flight, range(len(flight.entries)))
        for pool in flight.batch.pools:
            table, places = self._tables.by_pool[pool.name], places_of(pool, flight.batch.page_size)
            self._compare(flight, table, places, ends, tags)
            table.tags[places.written(written).slots] = 0
        self._passes[event.launch] = flight

    def completed(self, event: events.Completed) -> None:
        """Record the slots that were written; those of discarded results, and of a failed pass, stay unknown."""
        flight = self._passes.pop(event.launch)
        kept = [index for index, entry in enumerate(flight.entries) if self._custody.holds(entry.request, entry.record)]
        if event.launch in self._failed or not kept:
            self._failed.discard(event.launch)
            return
        self._note_written(flight)
        tags = np.concatenate([self._prefixes.written(flight.entries[index]) for index in kept])
        written = _written(flight, kept)
        for pool in flight.batch.pools:
            stored = places_of(pool, flight.batch.page_size).written(written)
            self._tables.by_pool[pool.name].record(stored.slots, tags[stored.among])

    def _compare(
        self, flight: Flight, table: SlotTable, places: "EntryPages | StatePlaces", ends: Ints, tags: Sequence[Ints]
    ) -> None:
        """Compare what the pass reads in one pool, before the position in `ends` of each entry.

        `tags` are those of the tokens of each entry's request.
        """
        starts = np.array([entry.start for entry in flight.entries])
        turns = starts + np.array([entry.request.id for entry in flight.entries])
        read, slots = places.read(starts, ends, turns, self._period)
        differing = (table.tags[slots] != read.gathered(tags)).nonzero()[0]
        entries, first_of_entry = np.unique(read.entries[differing], return_index=True)
        wrong = [
            self._wrong_slot(flight.entries[entry], table, int(read.positions[at]), int(slots[at]))
            for entry, at in zip(entries.tolist(), differing[first_of_entry].tolist(), strict=True)
        ]
        self._tables.note(events.PrefixesCompared(flight.batch.launch, table.name, wrong))
        self._tables.compare(table, slots)

    def _note_written(self, flight: Flight) -> None:
        """Note the pages that a pass was launched to write, by entry; a model does not report them."""
        written = _written(flight, range(len(flight.entries)))
        for component, pool in enumerate(flight.batch.pools):
            stored = places_of(pool, flight.batch.page_size).written(written)
            pages, entries = stored.slots // self._tables.by_pool[pool.name].page_size, written.entries[stored.among]
            for index, entry in enumerate(flight.entries):
                of_entry = tuple(np.unique(pages[entries == index]).tolist())
                stretch = (pool.name, entry.start, entry.reach)
                self._tables.note(events.Written(flight.batch.launch, entry.request.id, *stretch, of_entry, component))

    def _wrong_slot(self, entry: Entry, table: SlotTable, position: int, slot: int) -> events.WrongSlot:
        tag = int(table.tags[slot])
        known_from = self._prefixes.holders(tag) if tag else ()
        return events.WrongSlot(entry.request.id, position, slot // table.page_size, bool(tag), known_from)


class Positions(NamedTuple):
    """Positions of a pass, entry by entry, as two arrays (n,): the index of each one's entry, and the position."""

    entries: Ints
    positions: Ints

    def gathered(self, by_entry: Sequence[Ints]) -> Ints:
        """The values of all positions, from an array of the values of each entry."""
        values = np.empty_like(self.positions)
        borders = np.searchsorted(self.entries, np.arange(len(by_entry) + 1)).tolist()
        for of_entry, (begin, end) in zip(by_entry, pairwise(borders), strict=True):
            values[begin:end] = of_entry[self.positions[begin:end]]
        return values


class StoredSlots(NamedTuple):
    """The slots in which a pool stores some of the positions that are computed, and their places among these."""

    among: Ints | slice
    slots: Ints


class EntryPages:
    """The pages of the entries of a pass in one pool of KV."""

    def __init__(self, pool: PoolPages, page_size: int) -> None:
        self._window = pool.window
        self._page_size = page_size
        self._pages: Ints = pool.pages.cpu().numpy()
        self._first_positions = np.array([span.first_position for span in pool.spans])
        self._begins = np.array([span.begin for span in pool.spans])

    def read(self, starts: Ints, ends: Ints, turns: Ints, period: int) -> tuple[Positions, Ints]:
        """Of the positions before `ends` that entries from `starts` on read, those to compare, and their slots."""
        firsts = np.zeros_like(starts) if self._window is None else np.maximum(0, starts - lookback(self._window))
        read = sampled(firsts, ends, turns, period)
        return read, self._slots(read)

    def written(self, computed: Positions) -> StoredSlots:
        return StoredSlots(slice(None), self._slots(computed))

    def _slots(self, wanted: Positions) -> Ints:
        index, positions = wanted
        place, offset = np.divmod(positions - self._first_positions[index], self._page_size)
        slots: Ints = self._pages[self._begins[index] + place] * self._page_size + offset
        return slots


class StatePlaces:
    """The states that the entries of a pass read and store in one pool; what an entry reads is always compared."""

    def __init__(self, pool: PoolPages) -> None:
        self._states = pool.states

    def read(self, starts: Ints, ends: Ints, _turns: Ints, _period: int) -> tuple[Positions, Ints]:
        index = ((starts > 0) & (ends == starts)).nonzero()[0]
        return Positions(index, starts[index] - 1), np.array([state.read for state in self._states], np.int64)[index]

    def written(self, computed: Positions) -> StoredSlots:
        among: list[int] = []
        slots: list[int] = []
        entries, begins = np.unique(computed.entries, return_index=True)
        for entry, begin in zip(entries.tolist(), begins.tolist(), strict=True):
            stored, first = self._states[entry], int(computed.positions[begin])
            among += [begin + position - first for position in stored.positions]
            slots += stored.slots
        return StoredSlots(np.array(among, np.int64), np.array(slots, np.int64))


def places_of(pool: PoolPages, page_size: int) -> EntryPages | StatePlaces:
    return StatePlaces(pool) if pool.states else EntryPages(pool, page_size)


def sampled(firsts: Ints, ends: Ints, turns: Ints, period: int) -> Positions:
    """Every `period`th position of [first, end) of each entry; each is among them in one of `period` turns."""
    firsts = firsts + (turns - firsts) % period
    counts = np.maximum(0, -((firsts - ends) // period))
    index = np.repeat(np.arange(len(firsts)), counts)
    within = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return Positions(index, firsts[index] + within * period)


def _written(flight: Flight, indices: Sequence[int]) -> Positions:
    """The positions that a pass writes for some of its entries."""
    entries = [flight.entries[index] for index in indices]
    firsts, ends = np.array([entry.start for entry in entries]), np.array([entry.reach for entry in entries])
    among, positions = sampled(firsts, ends, firsts, 1)
    return Positions(np.array(indices)[among], positions)
