"""The host tier of one engine alone, over its pools and its prefix cache; page contents are checked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from swarden.engine_under_test.cache.locks import LockReceipt
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.host.copier import HostCopier
from swarden.engine_under_test.units import num_pages, request_owner
from swarden.fakes.catalog import FAULTS
from swarden.fakes.host import UnsteadyHostStore
from swarden.harness.components.configurations import on_host
from swarden.harness.components.copies import CopyInspector
from swarden.harness.components.engine_code import CODE
from swarden.harness.components.host.tiered_cache import TieredCache
from swarden.harness.components.limits import counters_of, limits_of
from swarden.harness.components.memory_walk import MemoryWalk
from swarden.harness.components.neighbour import Neighbour
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.ops import (
    Ack,
    Drain,
    Evict,
    Fetch,
    Flush,
    Heal,
    Inject,
    Insert,
    Lock,
    Op,
    Pressure,
    Recipe,
    Unlock,
)
from swarden.harness.core.recipes import Prompts
from swarden.invariants import view
from swarden.invariants.events import Fired, Modelled, Owner
from swarden.invariants.reference import Reference

DRAIN_STEPS = 50
READER = "reader"
HOST_OPS: tuple[type[Op], ...] = (Insert, Fetch, Ack, Lock, Unlock, Evict, Flush, Pressure, Inject, Heal, Drain)


class HostSystem:
    """A PrefixCache with a HostTier: an insertion writes tags into its pages, and a lock reads and compares them.

    A reader has a lock on its matched prefix and nothing else.  The ordinal of its owner is the number of its op.
    A configuration without host pools gets host pools of the size of the device pools.
    """

    steps_without_forward = 0  # this system runs no forward

    def __init__(self, config: EngineConfig) -> None:
        self.reference = Reference()
        if not config.host_pools:
            config = on_host(replace(config, prefix_sharing=True), 1)
        self._config = config
        self.log = EventLog(code=CODE)
        self._faults = FaultPlan(
            [fault for fault in FAULTS if fault.startswith("host.")],
            on_fire=lambda fault: self.log.add(Fired(fault)),
        )
        store = UnsteadyHostStore(HostCopier(), self._faults)
        self._tiered = TieredCache.for_config(config, store, self.log)
        self.log.forward_to(CopyInspector(self._tiered.memory, self.log.add))
        self._neighbour = Neighbour(self._tiered.memory)
        self._walk = MemoryWalk(self._tiered.memory, self._tiered.cache.tree)
        self._readers: dict[int, LockReceipt] = {}
        self._prompts = Prompts()
        self._num_ops = 0

    @property
    def has_work(self) -> bool:
        return bool(self._tiered.tier.under_way)

    @property
    def drain_bound(self) -> int:
        return DRAIN_STEPS

    def do(self, op: Op) -> bool:
        """Apply an op, then begin the backups that are due."""
        self._num_ops += 1
        had_effect = self._apply(op)
        self._tiered.tier.back_up()
        return had_effect

    def _apply(self, op: Op) -> bool:
        match op:
            case Insert():
                return self._insert(op)
            case Fetch():
                return self._fetch(op)
            case Lock():
                return self._lock(op)
            case Unlock():
                return self._unlock(op)
            case Evict():
                return self._evict(op.need)
            case Flush():
                return self._flush()
            case Pressure():
                return self._neighbour.hold(op.pool, op.pages)
            case Inject():
                return self._inject(op)
            case Heal():
                return op.fault in (None, *self._faults.known) and self._faults.heal(op.fault)
            case _:
                return self._acknowledge()

    def heal(self) -> None:
        self._faults.heal()
        self._neighbour.release_all()

    def clear(self) -> None:
        """Every reader unlocks, then the cache is flushed."""
        while self._readers:
            self._tiered.cache.unlock(self._readers.popitem()[1])
        self._tiered.flush()

    def capture(self) -> view.Snapshot:
        walk = self._walk
        held = {pool.name: self._neighbour.holdings(pool.name) for pool in self._tiered.memory.pools}
        readers = [(receipt, Owner(READER, number)) for number, receipt in self._readers.items()]
        walk.visit([], held, copy_jobs=self._tiered.tier.under_way, readers=readers)
        return view.Snapshot(
            self._num_ops,
            limits_of(self._config),
            walk.components,
            walk.pools,
            walk.peer_maps,
            walk.nodes,
            walk.receipts,
            records=None,
            requests=None,
            counters=counters_of(self._tiered.memory, self._tiered.cache.tree, ratio=1.0),
            copy_jobs=walk.copy_jobs,
            host_pools=walk.host_pools,
        )

    def take_events(self) -> list[NamedTuple]:
        return self.log.take()

    def _insert(self, op: Insert) -> bool:
        """Act as a request: write the pages that are not on the device, and publish them."""
        tokens = self._tokens(op.recipe)
        match = self._tiered.cache.match(tokens, op.namespace)
        page_size, owner = self._config.page_size, request_owner(self._num_ops)
        count = min(num_pages(len(tokens), page_size) - len(match.handles), self._tiered.num_available(match))
        length = min(len(tokens), (len(match.handles) + count) * page_size)
        if count <= 0 or length < page_size:
            return False
        [row] = self._tiered.memory.table.rows.take(1, owner=owner)
        record = KVRecord(owner, row, self._tiered.cache.lock(match), match.length, match.length, match.length, length)
        record.write(self._tiered.memory.table, 0, match.handles)
        self._tiered.tier.found(record.receipt.node)
        try:
            self._tiered.grow(record, count, length)
        except PoolExhausted:
            self._tiered.cache.unlock(record.receipt)
            self._tiered.memory.table.rows.free([row], owner=owner, cause="no free pages")
            return False
        self._tiered.write(record, tokens[:length], op.namespace)
        self._tiered.slide(record, op.dead)
        self._tiered.cache.publish(record, tokens, namespace=op.namespace, end=length)
        self._tiered.tier.published(record.receipt.node)
        self._tiered.close(record)
        self._prompts.add(tokens[:length])
        return True

    def _fetch(self, op: Fetch) -> bool:
        match = self._tiered.cache.match(self._tokens(op.recipe), op.namespace)
        need = self._tiered.tier.pages_to_load(match)
        if not need or self._tiered.tier.load_under_way(match):
            return False
        try:
            self._tiered.tier.load(match, need)
        except PoolExhausted:
            return False
        return True

    def _lock(self, op: Lock) -> bool:
        """Lock the matched prefix. The pages that the token after it reads must hold the tags of this prefix."""
        tokens = self._tokens(op.recipe)
        match = self._tiered.cache.match(tokens, op.namespace)
        self._readers[self._num_ops] = self._tiered.cache.lock(match)
        self._tiered.tier.found(self._readers[self._num_ops].node)
        for pool, (expected, found) in self._tiered.read(match, tokens, op.namespace).items():
            self.log.add(Modelled(f"{pool}: read under a lock", expected, found))
        return True

    def _unlock(self, op: Unlock) -> bool:
        if not self._readers:
            return False
        number = list(self._readers)[op.receipt % len(self._readers)]
        self._tiered.cache.unlock(self._readers.pop(number))
        return True

    def _evict(self, counts: Sequence[int]) -> bool:
        free = {ledger.name: ledger.num_free for ledger in self._tiered.memory.ledgers.ledgers}
        need = {pool.name: count for pool, count in zip(self._tiered.memory.pools, counts, strict=False)}
        has_any = any(count and self._tiered.cache.evictable(pool) for pool, count in need.items())
        self._tiered.tier.make_room({pool: free[pool] + need.get(pool, 0) for pool in free})
        return has_any

    def _flush(self) -> bool:
        self._tiered.flush()
        return True

    def _inject(self, op: Inject) -> bool:
        if op.fault not in self._faults.known or not op.count or op.fault is None:
            return False
        self._faults.arm(op.fault, skip=op.skip, count=op.count)
        return True

    def _acknowledge(self) -> bool:
        num_under_way = len(self._tiered.tier.under_way)
        self._tiered.tier.poll()
        return bool(num_under_way)

    def _tokens(self, recipe: Recipe) -> list[int]:
        return self._prompts.expand(recipe)[: self._config.max_context_len]
