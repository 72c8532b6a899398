"""Owners of units where an engine names none: by the moves so far, and by the facts of tables and reader counts."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import is_not
from typing import Any, NamedTuple, cast

import swarden.invariants.events as seen
from swarden.invariants.events import REQUEST_KIND, TREE, TREE_KIND, Owner
from swarden.invariants.following import VersionedMap
from swarden.invariants.view import FENCE, FREE, Fence, Holding, PoolView

UNKNOWN = Owner(REQUEST_KIND, 0)  # of a unit that moved and had no owner
owner_named = lru_cache(maxsize=4096)(Owner)  # equal owners are mostly the same object, which is compared faster


class Owners:
    """The owner of each unit of one pool by the moves so far; each method returns the events of its moves."""

    def __init__(self, pool: str, owner_of: Mapping[int, Owner]) -> None:
        self.pool = pool
        is_versioned, before = isinstance(owner_of, VersionedMap), cast(MutableMapping[int, Owner], owner_of)
        self.owner_of: MutableMapping[int, Owner] = ChainMap({}, before) if is_versioned else dict(owner_of)

    def take(self, units: Iterable[int], owner: Callable[[int], Owner]) -> list[seen.Taken]:
        """Note taken units; `owner` returns the new owner of each unit."""
        return [seen.Taken(self.pool, moved, of_owner) for of_owner, moved in self._move(units, owner)]

    def take_all(self, units: tuple[int, ...], owner: Owner) -> list[seen.Taken]:
        """Note units that one owner takes."""
        named = UNKNOWN if owner == FREE else owner
        self.owner_of.update(dict.fromkeys(units, named))
        return [seen.Taken(self.pool, units, named)] if units else []

    def free_one(self, unit: int) -> seen.Freed:
        """Note a freed unit."""
        owner, self.owner_of[unit] = self.owner_of.get(unit, UNKNOWN), FREE
        return seen.Freed(self.pool, (unit,), UNKNOWN if owner == FREE else owner, "freed", 0)

    def free(
        self,
        units: Iterable[int],
        owner: Callable[[int], Owner] | None = None,
        *,
        cause: str = "freed",
        launch: int = 0,
    ) -> list[seen.Freed]:
        """Note freed units; their owners are those known here, or those that `owner` returns.

        The units are fenced until `launch` has completed, unless that is 0.
        """
        freed = self._move(units, owner or (lambda unit: self.owner_of.get(unit, UNKNOWN)), FENCE if launch else FREE)
        return [seen.Freed(self.pool, moved, of_owner, cause, launch) for of_owner, moved in freed]

    def give(self, giver: Owner, taker: Owner, units: Iterable[int] | None = None) -> list[seen.Given]:
        """Note units that an owner gives to another one; None: all its units."""
        given = [unit for unit, owner in self.owner_of.items() if owner == giver] if units is None else units
        return [seen.Given(self.pool, moved, giver, taker) for _, moved in self._move(given, lambda _: giver, taker)]

    def settle(self, now: Mapping[int, Owner]) -> list[seen.Freed | seen.Given]:
        """Note the units that have another owner now without a take or a free; nodes of a tree count as one owner."""
        changed: dict[tuple[Owner, Owner], list[int]] = {}
        owner_of, events = self.owner_of, list[seen.Freed | seen.Given]()
        for unit in list(compress(now, map(is_not, map(owner_of.get, now), now.values()))):
            was, owner = owner_of.get(unit, FREE), now[unit]
            if was == owner or was.kind == owner.kind == TREE_KIND:
                owner_of[unit] = owner
            elif was not in (FREE, FENCE):
                changed.setdefault((was, owner), []).append(unit)
        for (was, owner), units in changed.items():
            events += self.free(units, cause="found free") if owner == FREE else self.give(was, owner, units)
        return events

    def _move(
        self, units: Iterable[int], owner: Callable[[int], Owner], to: Owner | None = None
    ) -> list[tuple[Owner, tuple[int, ...]]]:
        """Move each unit to `to`, by default to `owner(unit)`; returns the units in order, grouped by `owner(unit)`."""
        groups: dict[Owner, list[int]] = {}
        for unit in units:
            named = owner(unit)
            groups.setdefault(UNKNOWN if named == FREE else named, []).append(unit)
        for of_owner, moved in groups.items():
            self.owner_of.update(dict.fromkeys(moved, to or of_owner))
        return [(of_owner, tuple(moved)) for of_owner, moved in groups.items()]


class Worker:
    """The request for which an engine works, if it is known: it takes units, and frees those that are not cached.

    Units of owners of the kinds `kept` are freed in the name of their owners.
    """

    def __init__(
        self,
        report: Callable[[Iterable[NamedTuple]], None],
        owner: Owner | None = None,
        kept: Sequence[str] = (TREE_KIND,),
    ) -> None:
        self.report, self.owner, self._kept = report, owner, kept

    def works_for(self, number: int, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a call of the engine for a request."""
        before, self.owner = self.owner, Owner(REQUEST_KIND, number)
        try:
            return original(*args, **kwargs)
        finally:
            self.owner = before

    def take(self, owners: Owners, units: Iterable[int], otherwise: Owner = TREE) -> None:
        self.report(owners.take_all(tuple(units), self.owner or otherwise))

    def free(self, owners: Owners, units: Iterable[int]) -> None:
        self.report(owners.free(units, lambda unit: self._freeing(owners.owner_of.get(unit, FREE))))

    def _freeing(self, owner: Owner) -> Owner:
        is_own = owner.kind in self._kept or self.owner is None or self.owner.kind != REQUEST_KIND
        return owner if is_own else self.owner or owner


class UnitFacts(NamedTuple):
    """The facts about a unit in an engine's structures: a holder for each place in a table, and its count of readers.

    A unit that `is_cached` can be found by its content.
    """

    holders: Sequence[Owner]
    num_readers: int
    is_cached: bool

    @property
    def owner(self) -> Owner | None:
        """The tree for a unit that is cached, shared or counted too often; None for a counted unit without a holder."""
        return owner_at(place_of(*self))


UnitPlace = tuple[bool, Any]  # where a pool lists a unit: as cached by its readers, or by its owner (None: not at all)
UNREAD: UnitPlace = True, None  # of the cached units that have no holder and no reader


def place_of(holders: Sequence[Owner], num_readers: int, is_cached: bool) -> UnitPlace | None:
    """Where a pool lists a unit of such facts; None for a unit without holder and readers that is not cached."""
    if not (holders or num_readers):
        return UNREAD if is_cached else None
    if is_cached or (holders and max(len(holders), num_readers) > 1):
        return True, num_readers
    return False, holders[0] if holders else None


def owner_at(place: UnitPlace | None) -> Owner | None:
    is_cached, by = place or (False, FREE)
    return TREE if is_cached else by


class CountedUnits:
    """The units of a pool that have a place, and the holdings that they make; those that did not change are kept."""

    def __init__(self) -> None:
        self.places: dict[int, UnitPlace] = {}
        self._units: dict[UnitPlace, set[int]] = {}  # but for UNREAD, and units that are not listed
        self._holdings: dict[UnitPlace, Holding] = {}
        self._unread = Holding(TREE, (), True)

    def owner(self, unit: int) -> Owner | None:
        return owner_at(self.places.get(unit))

    def put(self, unit: int, place: UnitPlace | None) -> bool:
        """Note where a unit is; returns whether that is another place than before."""
        was = self.places.get(unit)
        if place == was:
            return False
        if was is not None:
            del self.places[unit]
            if was[1] is not None:
                self._units[was].discard(unit)
                self._holdings.pop(was, None)
        if place is not None:
            self.places[unit] = place
            if place[1] is not None:
                self._units.setdefault(place, set()).add(unit)
                self._holdings.pop(place, None)
        return True

    def holdings(self, evictable: Sequence[int]) -> list[Holding]:
        """The holdings of a pool; `evictable` are the units that are only cached and in its free queue, ascending."""
        for place in self._units.keys() - self._holdings.keys():
            is_cached, by = place
            if units := sorted(self._units[place]):
                self._holdings[place] = Holding(TREE, units, True, by) if is_cached else Holding(by, units, False)
            else:
                del self._units[place]
        if evictable is not self._unread.units:
            self._unread = Holding(TREE, evictable, True)
        return [*([self._unread] if evictable else []), *sorted(self._holdings.values(), key=_cached_first)]


def _cached_first(holding: Holding) -> tuple[bool, int]:
    return not holding.cached, holding.units[0]


def pool_view(
    name: str, noun: str, facts: Mapping[int, UnitFacts], free: Sequence[int], fences: Sequence[Fence] = ()
) -> PoolView:
    """A pool whose units are counted: `facts` of each unit, and its free queue in order.

    A cached unit in the queue is cached and not free, unless it has readers or is in a table.  A law compares the count
    of a unit of the tree with its places in tables; a unit without a place and a count has no owner, and is a leak.
    """
    counted = CountedUnits()
    for unit, of_unit in facts.items():
        counted.put(unit, place_of(*of_unit))
    evictable = {unit for unit in free if counted.places.get(unit) == UNREAD}
    left = [unit for unit in free if unit not in evictable]
    return PoolView(name, noun, len(facts), left, fences, counted.holdings(sorted(evictable)))
