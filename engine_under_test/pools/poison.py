"""Poison for freed pages, so that a read of a freed page shows in the output."""

from swarden.engine_under_test.pools.kv_store import KVStore
from swarden.invariants.events import Event, Freed


class Poisoner:
    """An observer that overwrites each freed page, after the passes that may still read it have completed."""

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
        """Poison the pages that were freed behind passes up to `launch`, which have completed."""
        done = [freed for freed in self._fenced if freed.after <= launch]
        self._fenced = [freed for freed in self._fenced if freed.after > launch]
        for freed in done:
            self._store.poison(freed.pool, freed.units)
