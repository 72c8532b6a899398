"""Transfer and release of KV records.

A released record frees all its pages, its row and its lock.  Units that a pass in flight still reads or writes
become free when that pass has completed.
"""

from typing import NamedTuple

from swarden.engine_under_test.cache.locks import LockReceipt
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.invariants.events import Owner


class Departing(NamedTuple):
    """The lock of a released record; pass `launch` still reads the pages under it."""

    launch: int
    receipt: LockReceipt


class Departures:
    """Releases records: a fence delays the reuse of pages and row, and this class delays the unlock."""

    def __init__(self, memory: KVMemory, cache: PrefixCache) -> None:
        self._memory = memory
        self._cache = cache
        self._waiting: list[Departing] = []

    @property
    def waiting(self) -> list[Departing]:
        """The locks of released records that passes in flight still need."""
        return list(self._waiting)

    def release(self, record: KVRecord, *, cause: str) -> None:
        """Release everything that a record has: private pages, lock, and row if it has one."""
        ledgers, after = self._memory.ledgers, record.last_launch
        for handles, freed in record.private_parts(self._memory.page_size):
            ledgers.free(handles, owner=record.owner, cause=cause, after=after, lacks=freed)
        if record.row:
            self._memory.table.rows.free([record.row], owner=record.owner, cause=cause, after=after)
        if after > self._memory.completed_launch:
            self._waiting.append(Departing(after, record.receipt))
        else:
            self._cache.unlock(record.receipt)

    def give(self, record: KVRecord, to_owner: Owner) -> None:
        """Give a whole record to another owner: its private pages, and its row if it has one."""
        private = [handle for part, _ in record.private_parts(self._memory.page_size) for handle in part]
        self._memory.ledgers.give(private, from_owner=record.owner, to_owner=to_owner)
        if record.row:
            self._memory.table.rows.give([record.row], from_owner=record.owner, to_owner=to_owner)
        record.owner = to_owner

    def complete(self, launch: int) -> None:
        """Release the locks that waited for passes up to `launch`, which have completed."""
        staying = [departure for departure in self._waiting if departure.launch > launch]
        for departure in self._waiting:
            if departure.launch <= launch:
                self._cache.unlock(departure.receipt)
        self._waiting = staying
