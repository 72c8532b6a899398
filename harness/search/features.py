"""The features of a run: what happened in it, as numbers, so that a run that reaches something new can be recognised.

Features come from events and states that every target reports, never from names of bugs or of an engine's functions.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple
from zlib import crc32

from swarden.harness.core.ops import Op, name_of
from swarden.invariants.transition import Transition

TELLING = ("pool", "cause", "reason", "place")  # fields of events that have one of a few values


class Features:
    """Counts pairs of consecutive events, numbers of free units, and moves of requests between queues, in one run."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[object, ...]]()
        self._last = ""

    def begin(self, op: Op) -> None:
        """Note that an op begins: the next event forms a pair with it."""
        self._last = name_of(op)

    def look(self, change: Transition) -> None:
        """Count the features of a transition."""
        counts, last = self._counts, self._last
        for event in change.events:
            name = _name(event)
            counts[last, name] += 1
            last = name
        self._last = last
        counts[tuple(len(pool.free).bit_length() for pool in change.after.pools)] += 1
        before = change.before.request_by_id
        for request in change.after.requests or ():
            old = before.get(request.id)
            if old is None or old.place != request.place:
                counts["place", str(old and old.place), str(request.place)] += 1

    def hashes(self) -> frozenset[int]:
        """Each feature with its bucketed count, as a hash that is the same in every process."""
        return frozenset(crc32(repr((one, _bucket(count))).encode()) for one, count in self._counts.items())

    def kinds(self) -> frozenset[int]:
        """The types of events and the moves between queues, as hashes; a campaign can have all of them."""
        named = [one for one in self._counts if one and isinstance(one[0], str)]
        return frozenset(crc32(repr(one if one[0] == "place" else one[1]).encode()) for one in named)


def _bucket(count: int) -> int:
    """The bucket of a count: 1, 2, 3, 4 to 7, 8 to 15 and so on each have their own."""
    return count if count < 4 else count.bit_length() + 1


def _name(event: NamedTuple) -> str:
    kind = type(event)
    return f"{kind.__name__} {[str(getattr(event, name)) for name in _telling(kind)]}"


@cache
def _telling(kind: type[NamedTuple]) -> Sequence[str]:
    """The fields that distinguish the cases of a type of event: names, and flags."""
    return [name for name, note in kind.__annotations__.items() if name in TELLING or note is bool]
