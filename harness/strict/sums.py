"""The cheapest level: the free, the owned and the fenced units of a pool must add up to its capacity.

The check is weak: a page that is both free and in use hides a leaked page.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.host.copy_jobs import CopyJob
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.harness.strict.check import Handler
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.outside import Outside
from swarden.invariants.events import TREE, StepEnded
from swarden.invariants.laws.memory.pools import pools_conserve_units, unbalanced
from swarden.invariants.view import Fence, Holding, PoolView
from swarden.invariants.violation import Violation


class KVPool(NamedTuple):
    """A pool of pages, its place among the tree's components, and whether it has a window."""

    ledger: Ledger
    component: int
    windowed: bool


class Sums:
    """After each step, compares the length of each free list with the engine's counters of owned and fenced units.

    The cost is a pass over the records that hold KV.  It does not depend on the size of a pool.
    """

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        self._custody, self._tree, self._outside = engine.scheduler.custody, engine.cache.tree, outside
        self._loading = engine.scheduler.loading
        self._page_size, self._rows = engine.memory.page_size, engine.memory.table.rows
        pools = zip(engine.memory.ledgers.ledgers, engine.memory.pools, strict=True)
        self._pools = [KVPool(ledger, index, spec.leaves_tombstones) for index, (ledger, spec) in enumerate(pools)]
        self._host = engine.host
        self._on_host = list(enumerate(engine.memory.host.ledgers if engine.memory.host is not None else ()))
        return {StepEnded: self.look}

    def look(self, _event: StepEnded) -> Sequence[Violation]:
        records = self._records()
        num_pages = sum([len(record.handles) for record in records])
        shared_len = sum([record.protected_len for record in records])
        wrong = [
            pool
            for pool in self._pools
            if pool.ledger.num_free
            + self._tree.evictable[pool.component]
            + self._tree.protected[pool.component]
            + num_pages
            - (_released_len(records, pool) if pool.windowed else shared_len) // self._page_size
            + _num_fenced(pool.ledger)
            + self._outside.count(pool.ledger.name)
            + self._num_loaded(pool)
            != pool.ledger.capacity
        ]
        wrong_on_host = [
            (component, ledger)
            for component, ledger in self._on_host
            if ledger.num_free + self._num_copied(component) + self._num_backed_up(component) != ledger.capacity
        ]
        rows_are_wrong = (
            self._rows.num_free + len(self._custody.with_row) + _num_fenced(self._rows) != self._rows.capacity
        )
        if not wrong and not wrong_on_host and not rows_are_wrong:
            return ()
        views = [self._view(pool) for pool in wrong] + [self._host_view(*pool) for pool in wrong_on_host]
        views += [self._rows_view()] * rows_are_wrong
        return [Violation(pools_conserve_units.name, *unbalanced(view)) for view in views]

    def evidence(self) -> Evidence:
        """No context: the violation shows the equation, and this level does not know single pages."""
        return Evidence((), ())

    def _view(self, pool: KVPool) -> PoolView:
        """The number of units of each owner, as a pool view with placeholder unit numbers."""
        tree = self._tree
        holdings = [
            Holding(TREE, range(tree.evictable[pool.component]), cached=True),
            Holding(TREE, range(tree.protected[pool.component]), cached=True, locks=1),
        ]
        for record in self._records():
            count = len(record.handles) - _released_len([record], pool) // self._page_size
            holdings.append(Holding(record.owner, range(count), cached=False))
        for load in self._jobs(to_host=False):
            holdings.append(Holding(load.owner, range(len(load.moves[pool.component])), cached=False))
        return _pool_view(pool.ledger, "page", [*holdings, *self._outside.holdings(pool.ledger.name)])

    def _host_view(self, component: int, ledger: Ledger) -> PoolView:
        holdings = [Holding(TREE, range(self._num_copied(component)), cached=True)]
        for backup in self._jobs(to_host=True):
            holdings.append(Holding(backup.owner, range(len(backup.moves[component])), cached=False))
        return _pool_view(ledger, "page", holdings)

    def _jobs(self, *, to_host: bool) -> list[CopyJob]:
        return [job for job in self._loading.under_way if job.to_host == to_host]

    def _num_loaded(self, pool: KVPool) -> int:
        """Device pages of loads in flight, which no request or node owns yet."""
        return sum([len(load.moves[pool.component]) for load in self._jobs(to_host=False)])

    def _num_copied(self, component: int) -> int:
        return self._host.backups.num_copied[component] if self._host is not None else 0

    def _num_backed_up(self, component: int) -> int:
        """Host pages of backups in flight, which are no copy of a node yet."""
        return sum([len(backup.moves[component]) for backup in self._jobs(to_host=True)])

    def _records(self) -> list[KVRecord]:
        """The records of requests, of transfers, and of sessions between their turns."""
        return self._custody.with_row + self._custody.sessions.records

    def _rows_view(self) -> PoolView:
        records = self._custody.with_row
        return _pool_view(self._rows, "row", [Holding(record.owner, (record.row,), cached=False) for record in records])


def _released_len(records: Sequence[KVRecord], pool: KVPool) -> int:
    """The tokens of which records have no private page in a pool."""
    total = 0
    for record in records:
        released = max(record.protected_len, record.frontier(pool.ledger.name))
        holes = record.holes.get(pool.ledger.name, ())
        total += released + sum([max(0, hole.stop - max(hole.start, released)) for hole in holes])
    return total


def _num_fenced(ledger: Ledger) -> int:
    return sum(map(len, ledger.fenced_units.values()))


def _pool_view(ledger: Ledger, unit: str, holdings: Sequence[Holding]) -> PoolView:
    fenced = [Fence(launch, units) for launch, units in ledger.fenced_units.items()]
    return PoolView(ledger.name, unit, ledger.capacity, range(ledger.num_free), fenced, holdings)
