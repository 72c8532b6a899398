"""The slot tables of all pools of an engine, on the device and on the host, and the comparison of their bytes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from swarden.engine_under_test.pools.memory import KVMemory
from swarden.harness.engines.own.content.slots import Ints, SlotTable
from swarden.invariants import events

Note = Callable[[NamedTuple], None]


class Tables:
    """A table per pool; each comparison of bytes is noted as an event."""

    def __init__(self, memory: KVMemory, note: Note) -> None:
        stores = [memory.store] if memory.host is None else [memory.store, memory.host.store]
        self.by_pool = {
            name: SlotTable(name, store.kv(name), store.page_dim(name)) for store in stores for name in store.pools
        }
        self._on_host = dict(zip(stores[0].pools, stores[-1].pools, strict=True))
        self.note = note

    def host_of(self, pool: str) -> SlotTable:
        """The table of the pool on the host that has the copies of a pool on the device."""
        return self.by_pool[self._on_host[pool]]

    def moved(self, event: events.Taken | events.Freed) -> None:
        """Forget the content of pages that were taken or freed."""
        if event.pool in self.by_pool:
            self.by_pool[event.pool].forget(event.units)

    def compare(self, table: SlotTable, slots: Ints) -> set[int]:
        """Compare the bytes of slots with what was written there; returns the pages that changed."""
        altered = table.altered(slots)
        self.note(events.BytesCompared(table.name, altered))
        return {page for page, _ in altered}

    def compare_pages(self, pool: str, pages: Sequence[int]) -> None:
        table = self.by_pool[pool]
        self.compare(table, table.slots_of(pages))

    def sweep(self, num_pages: int) -> None:
        """Compare the next few pages of each pool in turn."""
        for table in self.by_pool.values():
            self.compare(table, table.next_swept(num_pages))
