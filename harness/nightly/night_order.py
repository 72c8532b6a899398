"""The order of nights: a night is earlier than each night that knows of it.

The clocks of machines differ, and one can be wrong.  So a night names the nights that it knows of.  The clock, with
which the name of a night begins, decides only between nights that do not know of each other.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Mapping

Known = Mapping[str, Collection[str]]  # for each night some nights before it: at least the latest that it knows


def positions(known: Known) -> dict[str, int]:
    """The position of each night, the earliest first.

    The order is made from its end, so that a night with a clock in the future comes right before the first night that
    knows of it.  If nights of damaged files know of each other, their clocks decide.
    """
    waiting = _times_known(known)
    left = sorted(known)
    ready = [night for night in left if not waiting[night]]
    backwards: dict[str, None] = {}
    while left:
        night = ready.pop() if ready else left.pop()
        if night in backwards:
            continue
        backwards[night] = None
        for one in set(known[night]) & known.keys():
            waiting[one] -= 1
            if not waiting[one]:
                insort(ready, one)
    return {night: position for position, night in enumerate(reversed(backwards))}


def latest(known: Known) -> list[str]:
    """The nights that no other night knows of."""
    times = _times_known(known)
    return [night for night in sorted(known) if not times[night]]


def _times_known(known: Known) -> Counter[str]:
    """For each night the number of other nights that know of it."""
    return Counter(one for night, before in known.items() for one in {*before} - {night})
