"""Which steps a naive planner can predict: those in which only windows move before the batch is planned."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.invariants.kinds import Place
from swarden.invariants.view import Snapshot

BY_PLANNING = (
    seen.Matched,
    seen.Admitted,
    seen.Preempted,
    seen.Parked,
    seen.Taken,
    seen.Tombstoned,
    seen.Removed,
    seen.Evicted,
    seen.Launched,
)
BY_RESULTS = (seen.Written, seen.Read, seen.Compared, seen.Completed, seen.Late, seen.Failed)
BETWEEN_ENGINES = frozenset(
    {seen.Invited, seen.LetGo}
)  # caused by messages of another engine, before the planning of a step


def is_predictable(before: Snapshot, events: Sequence[NamedTuple], num_moved: int) -> bool:
    """Is the ratio known, with no copy, no KV of a session and no message, and does the planning come first?"""
    is_ratio_known = before.counters is not None and before.counters.exact_ratio is not None
    if not is_ratio_known or before.copy_jobs or not BETWEEN_ENGINES.isdisjoint(map(type, events)):
        return False
    is_loading = Place.LOADING in [request.place for request in before.requests or ()]
    return not (is_loading or _keeps_session_kv(before)) and _begins_with_planning(before, events[num_moved:])


def before_planning(events: Sequence[NamedTuple]) -> list[NamedTuple]:
    """The events up to the last one that moves a window, faults of the link to another engine included."""
    moved = list(takewhile(lambda event: isinstance(event, seen.Fired) or _moves_a_window(event), events))
    while moved and isinstance(moved[-1], seen.Fired):
        moved.pop()
    return moved


def _moves_a_window(event: NamedTuple) -> bool:
    return isinstance(event, (seen.Slid, seen.Split, seen.Paired)) or (
        isinstance(event, seen.Freed) and event.cause == seen.FreeCause.SLID
    )


def _keeps_session_kv(snapshot: Snapshot) -> bool:
    """Does a session keep KV?  Its next turn may use the KV, or the engine may release it for other requests."""
    return any(session.kept_len for session in snapshot.sessions or ())


def _begins_with_planning(before: Snapshot, events: Sequence[NamedTuple]) -> bool:
    """Do these events begin with the planning of a batch, faults ignored?

    A plan that admits nothing has no events, so events of results may come first.  If requests may be preempted, events
    of results prove nothing, because the engine may have waited for results before it planned.
    """
    if before.is_paused or len(before.launches or ()) >= before.limits.most_launches:
        return False
    first = next((event for event in events if not isinstance(event, seen.Fired)), None)
    if first is None or isinstance(first, BY_PLANNING):
        return True
    return before.limits.preemption_threshold is None and isinstance(first, BY_RESULTS)
