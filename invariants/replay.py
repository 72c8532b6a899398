"""The owner of each unit inside a step: the moves of the step, replayed over the state before it."""

from collections.abc import Sequence
from typing import NamedTuple

from invariants.events import Completed, Freed, Given, Taken, Written
from invariants.view import FENCE, FREE, REQUEST_KIND, SESSION_KIND, TREE_KIND, Owner, Snapshot

MOVES = frozenset({Taken, Given, Freed, Written, Completed})  # the events that the books follow


class Misplaced(NamedTuple):
    """A unit that an event moved or wrote, and its owner at that time (None: the pool does not have it, or lost it)."""

    event: Taken | Given | Freed | Written
    unit: int
    owner: Owner | None


def replay(before: Snapshot, events: Sequence[NamedTuple], after: Snapshot) -> list[Misplaced]:
    """Every unit that had another owner than the event says, in order; costs O(units moved).

    The tree is one owner here: any of its nodes may move a page of another.
    """
    books = {pool.name: dict(pool.owner_of) for pool in before.pools}
    fences = Fences(before, events, after)
    found: list[Misplaced] = []
    for event in events:
        if type(event) not in MOVES:
            continue
        if type(event) is Written:
            if (book := books.get(event.pool)) is not None:
                expected = (REQUEST_KIND, event.request_id)
                for unit in event.pages:
                    owner = book.get(unit)
                    is_kept = owner == expected or fences.guard(event, unit)
                    if not is_kept and owner not in _heirs(event, before, after):
                        found.append(_misplaced(event, unit, owner))
        elif type(event) is Taken:
            if (book := books.get(event.pool)) is not None:
                _look(event, event.units, FREE, book, found)
                _hand_over(event, event.units, event.owner, book, found)
        elif type(event) is Freed:
            if (book := books.get(event.pool)) is not None:
                _look(event, event.units, event.owner, book, found)
                _hand_over(event, event.units, fences.raise_for(event), book, found)
        elif type(event) is Given:
            if (book := books.get(event.pool)) is not None:
                _look(event, event.units, event.from_owner, book, found)
                _hand_over(event, event.units, event.to_owner, book, found)
        elif type(event) is Completed:
            fences.complete(event.launch, books)
    return found


class Fences:
    """The launches that are under way, and the units that wait for them."""

    def __init__(self, before: Snapshot, events: Sequence[NamedTuple], after: Snapshot) -> None:
        self._waiting: list[tuple[int, str, int]] = []
        self._under_way = {event.launch for event in events if type(event) is Completed}
        if before.has_fences or after.has_fences:
            for pool in before.pools:
                for fence in pool.fenced:
                    self._waiting += [(fence.launch, pool.name, unit) for unit in fence.units]
            self._under_way.update([fence.launch for pool in before.pools for fence in pool.fenced])
            self._under_way.update([fence.launch for pool in after.pools for fence in pool.fenced])
        self._under_way.update([view.launch for view in after.launches or ()])

    def raise_for(self, event: Freed) -> Owner:
        """The new owner of the units that `event` freed: none, or the fence while its launch is under way."""
        if event.after not in self._under_way:
            return FREE
        self._waiting += [(event.after, event.pool, unit) for unit in event.units]
        return FENCE

    def guard(self, event: Written, unit: int) -> bool:
        """Is a unit that a pass writes kept for it, or for a later one, behind a fence?"""
        return any(
            launch >= event.launch and (pool, waiting) == (event.pool, unit) for launch, pool, waiting in self._waiting
        )

    def complete(self, launch: int, books: dict[str, dict[int, Owner]]) -> None:
        """The units that waited for launches up to `launch` are free."""
        self._under_way = {other for other in self._under_way if other > launch}
        if self._waiting:
            for waited_for, pool, unit in self._waiting:
                if waited_for <= launch:
                    books[pool][unit] = FREE
            self._waiting = [waiting for waiting in self._waiting if waiting[0] > launch]


def _heirs(event: Written, before: Snapshot, after: Snapshot) -> list[Owner]:
    """The owners that may have got the record of a launched turn: its session, or the next turn."""
    view = before.launch_by_id.get(event.launch)
    requests = [request for request, _, _ in view.entries] if view is not None and view.sessions else []
    if view is None or event.request_id not in requests:
        return []
    session = view.sessions[requests.index(event.request_id)]
    turns = [one.id for one in (*(before.requests or ()), *(after.requests or ())) if one.session == session]
    return [Owner(SESSION_KIND, session), *(Owner(REQUEST_KIND, turn) for turn in turns)] if session else []


def _look(
    event: Taken | Given | Freed,
    units: Sequence[int],
    expected: Owner,
    book: dict[int, Owner],
    found: list[Misplaced],
) -> None:
    """Note the units that have another owner than expected."""
    for unit in units:
        owner = book.get(unit)
        if (
            owner is not expected
            and owner != expected
            and not (owner is not None and owner.kind == TREE_KIND == expected[0])
        ):
            found.append(_misplaced(event, unit, owner))


def _hand_over(
    event: Taken | Given | Freed, units: Sequence[int], owner: Owner, book: dict[int, Owner], found: list[Misplaced]
) -> None:
    """The units have another owner now; one that the event names twice had it the second time."""
    if len(units) == 1:
        book[units[0]] = owner
    else:
        distinct = dict.fromkeys(units, owner)
        book.update(distinct)
        if len(distinct) != len(units):
            found += [_misplaced(event, unit, owner) for unit in distinct if units.count(unit) > 1]


def _misplaced(event: Taken | Given | Freed | Written, unit: int, owner: Owner | None) -> Misplaced:
    """An engine may tell of its own type of owners."""
    return Misplaced(event, unit, None if owner is None else Owner(*owner))
