"""The bookkeeping of an audit: the owner of each unit of a pool, and the peers between two pools."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swarden.invariants.events import TREE, Owner
from swarden.invariants.laws.memory import moves
from swarden.invariants.laws.memory.pools import unit_has_one_owner, wrongly_owned
from swarden.invariants.view import FENCE, FREE, Fence, Holding, PoolView
from swarden.invariants.violation import Ref, Violation

PADDING = Owner("padding")


class Wrong(NamedTuple):
    """A unit whose owner is not the one that the move states; the owner is None if the unit is out of range."""

    unit: int
    owner: Owner | None


class OwnerTable:
    """The owner of each unit of one pool. The cost of a move is proportional to its units."""

    def __init__(self, name: str, unit: str, capacity: int) -> None:
        self.name = name
        self.unit = unit
        self.capacity = capacity
        self.owners: list[Owner] = [PADDING, *[FREE] * capacity]
        self.counts = Counter[Owner]({FREE: capacity})
        self._fences: dict[int, list[int]] = {}

    def move(self, units: Sequence[int], from_owner: Owner, to_owner: Owner) -> Sequence[Wrong]:
        """Make `to_owner` the owner of all units. Returns the units that `from_owner` did not own."""
        owners, wrong = self.owners, []
        for unit in units:
            if not 0 < unit <= self.capacity:
                wrong.append(Wrong(unit, None))
                continue
            owner = owners[unit]
            if owner is not from_owner and owner != from_owner:
                wrong.append(Wrong(unit, owner))
                self.counts[owner] -= 1
                self.counts[from_owner] += 1
            owners[unit] = to_owner
        count = len(units) - sum(misplaced.owner is None for misplaced in wrong)
        self._count(from_owner, -count)
        self._count(to_owner, count)
        return wrong

    def ref(self, unit: int) -> Ref:
        return Ref(self.unit, unit, self.name)

    def fence(self, units: Sequence[int], launch: int) -> None:
        """Keep units behind the fence of a launch."""
        self._fences.setdefault(launch, []).extend(units)

    def complete(self, launch: int) -> None:
        """Free the units that are fenced by launches up to this one."""
        for fence in [fence for fence in self._fences if fence <= launch]:
            self.move(self._fences.pop(fence), FENCE, FREE)

    @property
    def num_free(self) -> int:
        return self.counts[FREE]

    def view(self, *, protected: int) -> PoolView:
        """The pool as recorded in this table, with `protected` of the tree's pages shown as locked."""
        units: dict[Owner, list[int]] = {}
        for unit in range(1, self.capacity + 1):
            units.setdefault(self.owners[unit], []).append(unit)
        free, fenced, cached = (units.pop(owner, []) for owner in (FREE, FENCE, TREE))
        border = max(0, len(cached) - protected)
        holdings = [Holding(TREE, cached[:border], cached=True)] if cached[:border] else []
        holdings += [Holding(TREE, cached[border:], cached=True, locks=1)] if cached[border:] else []
        holdings += [Holding(owner, held, cached=False) for owner, held in units.items()]
        fences = [Fence(0, fenced)] if fenced else []
        return PoolView(self.name, self.unit, self.capacity, free, fences, holdings)

    def _count(self, owner: Owner, change: int) -> None:
        count = self.counts[owner] + change
        if count or owner is FREE:
            self.counts[owner] = count
        else:
            del self.counts[owner]


class PeerTable:
    """The peers between two pools, indexed from both sides; 0 means no peer."""

    def __init__(self, from_table: OwnerTable, to_table: OwnerTable) -> None:
        self.from_table = from_table
        self.to_table = to_table
        self.peers = array("q", bytes(8 * (from_table.capacity + 1)))
        self.units = array("q", bytes(8 * (to_table.capacity + 1)))

    def pair(self, unit: int, peer: int) -> int:
        """Set the peer of `unit` (0: none). Returns the other unit that has this peer already, or 0."""
        if (before := self.peers[unit]) and self.units[before] == unit:
            self.units[before] = 0
        self.peers[unit] = peer
        other = 0
        if peer:
            other, self.units[peer] = self.units[peer], unit
        return other if other != unit else 0


def misplaced(move: moves.Move, table: OwnerTable, wrong: Sequence[Wrong]) -> list[Violation]:
    """The violations of a move whose owner does not own the units."""
    violations = []
    for unit, owner in wrong:
        if owner is None:
            broken = moves.out_of_range(move, table.ref(unit), table.capacity)
            violations.append(Violation(moves.padding_unit_is_never_moved.name, *broken))
        else:
            broken = moves.wrongly_moved(move, table.ref(unit), owner)
            violations.append(Violation(moves.units_move_only_by_their_owner.name, *broken))
    return violations


def leaked(table: OwnerTable, owner: Owner) -> Iterator[Violation]:
    """The leaked units of an owner that has no record."""
    for unit in range(1, table.capacity + 1):
        if table.owners[unit] == owner:
            yield wrongly_owned_unit(table, unit, [])


def moved_without_event(table: OwnerTable, free_units: Sequence[int]) -> Iterator[Violation]:
    """Units that entered or left the free list without an event."""
    free_counts = Counter(free_units)
    for unit in range(1, table.capacity + 1):
        owner, free = table.owners[unit], free_counts[unit]
        owners = [FREE] * free + ([owner] if owner != FREE else [])
        if len(owners) != 1:
            yield wrongly_owned_unit(table, unit, owners)


def wrongly_owned_unit(table: OwnerTable, unit: int, owners: Sequence[Owner]) -> Violation:
    broken = wrongly_owned(table.ref(unit), owners, table.capacity)
    return Violation(unit_has_one_owner.name, *broken)
