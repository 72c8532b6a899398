"""The owner of each unit at each event of a step: the events, replayed over the state before the step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.invariants.view import FENCE, FREE, Snapshot

MOVES = frozenset(
    {seen.Taken, seen.Given, seen.Freed, seen.Written, seen.Completed, seen.CopiedIn, seen.CopyBegan, seen.Filled}
)  # they are replayed
SHARED_KINDS = ("free", seen.FENCE_KIND, seen.TREE_KIND)  # of units that are not private to a holder


class Moved(dict[int, seen.Owner]):
    """The owners of units that have moved; `owner` knows those of the others, too."""

    def __init__(self, owner_of: Mapping[int, seen.Owner]) -> None:
        self.before = owner_of.get

    def owner(self, unit: int) -> seen.Owner | None:
        return self.get(unit) or self.before(unit)


class Misplaced(NamedTuple):
    """A unit that an event moved or wrote, and its owner at that time (None: none, or the pool has no such unit)."""

    event: seen.Taken | seen.Given | seen.Freed | seen.Written | seen.CopiedIn
    unit: int
    owner: seen.Owner | None


def misplaced_units(before: Snapshot, events: Sequence[NamedTuple], after: Snapshot) -> list[Misplaced]:
    """Every unit whose owner was not the one that the event names, in order; costs O(units moved).

    All nodes of the tree count as one owner here.
    """
    owners = {pool.name: Moved(pool.owner_of) for pool in before.pools}
    taken, new = list[seen.Taken](), set[tuple[str, int]]()  # the takes, and the units of those before a copy
    fences, is_shared_early = Fences(before, events, after), after.limits.shares_uncomputed
    found: list[Misplaced] = []
    for event in events:
        if type(event) not in MOVES:
            continue
        if type(event) is seen.Written:
            if (owner_of := owners.get(event.pool)) is not None:
                expected = (seen.REQUEST_KIND, event.request_id)
                for index, unit in enumerate(event.pages):
                    owner = owner_of.owner(unit)
                    is_kept = owner == expected or fences.covers(event, unit)
                    if not is_kept and is_shared_early and owner == seen.TREE:
                        is_kept = _is_own_place(event, index, before, after)
                    if not is_kept and owner not in _later_owners(event, before, after):
                        found.append(Misplaced(event, unit, owner))
        elif type(event) is seen.Taken:
            if (owner_of := owners.get(event.pool)) is not None:
                _move(event, FREE, event.owner, owner_of, found)
                taken.append(event)
        elif type(event) is seen.Freed:
            if (owner_of := owners.get(event.pool)) is not None:
                _move(event, event.owner, fences.owner_after(event), owner_of, found)
        elif type(event) is seen.Given:
            if (owner_of := owners.get(event.pool)) is not None:
                _move(event, event.from_owner, event.to_owner, owner_of, found)
        elif type(event) is seen.Completed:
            fences.complete(event.launch, owners)
        else:
            new.update([(take.pool, unit) for take in taken for unit in take.units])
            taken.clear()
            found += [
                Misplaced(copied, unit, owner)
                for copied in _copied_in(event, after)
                if (owner_of := owners.get(copied.pool)) is not None
                for unit in copied.units
                if not _may_copy(copied, owner := owner_of.owner(unit), (copied.pool, unit) in new)
            ]
    return found


def _is_own_place(event: seen.Written, index: int, before: Snapshot, after: Snapshot) -> bool:
    """Is the written page with this index in the table of the writer, at the place of its position?

    A table that has no such place before and after the step is not known: the writer can begin and end in one step.
    """
    component, size = after.components[event.component], after.page_sizes[event.component]
    place = component.page_index(event.start // size * size + index * size)
    records = [snapshot.record_by_request.get(event.request_id) for snapshot in (before, after)]
    tables = [record.units[event.component] for record in records if record is not None]
    known = [units[place] for units in tables if place < len(units)]
    return not known or event.pages[index] in known


def _copied_in(event: NamedTuple, after: Snapshot) -> Iterator[seen.CopiedIn]:
    """The units that a copy which begins, or an arrival of pages, writes in each pool."""
    if isinstance(event, seen.CopiedIn):
        yield event
    elif isinstance(event, seen.Filled):
        yield seen.CopiedIn(event.pool, event.pages, seen.Owner(seen.HANDOVER_KIND, event.request_id))
    elif isinstance(event, seen.CopyBegan):
        owner = seen.Owner(seen.BACKUP_KIND if event.to_host else seen.LOAD_KIND, event.job)
        for pool, here, there in event.pages:
            written = (after.host_pool_of.get(pool, ""), there) if event.to_host else (pool, here)
            yield seen.CopiedIn(written[0], tuple(written[1]), owner)


def _may_copy(event: seen.CopiedIn, owner: seen.Owner | None, is_new: bool) -> bool:
    """May a copy write a unit of this owner?  A new unit was taken in this step; the tree may have it already."""
    if owner is None:
        return False
    if owner.kind in SHARED_KINDS:
        return is_new and owner.kind == seen.TREE_KIND
    return owner == event.owner or not event.owner.id


class Fences:
    """The launches in flight, and the freed units that wait for them."""

    def __init__(self, before: Snapshot, events: Sequence[NamedTuple], after: Snapshot) -> None:
        self._waiting: list[tuple[int, str, int]] = []
        self._under_way = {event.launch for event in events if type(event) is seen.Completed}
        if before.has_fences or after.has_fences:
            for pool in before.pools:
                for fence in pool.fenced:
                    self._waiting += [(fence.launch, pool.name, unit) for unit in fence.units]
            self._under_way.update([fence.launch for pool in before.pools for fence in pool.fenced])
            self._under_way.update([fence.launch for pool in after.pools for fence in pool.fenced])
        self._under_way.update([view.launch for view in after.launches or ()])

    def owner_after(self, event: seen.Freed) -> seen.Owner:
        """The new owner of the units that `event` freed: FREE, or FENCE while its launch is in flight."""
        if event.after not in self._under_way:
            return FREE
        self._waiting += [(event.after, event.pool, unit) for unit in event.units]
        return FENCE

    def covers(self, event: seen.Written, unit: int) -> bool:
        """Is a unit that a pass writes fenced for this pass, or for a later one?"""
        return any(
            launch >= event.launch and (pool, waiting) == (event.pool, unit) for launch, pool, waiting in self._waiting
        )

    def complete(self, launch: int, owners: Mapping[str, Moved]) -> None:
        """Free the units that waited for launches up to `launch`."""
        self._under_way = {other for other in self._under_way if other > launch}
        if self._waiting:
            for waited_for, pool, unit in self._waiting:
                if waited_for <= launch:
                    owners[pool][unit] = FREE
            self._waiting = [waiting for waiting in self._waiting if waiting[0] > launch]


def _later_owners(event: seen.Written, before: Snapshot, after: Snapshot) -> list[seen.Owner]:
    """The owners that may have got the record of a turn after its launch: its session, or the next turn."""
    view = before.launch_by_id.get(event.launch)
    requests = [request for request, _, _ in view.entries] if view is not None and view.sessions else []
    if view is None or event.request_id not in requests:
        return []
    session = view.sessions[requests.index(event.request_id)]
    turns = [one.id for one in (*(before.requests or ()), *(after.requests or ())) if one.session == session]
    return (
        [seen.Owner(seen.SESSION_KIND, session), *(seen.Owner(seen.REQUEST_KIND, turn) for turn in turns)]
        if session
        else []
    )


def _move(
    event: seen.Taken | seen.Given | seen.Freed,
    expected: seen.Owner,
    to: seen.Owner,
    owner_of: Moved,
    found: list[Misplaced],
) -> None:
    """Move the units to their new owner; note those whose owner was not the expected one, or that are named twice."""
    units, now, before = event.units, owner_of.get, owner_of.before
    for unit in units:
        owner = now(unit) or before(unit)
        if (
            owner is not expected
            and owner != expected
            and not (owner is not None and owner.kind == seen.TREE_KIND == expected[0])
        ):
            found.append(Misplaced(event, unit, owner))
    if len(units) == 1:
        owner_of[units[0]] = to
    else:
        distinct = dict.fromkeys(units, to)
        owner_of.update(distinct)
        if len(distinct) != len(units):
            found += [Misplaced(event, unit, to) for unit in distinct if units.count(unit) > 1]
