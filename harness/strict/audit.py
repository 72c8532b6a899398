"""The middle level: tracks the owner of each unit and checks each move immediately."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swarden.harness.core.driver import Moment
from swarden.harness.strict.live import Evidence, Handlers, Live
from swarden.harness.strict.owners import OwnerTable, PeerTable, misplaced, moved_without_event
from swarden.invariants.events import REQUEST_KIND, Completed, Freed, Given, Owner, Paired, StepBegan, StepEnded, Taken
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
NOTHING: Sequence[Violation] = ()


class Audit:
    """Tracks the owner of each unit from the moves. A take needs a free unit; a give or free needs the owner.

    At the end of each step the tables are compared with the holders of the engine, and the free lists must be as long
    as recorded.  The cost is proportional to the moved units, plus that of the holders.
    """

    def __init__(self, live: Live) -> None:
        self._tables = {pool.name: OwnerTable(pool.name, pool.unit, pool.capacity) for pool in live.pools}
        self._completed = 0  # the last launch that has completed
        self._live = live
        self._peers = [PeerTable(self._tables[anchor], self._tables[follower]) for anchor, follower in live.peers]
        self._free_lists = [(self._tables[pool.name], pool.free) for pool in live.pools if pool.free is not None]
        self._moves: deque[tuple[int, NamedTuple]] = deque(maxlen=MAX_MOVES)
        self._gaps: dict[str, int] = {}
        self._step = 0
        self._moved: dict[Owner, None] = {}  # requests that took units, and owners that freed a row, in this step
        self._compare = live.holders(self._tables)

    @property
    def handlers(self) -> Handlers:
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
        if event.owner.kind == REQUEST_KIND:
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
        if table.unit == "row":
            self._moved[event.owner] = None
        wrong = table.move(event.units, event.owner, FENCE if fenced else FREE)
        if fenced:
            table.fence(event.units, event.after)
        violations = misplaced(event, table, wrong) if wrong else NOTHING
        for peers in self._peers:
            if table is peers.from_table or table is peers.to_table:
                violations = [*violations, *_still_paired(peers, table, event.units)]
        return violations

    def paired(self, event: Paired) -> Sequence[Violation]:
        self._moves.append((self._step, event))
        [peers] = [table for table in self._peers if table.to_table.name == event.to_pool]
        violations: list[Violation] = []
        for unit, peer in zip(event.units, event.peers, strict=True):
            other = peers.pair(unit, peer)
            subject, to = peers.from_table.ref(unit), peers.to_table.ref(peer)
            if other:
                broken = peer_of_two(to, (peers.from_table.ref(other), subject))
                violations.append(Violation(peers_are_unique_and_live.name, *broken))
            if peer and peers.to_table.owners[peer] in (FREE, FENCE):
                broken = released_peer(subject, to, is_free=peers.to_table.owners[peer] == FREE)
                violations.append(Violation(peers_are_unique_and_live.name, *broken))
        return violations

    def completed(self, event: Completed) -> None:
        self._completed = event.launch
        for table in self._tables.values():
            table.complete(event.launch)

    def step_began(self, _event: StepBegan) -> None:
        self._step += 1

    def step_ended(self, _event: StepEnded) -> Sequence[Violation]:
        """Check that the holders and the free lists match the recorded owners."""
        violations = list(self._compare(self._moved))
        self._moved.clear()
        for table, free in self._free_lists:
            gap = free.num_free - table.num_free
            if gap != self._gaps.get(table.name, 0):
                self._gaps[table.name] = gap
                violations += moved_without_event(table, free.free_units)
        return violations

    def evidence(self) -> Evidence:
        history = [Moment(0, step, [event]) for step, event in self._moves]
        protected = {terms.pool: terms.protected for terms in self._live.terms()}
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
