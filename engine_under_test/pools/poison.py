"""Poisoning freed pages, so that whoever reads one shows it in its output."""

from engine_under_test.events import Event, Freed
from engine_under_test.pools.kv_store import KVStore


class Poisoner:
    """An observer of the books that overwrites each page as soon as nobody may read it: freed, or behind its fence."""

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._pools = frozenset(store.pools)
        self._fenced: list[Freed] = []

    def notice(self, event: Event) -> None:
        if isinstance(event, Freed) and event.pool in self._pools:
            if event.after:
                self._fenced.append(event)
            else:
                self._store.poison(event.pool, event.units)

    def complete(self, launch: int) -> None:
        """What was freed behind passes up to `launch` is read by nobody any more."""
        done = [freed for freed in self._fenced if freed.after <= launch]
        self._fenced = [freed for freed in self._fenced if freed.after > launch]
        for freed in done:
            self._store.poison(freed.pool, freed.units)
