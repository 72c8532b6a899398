"""The units that the release's allocators hand out and take back, and their owners, inferred from two snapshots.

An allocator of SGLang does not know for whom it allocates. A taken unit belongs to the request whose pass writes it in
the same step, or to its owner in the snapshot after the step; a freed one to the owner that it had before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, compress
from operator import ne
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.invariants import view

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
)
UNKNOWN = seen.Owner(seen.REQUEST_KIND, 0)  # of a unit that was taken and freed within a step, and not written


class AllocatorMove(NamedTuple):
    """Units that an allocator handed out (`taken`) or took back."""

    pool: str
    taken: bool
    units: tuple[int, ...]


def watch(pool: str, allocator: Any, notice: Callable[[NamedTuple], None]) -> None:
    """Report each change of an allocator's free lists, found by comparing them before and after each call."""
    depth = 0

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            before = None if depth else _free_lists(allocator)
            depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1
                if before is not None:
                    _report(pool, before, _free_lists(allocator), notice)

        return call

    for name in MOVING_METHODS:
        if callable(getattr(allocator, name, None)):
            setattr(allocator, name, watching(getattr(allocator, name)))


def free_units(allocator: Any) -> list[int]:
    """The free units of an allocator, in order."""
    return list(chain.from_iterable(part.tolist() for part in _free_lists(allocator)))


def _free_lists(allocator: Any) -> tuple[Any, ...]:
    if hasattr(allocator, "free_slots"):  # of recurrent states
        return (allocator.free_slots,)
    lists = (allocator.free_pages, allocator.release_pages)
    return tuple([one for one in lists if one is not None])


def _report(pool: str, before: tuple[Any, ...], after: tuple[Any, ...], notice: Callable[[NamedTuple], None]) -> None:
    changed = [pair for pair in zip(before, after, strict=False) if pair[0] is not pair[1]]
    if not changed and len(before) == len(after):
        return
    taken = [_rest(new, old) if len(new) < len(old) else [] for old, new in changed]
    freed = [_rest(old, new) if len(new) >= len(old) else [] for old, new in changed]
    if len(before) != len(after) or None in (*taken, *freed) or (any(taken) and any(freed)):
        then, now = (Counter(chain.from_iterable(part.tolist() for part in lists)) for lists in (before, after))
        taken, freed = [[*(then - now).elements()]], [[*(now - then).elements()]]
    for is_taken, parts in ((True, taken), (False, freed)):
        if units := tuple(chain.from_iterable(part or () for part in parts)):
            notice(AllocatorMove(pool, is_taken, units))


def _rest(few: Any, many: Any) -> list[int] | None:
    """The units at one end of the longer list `many` that `few` has not; None if the lists differ in another way.

    The cost is a comparison of memory, and of none if the lists share it, as after a take.
    """
    count = len(many) - len(few)
    if few.data_ptr() == many.data_ptr() + count * many.element_size() or many[count:].equal(few):
        return list(many[:count].tolist())
    return list(many[len(few) :].tolist()) if many[: len(few)].equal(few) else None


def with_owners(
    events: Iterable[NamedTuple], before: view.Snapshot, after: view.Snapshot
) -> list[tuple[int, NamedTuple]]:
    """The events with each AllocatorMove replaced by Taken and Freed, each with the index of its source.

    Units that change hands without an allocator follow as Given, with the index of the last event.
    """
    listed = list(events)
    writers = {
        (event.pool, unit): event.request_id
        for event in listed
        if isinstance(event, seen.Written)
        for unit in event.pages
    }
    owners = {pool.name: dict(pool.owner_of) for pool in before.pools}
    ends = {pool.name: pool.owner_of for pool in after.pools}
    found: list[tuple[int, NamedTuple]] = []
    for index, event in enumerate(listed):
        if isinstance(event, seen.TakenOver):
            found += [(index, given) for given in _taken_over(event.request_id, owners)]
        elif isinstance(event, (seen.Lent, seen.Kept)):
            found += [(index, given) for pool in owners for given in _handed_on(pool, owners[pool], event)]
        if not isinstance(event, AllocatorMove):
            found.append((index, event))
            continue
        known, end = owners[event.pool], ends[event.pool]
        by_owner: dict[seen.Owner, list[int]] = {}
        for unit in event.units:
            writer = writers.get((event.pool, unit)) if event.taken else None
            owner = (end if event.taken else known).get(unit, UNKNOWN)
            if writer is not None:
                owner = seen.Owner(seen.REQUEST_KIND, writer)
            by_owner.setdefault(UNKNOWN if owner == view.FREE else owner, []).append(unit)
        for owner, units in by_owner.items():
            if event.taken:
                found.append((index, seen.Taken(event.pool, tuple(units), owner)))
            else:
                found.append((index, seen.Freed(event.pool, tuple(units), owner, "freed", 0)))
            known.update(dict.fromkeys(units, owner if event.taken else view.FREE))
    return found + [
        (max(0, len(listed) - 1), given) for pool in owners for given in _given(pool, owners[pool], ends[pool])
    ]


def _taken_over(request_id: int, owners: dict[str, dict[int, seen.Owner]]) -> list[seen.Given]:
    """Give the units of a complete transfer to its request."""
    transfer, request = seen.Owner(seen.HANDOVER_KIND, request_id), seen.Owner(seen.REQUEST_KIND, request_id)
    return [given for pool, known in owners.items() for given in _all_given(pool, known, transfer, request)]


def _handed_on(pool: str, owner_of: dict[int, seen.Owner], event: seen.Lent | seen.Kept) -> list[seen.Given]:
    """The units that a session and its turn hand to each other."""
    turn, session = seen.Owner(seen.REQUEST_KIND, event.request_id), seen.Owner(seen.SESSION_KIND, event.session)
    giver, taker = (session, turn) if isinstance(event, seen.Lent) else (turn, session)
    return _all_given(pool, owner_of, giver, taker) if pool != "rows" else []


def _all_given(pool: str, owner_of: dict[int, seen.Owner], giver: seen.Owner, taker: seen.Owner) -> list[seen.Given]:
    units = tuple([unit for unit, owner in owner_of.items() if owner == giver])
    owner_of.update(dict.fromkeys(units, taker))
    return [seen.Given(pool, units, giver, taker)] if units else []


def _given(pool: str, before: Mapping[int, seen.Owner], after: Mapping[int, seen.Owner]) -> list[seen.Given]:
    """The units of a pool whose owner differs; nodes of the tree that were split or merged are one owner."""
    moved: dict[tuple[seen.Owner, seen.Owner], list[int]] = {}
    if pool == "rows":
        return []
    for unit in compress(after, map(ne, map(before.get, after), after.values())):
        was, owner = before.get(unit), after[unit]
        if was is None or view.FREE in (was, owner):
            continue
        if not was.kind == owner.kind == seen.TREE_KIND:
            moved.setdefault((was, owner), []).append(unit)
    return [seen.Given(pool, tuple(units), *owners) for owners, units in moved.items()]
