"""The terms of our engine's pools, by the lengths of its free lists and its counters of owned and fenced units."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.host.copy_jobs import CopyJob
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.harness.engines.own.outside import Outside
from swarden.harness.strict.live import Terms
from swarden.invariants.events import Owner


class KVPool(NamedTuple):
    """A pool of pages, its place among the tree's components, and whether it has a window."""

    ledger: Ledger
    component: int
    windowed: bool


class EngineTerms:
    """Counts the units of each pool.  The cost is a pass over the records that hold KV."""

    def __init__(self, engine: Engine, outside: Outside) -> None:
        self._custody, self._tree, self._outside = engine.scheduler.custody, engine.cache.tree, outside
        self._loading = engine.scheduler.loading
        self._page_size, self._rows = engine.memory.page_size, engine.memory.table.rows
        pools = zip(engine.memory.ledgers.ledgers, engine.memory.pools, strict=True)
        self._pools = [KVPool(ledger, index, spec.leaves_tombstones) for index, (ledger, spec) in enumerate(pools)]
        self._host = engine.host
        self._on_host = list(enumerate(engine.memory.host.ledgers if engine.memory.host is not None else ()))

    def __call__(self) -> Iterator[Terms]:
        records, tree, loads = self._records(), self._tree, self._jobs(to_host=False)
        num_pages = sum([len(record.handles) for record in records])
        shared_len = sum([record.protected_len for record in records])
        for ledger, component, windowed in self._pools:
            released = _released_len(records, ledger.name) if windowed else shared_len
            private = num_pages - released // self._page_size + self._outside.counts[ledger.name]
            loaded = sum([len(load.moves[component]) for load in loads])
            cached = tree.evictable[component], tree.protected[component]
            yield Terms(ledger.name, ledger.capacity, ledger.num_free, *cached, private + loaded, _num_fenced(ledger))
        for component, ledger in self._on_host:
            copied = self._host.backups.num_copied[component] if self._host is not None else 0
            backed_up = sum([len(backup.moves[component]) for backup in self._jobs(to_host=True)])
            yield Terms(ledger.name, ledger.capacity, ledger.num_free, copied, 0, backed_up)
        rows = self._rows
        yield Terms(rows.name, rows.capacity, rows.num_free, 0, 0, len(self._custody.with_row), _num_fenced(rows))

    def uncached(self, pool: str) -> Counter[Owner]:
        """The units in a pool of each owner that is not the tree."""
        if pool == self._rows.name:
            return Counter([record.owner for record in self._custody.with_row])
        counts = Counter[Owner]()
        for kv_pool in self._pools:
            if kv_pool.ledger.name == pool:
                for record in self._records():
                    counts[record.owner] += len(record.handles) - _released_len([record], pool) // self._page_size
                counts.update({held.owner: len(held.units) for held in self._outside.held()[pool]})
        on_host = pool in [ledger.name for _, ledger in self._on_host]
        [component] = [index for index, ledger in self._components(on_host=on_host) if ledger.name == pool]
        for job in self._jobs(to_host=on_host):
            counts[job.owner] += len(job.moves[component])
        return counts

    def _components(self, *, on_host: bool) -> list[tuple[int, Ledger]]:
        return self._on_host if on_host else [(pool.component, pool.ledger) for pool in self._pools]

    def _jobs(self, *, to_host: bool) -> list[CopyJob]:
        """Copies in flight, whose target pages no request or node owns yet."""
        return [job for job in self._loading.under_way if job.to_host == to_host]

    def _records(self) -> list[KVRecord]:
        """The records of requests, of transfers, and of sessions between their turns."""
        return self._custody.with_row + self._custody.sessions.records


def _released_len(records: Sequence[KVRecord], pool: str) -> int:
    """The tokens of which records have no private page in a pool."""
    total = 0
    for record in records:
        released = max(record.protected_len, record.frontier(pool))
        holes = record.holes.get(pool, ())
        total += released + sum([max(0, hole.stop - max(hole.start, released)) for hole in holes])
    return total


def _num_fenced(ledger: Ledger) -> int:
    return sum(map(len, ledger.fenced_units.values()))
