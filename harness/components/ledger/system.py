"""The ledgers of one engine alone, compared with a naive model."""

from collections.abc import Sequence
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.units import request_owner
from swarden.harness.components.engine_code import CODE
from swarden.harness.components.ledger.model import ALL, PARTS, REST, WINDOWED, LedgerModel
from swarden.harness.components.limits import MILLION, limits_of
from swarden.harness.components.neighbour import PRESSURE, Neighbour
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.ops import Complete, Drain, Free, Give, Op, Pressure, Take, TakeOver, name_of
from swarden.invariants import view
from swarden.invariants.events import Completed, Modelled, Owner
from swarden.invariants.reference import Reference

NUM_OWNERS = 4
NUM_LAUNCHES_IN_FLIGHT = 2  # a fenced free waits for one of these
LEDGER_OPS: tuple[type[Op], ...] = (Take, Give, Free, TakeOver, Complete, Pressure, Drain)


class LedgerSystem:
    """A KVMemory and its clients: owners 1 to NUM_OWNERS, each with the list of its handles.

    The ordinal of an op names the owner that takes or receives handles.  A give, free or take-over selects its owner
    among the owners that have suitable handles.

    A handle is dead if it has no windowed page.  A fenced free of an owner with an odd id waits for the oldest
    launch in flight, one of an owner with an even id for the launch after it.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.reference = Reference()
        self.steps_without_forward = 0
        self._config = config
        self.log = EventLog(code=CODE)
        self._memory = KVMemory.for_config(config, self.log)
        self._neighbour = Neighbour(self._memory)
        self._model = LedgerModel(config)
        self._handles: dict[Owner, list[int]] = {request_owner(n): [] for n in range(1, NUM_OWNERS + 1)}
        self._modelled: list[NamedTuple] = []
        self._num_ops = 0

    @property
    def has_work(self) -> bool:
        return False

    @property
    def drain_bound(self) -> int:
        return 0

    def do(self, op: Op) -> bool:
        self._num_ops += 1
        had_effect = self._apply(op)
        self._compare(name_of(op))
        return had_effect

    def heal(self) -> None:
        for pool in range(len(self._memory.pools)):
            self._hold(pool, 0)
        self._compare("heal")

    def clear(self) -> None:
        """Every owner frees all of its handles, and every launch completes."""
        for owner in list(self._handles):
            for part in (REST, ALL):
                self._free_part(self._handles_with(owner, part), part, owner=owner)
            assert not self._handles[owner], f"{owner}: handles {self._handles[owner]} are neither whole nor dead"
        while self._complete():
            pass
        self._compare("clear")

    def capture(self) -> view.Snapshot:
        memory = self._memory
        names = [pool.name for pool in memory.pools]
        none = dict.fromkeys(names, 0)
        free = {ledger.name: ledger.num_free for ledger in memory.ledgers.ledgers}
        return view.Snapshot(
            self._num_ops,
            limits_of(self._config),
            tuple(view.ComponentView(pool.name, pool.window, has_states=bool(pool.slots)) for pool in memory.pools),
            tuple(map(self._pool_view, memory.ledgers.ledgers)),
            tuple(view.PeerMap(names[0], pool, peers[:]) for pool, peers in memory.ledgers.peers.items()),
            nodes=None,
            receipts=None,
            records=None,
            requests=None,
            counters=view.Counters(free, none, none, MILLION),
        )

    def take_events(self) -> list[NamedTuple]:
        events = self.log.take() + self._modelled
        self._modelled = []
        return events

    def _apply(self, op: Op) -> bool:
        match op:
            case Take():
                return self._take(_owner(op.owner), op.count)
            case Give():
                return self._give(op)
            case Free():
                return self._free(op)
            case TakeOver():
                return self._take_over(op)
            case Complete():
                return self._complete()
            case Pressure():
                return self._hold(op.pool, op.pages)
            case _:
                return False

    def _select_owner(self, ordinal: int, part: str) -> Owner:
        """One of the owners with handles that have this part; any owner if there is none."""
        owners = [owner for owner in self._handles if self._handles_with(owner, part)]
        return owners[ordinal % len(owners)] if owners else _owner(ordinal)

    def _take(self, owner: Owner, count: int) -> bool:
        """Take units; a pool with too few free units refuses, and the owner is unchanged.

        Pages of states are taken as for a prompt.
        """
        length = count * self._config.page_size
        places = {pool.name: pool.taken(0, count, end=length) for pool in self._memory.pools}
        expected = self._model.take(places, owner)
        try:
            taken = self._memory.ledgers.take(count, owner=owner, places=places)
        except PoolExhausted:
            self._expect(f"handles taken by {owner}", expected, None)
            return True
        self._expect(f"handles taken by {owner}", expected, taken)
        self._handles[owner] += taken
        return bool(taken)

    def _give(self, op: Give) -> bool:
        owner, to = self._select_owner(op.owner, ALL), _owner(op.to)
        given = self._handles[owner][: op.count] if owner != to else []
        self._memory.ledgers.give(given, from_owner=owner, to_owner=to)
        self._model.give(given, to)
        del self._handles[owner][: len(given)]
        self._handles[to] += given
        return bool(given)

    def _free(self, op: Free) -> bool:
        owner = self._select_owner(op.owner, op.part)
        chosen = self._handles_with(owner, op.part)[: op.count]
        after = self._fencing_launch(owner) if op.fenced else 0
        return self._free_part(chosen, op.part, owner=owner, after=after)

    def _handles_with(self, owner: Owner, part: str) -> list[int]:
        """The owner's handles of which this part can be freed: of dead handles the rest, else all or windowed."""
        if part not in PARTS or not self._model.pools_of(part):
            return []
        has_rest_alone = part == REST and self._is_windowed
        return [handle for handle in self._handles[owner] if self._is_dead(handle) == has_rest_alone]

    def _is_dead(self, handle: int) -> bool:
        return self._is_windowed and set(self._model.pools_of(WINDOWED)) <= set(self._model.lacks(handle))

    def _free_part(self, handles: Sequence[int], part: str, *, owner: Owner, after: int = 0) -> bool:
        if not handles:
            return False
        ledgers, pools, cause = self._memory.ledgers, self._model.pools_of(part), f"freed {part}"
        by_lacks: dict[tuple[str, ...], list[int]] = {}
        for handle in handles:
            by_lacks.setdefault(self._model.lacks(handle), []).append(handle)
        for lacks, group in by_lacks.items():
            if part == WINDOWED:
                for pool in pools:
                    if pool not in lacks:
                        ledgers.free_alone(pool, group, owner=owner, cause=cause, after=after)
            else:
                ledgers.free(group, owner=owner, cause=cause, after=after, lacks=lacks)
            self._model.free(group, part, after=after)
        if ledgers.anchor.name in pools:
            self._handles[owner] = [handle for handle in self._handles[owner] if handle not in handles]
        return True

    def _take_over(self, op: TakeOver) -> bool:
        owner, giver = self._select_owner(op.owner, REST), self._select_owner(op.giver, ALL)
        kept, incoming = self._handles_with(owner, REST), self._handles_with(giver, ALL)
        count = min(op.count, len(kept), len(incoming)) if self._is_windowed else 0
        kept, incoming = kept[:count], incoming[:count]
        for pool in self._model.pools_of(WINDOWED):
            pairs = [pair for pair in zip(kept, incoming, strict=True) if pool not in self._model.lacks(pair[1])]
            keepers, givers = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            self._memory.ledgers.take_over(pool, keepers, givers, from_owner=giver, to_owner=owner)
        self._model.take_over(kept, incoming, owner)
        return bool(kept)

    def _complete(self) -> bool:
        """Complete the oldest launch that fences units; False if there is none."""
        launches = [launch for ledger in self._memory.ledgers.ledgers for launch in ledger.fenced_units]
        if not launches:
            return False
        self._memory.complete(min(launches))
        self.log.notice(Completed(min(launches)))
        self._model.complete(min(launches))
        return True

    def _hold(self, pool: int, pages: int) -> bool:
        ledgers = self._memory.ledgers.ledgers
        self._model.hold(ledgers[pool % len(ledgers)].name, pages, PRESSURE)
        return self._neighbour.hold(pool, pages)

    @property
    def _is_windowed(self) -> bool:
        return bool(self._model.pools_of(WINDOWED))

    def _fencing_launch(self, owner: Owner) -> int:
        return self._memory.ledgers.anchor.completed_launch + 1 + (owner.id - 1) % NUM_LAUNCHES_IN_FLIGHT

    def _expect(self, subject: str, expected: object, found: object) -> None:
        self._modelled.append(Modelled(subject, expected, found))

    def _compare(self, op_name: str) -> None:
        """Compare free lists, fences, peers and owners with the model."""
        ledgers = self._memory.ledgers
        for ledger in ledgers.ledgers:
            name, state = ledger.name, self._model.pools[ledger.name]
            self._expect(f"{name}: free after {op_name}", tuple(state.free), ledger.free_units)
            fenced = [(launch, unit) for launch, units in ledger.fenced_units.items() for unit in units]
            self._expect(f"{name}: fenced after {op_name}", sorted(state.fenced), sorted(fenced))
            owners = {unit: holding.owner for holding in self._holdings(ledger) for unit in holding.units}
            self._expect(f"{name}: owners after {op_name}", dict(state.owners), owners)
        for pool, peers in ledgers.peers.items():
            paired = {handle: peer for handle, peer in enumerate(peers) if peer}
            self._expect(f"{pool}: peers after {op_name}", dict(self._model.peers[pool]), paired)

    def _pool_view(self, ledger: Ledger) -> view.PoolView:
        fences = [view.Fence(launch, units) for launch, units in ledger.fenced_units.items()]
        return view.PoolView(
            ledger.name, "page", ledger.capacity, ledger.free_units, fences, tuple(self._holdings(ledger))
        )

    def _holdings(self, ledger: Ledger) -> list[view.Holding]:
        """Per owner, the pages of its handles in a pool, as the peer map has them."""
        holdings = self._neighbour.holdings(ledger.name)
        for owner, handles in self._handles.items():
            units = [unit for unit in self._memory.ledgers.pages_of(ledger.name, handles) if unit]
            holdings.append(view.Holding(owner, units, cached=False))
        return holdings


def _owner(ordinal: int) -> Owner:
    return request_owner(1 + ordinal % NUM_OWNERS)
