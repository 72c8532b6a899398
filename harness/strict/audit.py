"""The middle level: an observer that tracks the owner of each unit and checks each move immediately."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from swarden.engine_under_test.engine import Engine
from swarden.harness.core.driver import Moment
from swarden.harness.strict.check import Handler
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.outside import Outside
from swarden.harness.strict.owners import OwnerTable, PeerTable, leaked, misplaced, moved_without_event
from swarden.invariants.events import Completed, Freed, Given, Owner, Paired, StepBegan, StepEnded, Taken
from swarden.invariants.laws.memory.peers import (
    free_units_have_no_peer,
    paired_while_released,
    peer_of_two,
    peers_are_unique_and_live,
    released_peer,
)
from swarden.invariants.view import FENCE, FREE
from swarden.invariants.violation import Violation

MAX_MOVES = 20_000  # kept for the history of a violation
REQUEST = "request"
NOTHING: Sequence[Violation] = ()


class Audit:
    """Tracks the owner of each unit from the events. A take needs a free unit; a give or free needs the owner.

    At the end of each step, a request that took units and an owner that freed its row must own no unit without a row; a
    taken row must have a record, and the free list must be as long as recorded.
    The cost is proportional to the moved units, plus a pass over the records each step.
    """

    def __init__(self) -> None:
        self._tables: dict[str, OwnerTable] = {}
        self._peers: list[PeerTable] = []
        self._moves: deque[tuple[int, Taken | Given | Freed | Paired]] = deque(maxlen=MAX_MOVES)
        self._moved: dict[Owner, None] = {}  # in this step took units (requests) or freed a row
        self._gaps: dict[str, int] = {}
        self._step = self._completed = 0

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        memory = engine.memory
        self._engine, rows = engine, memory.table.rows
        on_host = memory.host.ledgers if memory.host is not None else ()
        self._ledgers = [*memory.ledgers.ledgers, *on_host, rows]
        for ledger in self._ledgers:
            self._tables[ledger.name] = OwnerTable(ledger.name, "row" if ledger is rows else "page", ledger.capacity)
        self._rows = self._tables[rows.name]
        anchor = self._tables[memory.ledgers.anchor.name]
        self._peers = [PeerTable(anchor, self._tables[follower.name]) for follower in memory.ledgers.followers]
        return {
            Taken: self.taken,
            Given: self.given,
            Freed: self.freed,
            Paired: self.paired,
            Completed: self.completed,
            StepBegan: self.step_began,
            StepEnded: self.step_ended,
        }

    def taken(self, event: Taken) -> Sequence[Violation]:
        self._moves.append((self._step, event))
        if event.owner.kind == REQUEST:
            self._moved[event.owner] = None
        wrong = self._tables[event.pool].move(event.units, FREE, event.owner)
        return misplaced(event, self._tables[event.pool], wrong) if wrong else NOTHING

    def given(self, event: Given) -> Sequence[Violation]:
        self._moves.append((self._step, event))
        wrong = self._tables[event.pool].move(event.units, event.from_owner, event.to_owner)
        return misplaced(event, self._tables[event.pool], wrong) if wrong else NOTHING

    def freed(self, event: Freed) -> Sequence[Violation]:
        self._moves.append((self._step, event))
        table, fenced = self._tables[event.pool], event.after > self._completed
        if table is self._rows:
            self._moved[event.owner] = None
        wrong = table.move(event.units, event.owner, FENCE if fenced else FREE)
        if fenced:
            table.fence(event.units, event.after)
        found = misplaced(event, table, wrong) if wrong else NOTHING
        for peers in self._peers:
            if table is peers.from_table or table is peers.to_table:
                found = [*found, *_still_paired(peers, table, event.units)]
        return found

    def paired(self, event: Paired) -> Sequence[Violation]:
        self._moves.append((self._step, event))
        [peers] = [one for one in self._peers if one.to_table.name == event.to_pool]
        found: list[Violation] = []
        for unit, peer in zip(event.units, event.peers, strict=True):
            other = peers.pair(unit, peer)
            subject, to = peers.from_table.ref(unit), peers.to_table.ref(peer)
            if other:
                broken = peer_of_two(to, (peers.from_table.ref(other), subject))
                found.append(Violation(peers_are_unique_and_live.name, *broken))
            if peer and peers.to_table.owners[peer] in (FREE, FENCE):
                broken = released_peer(subject, to, is_free=peers.to_table.owners[peer] == FREE)
                found.append(Violation(peers_are_unique_and_live.name, *broken))
        return found

    def completed(self, event: Completed) -> Sequence[Violation]:
        self._completed = event.launch
        for table in self._tables.values():
            table.complete(event.launch)
        return NOTHING

    def step_began(self, _event: StepBegan) -> Sequence[Violation]:
        self._step += 1
        return NOTHING

    def step_ended(self, _event: StepEnded) -> Sequence[Violation]:
        """Check that owners without a row own no unit, and that rows and free lists match the recorded owners."""
        found: list[Violation] = []
        for owner in self._moved:
            if not self._rows.counts[owner]:
                found += [one for table in self._tables.values() if table.counts[owner] for one in leaked(table, owner)]
        self._moved.clear()
        records = self._engine.scheduler.custody.with_row
        if self._rows.capacity - self._rows.num_free - self._rows.counts[FENCE] != len(records):
            orphaned = self._rows.counts.keys() - {record.owner for record in records} - {FREE, FENCE}
            found += [one for owner in sorted(orphaned) for one in leaked(self._rows, owner)]
        for ledger in self._ledgers:
            table = self._tables[ledger.name]
            gap = ledger.num_free - table.num_free
            if gap != self._gaps.get(ledger.name, 0):
                self._gaps[ledger.name] = gap
                found += moved_without_event(table, ledger.free_units)
        return found

    def evidence(self) -> Evidence:
        history = [Moment(0, step, [event]) for step, event in self._moves]
        tree = self._engine.cache.tree
        protected = dict(zip((pool.name for pool in self._engine.memory.pools), tree.protected, strict=True))
        return Evidence(history, [table.view(protected=protected.get(name, 0)) for name, table in self._tables.items()])


def _still_paired(peers: PeerTable, table: OwnerTable, units: Sequence[int]) -> Iterator[Violation]:
    """Freed units that still have a peer, or are still the peer of a unit."""
    for unit in units:
        if not 0 < unit <= table.capacity:
            continue
        is_free = table.owners[unit] == FREE
        if table is peers.from_table and (peer := peers.peers[unit]):
            broken = paired_while_released(table.ref(unit), peers.to_table.ref(peer), is_free=is_free)
            yield Violation(free_units_have_no_peer.name, *broken)
        if table is peers.to_table and (other := peers.units[unit]):
            broken = released_peer(peers.from_table.ref(other), table.ref(unit), is_free=is_free)
            yield Violation(peers_are_unique_and_live.name, *broken)
