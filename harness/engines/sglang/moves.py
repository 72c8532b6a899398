"""The units that the release's allocators hand out and take back, and their owners, inferred from two snapshots.

An allocator of SGLang does not know for whom it allocates. A taken unit belongs to the request whose pass writes it in
the same step, or to its owner in the snapshot after the step; a freed one to the owner that it had before.
"""

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.kit.calls import Wrap, intercept
from swarden.harness.kit.locks import LockMove
from swarden.harness.kit.owners import UNKNOWN, Owners, owner_named
from swarden.invariants import view
from swarden.invariants.changes import follow
from swarden.invariants.following import Following, Units

# The public methods of an allocator that change its free lists; calls among them are one change.
MOVING_METHODS = (
    "free",
    "free_segment",
    "free_page_ids",
    "free_group_end",
    "alloc",
    "alloc_extend",
    "alloc_decode",
    "alloc_group_begin",
    "alloc_group_end",
    "clear",
)
ROWS = "rows"
MOST_MOVED = 1024  # units of a large pool in a step; if more have moved, its list is read whole


class AllocatorMove(NamedTuple):
    """Units that an allocator handed out (`taken`) or took back."""

    pool: str
    taken: bool
    units: tuple[int, ...]


class NodeLocks(NamedTuple):
    """The numbers of locks on nodes have changed, for a request, if one is known (0)."""

    request_id: int
    moves: Sequence[LockMove]


def watch(pool: str, allocator: Any, notice: Callable[[NamedTuple], None], wrap: Wrap = intercept) -> None:
    """Report each change of an allocator's free lists, found by comparing them before and after each call."""
    depth = 0

    def watching(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        before = None if depth else _free_lists(allocator)
        depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            depth -= 1
            if before is not None:
                _report(pool, before, _free_lists(allocator), notice)

    for name in MOVING_METHODS:
        if callable(getattr(allocator, name, None)):
            wrap(allocator, name, watching)


def free_units(allocator: Any) -> list[int]:
    """The free units of an allocator, in order."""
    return list(chain.from_iterable(part.tolist() for part in _free_lists(allocator)))


class FreeUnits:
    """The free units of an allocator, in order.

    Those of a large pool follow the former ones: units go at the front of the list, and come at one end.  The list is
    compared at its ends, in an audit whole.
    """

    def __init__(self, allocator: Any) -> None:
        self._allocator, self._lists = allocator, _free_lists(allocator)
        self._units: Sequence[int] = ()

    def read(self, size: int, *, is_audit: bool) -> Sequence[int]:
        """The free units of a pool of so many."""
        lists, were = _free_lists(self._allocator), self._lists
        count, self._lists = sum([part.numel() for part in lists]), lists
        if size < Following.LEAST:
            self._units = free_units(self._allocator)
        elif is_audit or not isinstance(self._units, Units) or lists[0].numel() < count:
            units = free_units(self._allocator)
            self._units = self._units if self._units == units else Units(units)
        elif len(lists) != len(were) or not all(map(is_, lists, were)):
            self._units = _following(self._units, lists[0])
        return self._units


def _following(old: Units, pages: Any) -> Units:
    """The units of a tensor that follow others; new ones if what is at its ends does not tell how."""
    count, first, shown = pages.numel(), pages[:MOST_MOVED].tolist(), old[: 2 * MOST_MOVED]
    longer, place = count - len(old), {unit: place for place, unit in enumerate(first)}
    for index, unit in enumerate(shown[:MOST_MOVED]):
        at, left = place.get(unit), len(old) - index
        stayed = () if at is None else tuple(first[at : at + left])
        if at is None or stayed != shown[index : index + len(stayed)]:
            continue
        if at == 0 and left <= count and pages[left - 1] == old[-1]:
            return old.following(index, len(old), pages[left:].tolist())
        if at == index + longer and pages[-1] == old[-1]:
            return old.following(index, len(old), (), first[:at])
    return Units(pages.tolist())


def _free_lists(allocator: Any) -> tuple[Any, ...]:
    if not hasattr(allocator, "free_pages"):  # an allocator of recurrent states
        return (allocator.free_slots,)
    lists = (allocator.free_pages, allocator.release_pages)
    return tuple([units for units in lists if units is not None])


def _report(pool: str, before: tuple[Any, ...], after: tuple[Any, ...], notice: Callable[[NamedTuple], None]) -> None:
    taken, freed = list[list[int] | None](), list[list[int] | None]()
    for old, new in zip(before, after, strict=False):
        if new is not old:
            count = new.numel() - old.numel()
            (taken if count < 0 else freed).append(_rest(new, old, -count) if count < 0 else _rest(old, new, count))
    if len(before) != len(after) or None in (*taken, *freed) or (any(taken) and any(freed)):
        then, now = (Counter(chain.from_iterable(part.tolist() for part in lists)) for lists in (before, after))
        taken, freed = [[*(then - now).elements()]], [[*(now - then).elements()]]
    for is_taken, parts in ((True, taken), (False, freed)):
        if units := tuple(chain.from_iterable(part or () for part in parts)):
            notice(AllocatorMove(pool, is_taken, units))


def _rest(few: Any, many: Any, count: int) -> list[int] | None:
    """The `count` units at one end of the list `many` that `few` lacks; None if the lists differ in another way.

    The lists are compared as memory.  After a take they share their memory, and nothing is compared.
    """
    if few.data_ptr() == many.data_ptr() + count * many.element_size() or many[count:].equal(few):
        return list(many[:count].tolist())
    return list(many[few.numel() :].tolist()) if many[: few.numel()].equal(few) else None


def with_owners(
    events: Iterable[NamedTuple], before: view.Snapshot, after: view.Snapshot
) -> list[tuple[int, NamedTuple]]:
    """The events with each AllocatorMove replaced by Taken and Freed, each with the index of its source.

    The nodes of NodeLocks get the numbers that they have in the snapshots.  Units that change hands without an
    allocator follow as Given, with the index of the last event.
    """
    listed = list(events)
    writers = defaultdict[str, dict[int, int]](dict)
    for event in listed:
        if type(event) is seen.Written:
            writers[event.pool].update(dict.fromkeys(event.pages, event.request_id))
    for was, now in zip(before.pools, after.pools, strict=False):
        if was is not now and now.capacity >= Following.LEAST:
            follow(was, now)
    owners = {pool.name: Owners(pool.name, pool.owner_of) for pool in before.pools}
    ends = {pool.name: pool.owner_of for pool in after.pools}

    def taker(pool: str, unit: int) -> seen.Owner:
        writer = writers[pool].get(unit)
        return ends[pool].get(unit, UNKNOWN) if writer is None else owner_named(seen.REQUEST_KIND, writer)

    owned: list[tuple[int, NamedTuple]] = []
    moved: Sequence[NamedTuple]
    for index, event in enumerate(listed):
        if isinstance(event, AllocatorMove):
            of_pool = owners[event.pool]
            moved = of_pool.take(event.units, partial(taker, event.pool)) if event.taken else of_pool.free(event.units)
        elif isinstance(event, NodeLocks):
            moved = _numbered(event, before, after)
        else:
            moved = [*_handed_on(event, owners, before), event]
        owned += [(index, move) for move in moved]
    settled = [
        given
        for pool in owners
        if pool != ROWS
        for given in owners[pool].settle(_ends_in(after.pool(pool), owners[pool]))
    ]
    return owned + [(max(0, len(listed) - 1), given) for given in settled]


def _ends_in(pool: view.PoolView, known: Owners) -> Mapping[int, seen.Owner]:
    """The owners in a pool, of units that may have another one than before."""
    if pool.moved_since is None or not isinstance(known.owner_of, ChainMap):
        return {} if pool.owner_of == known.owner_of else pool.owner_of
    return {unit: pool.owner_of[unit] for unit in sorted(pool.moved_since[1] | known.owner_of.maps[0].keys())}


def _numbered(event: NodeLocks, before: view.Snapshot, after: view.Snapshot) -> list[NamedTuple]:
    """The locks on nodes with a number, and their units; a node without one left the tree in the step that made it."""
    nodes = {**before.node_by_id, **after.node_by_id}
    pools = [*[component.pool for component in after.components], *after.host_pools]
    counts = []
    for holder, pool, *numbers in event.moves:
        if node := nodes.get(getattr(holder, "swarden_id", 0)):
            units = (*node.units, *node.copies)[pools.index(pool)]
            counts.append(seen.LockCount(pool, node.id, tuple(units), *numbers))
    return [seen.LocksCounted(event.request_id, tuple(counts))] if counts else []


def _handed_on(event: NamedTuple, owners: Mapping[str, Owners], before: view.Snapshot) -> list[seen.Given]:
    """The units that a transfer gives to its request, or that a session and its turn give to each other."""

    def given(of_pool: Owners, giver: seen.Owner, taker: seen.Owner) -> list[seen.Given]:
        if not isinstance(of_pool.owner_of, ChainMap):
            return of_pool.give(giver, taker)
        holdings = [held for held in before.pool(of_pool.pool).holdings if held.owner == giver]
        units = dict.fromkeys([*chain.from_iterable(held.units for held in holdings), *of_pool.owner_of.maps[0]])
        return of_pool.give(giver, taker, [unit for unit in units if of_pool.owner_of.get(unit) == giver])

    if not isinstance(event, seen.TakenOver | seen.Lent | seen.Kept):
        return []
    request = seen.Owner(seen.REQUEST_KIND, event.request_id)
    if isinstance(event, seen.TakenOver):
        transfer = seen.Owner(seen.HANDOVER_KIND, event.request_id)
        return [move for of_pool in owners.values() for move in given(of_pool, transfer, request)]
    session = seen.Owner(seen.SESSION_KIND, event.session)
    giver, taker = (session, request) if isinstance(event, seen.Lent) else (request, session)
    of_kv = [of_pool for pool, of_pool in owners.items() if pool != ROWS]
    return [move for of_pool in of_kv for move in given(of_pool, giver, taker)]
