"""The events of a step before the engine plans its batch: the windows that move, and the pages that are free then."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from invariants.events import Fired, Freed, Paired, Slid, Split
from invariants.kinds import FreeCause
from invariants.passes import FreeUnits
from invariants.view import Snapshot


def before_planning(events: Sequence[NamedTuple]) -> list[NamedTuple]:
    """The events up to the last one that moves a window, faults of the link to another engine included."""
    moved = list(takewhile(lambda event: isinstance(event, Fired) or _moves_a_window(event), events))
    while moved and isinstance(moved[-1], Fired):
        moved.pop()
    return moved


def _moves_a_window(event: NamedTuple) -> bool:
    return isinstance(event, (Slid, Split, Paired)) or (isinstance(event, Freed) and event.cause == FreeCause.SLID)


def free_after(before: Snapshot, moved: Sequence[NamedTuple]) -> dict[str, int]:
    """By pool, the number of free pages after these events."""
    free_units = FreeUnits(before)
    for event in moved:
        free_units.apply(event)
    return free_units.free
