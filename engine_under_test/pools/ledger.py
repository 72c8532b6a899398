"""A ledger: a fixed number of units, each with an owner."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from swarden.engine_under_test.errors import PoolExhausted
from swarden.engine_under_test.ports import Backing, Observer
from swarden.invariants.events import Freed, Given, Owner, Refused, Taken


class Ledger:
    """The free units of one pool; the owner of a taken unit keeps it until it gives or frees it.

    One class serves all pools: pages of each KV pool, rows of the request table.  Unit 0 is padding: kernels may
    write to it, so no owner ever takes it.  A unit freed behind a fence has no owner, and is not free until the launch
    that may still read it has completed.
    """

    def __init__(
        self,
        name: str,
        capacity: int,
        *,
        reuse: str,
        observer: Observer | None = None,
        backing: Backing | None = None,
    ) -> None:
        self.name = name
        self.capacity = capacity  # usable units, so ids run from 1 to capacity
        self.observer = observer
        self.backing = backing
        self.completed_launch = 0
        self.newest_first = reuse == "lifo"
        self._free = deque(range(1, capacity + 1))
        self._fenced: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def free_units(self) -> tuple[int, ...]:
        """The units that can be taken now, in the order in which they were freed."""
        return tuple(self._free)

    def freed_last(self, count: int) -> list[int]:
        """The last `count` free units in that order, or all; costs their number."""
        return list(islice(reversed(self._free), count))[::-1]

    @property
    def fenced_units(self) -> dict[int, tuple[int, ...]]:
        """Freed units that wait for a launch to complete, by launch."""
        return {launch: tuple(units) for launch, units in self._fenced.items()}

    def check(self, count: int, *, owner: Owner) -> None:
        """Raises PoolExhausted if `owner` could not take `count` units, or there is no memory behind them."""
        if count > len(self._free) or (self.backing and count and not self.backing.allows(self.name, count)):
            if self.observer:
                self.observer.notice(Refused(self.name, owner, count, len(self._free)))
            raise PoolExhausted(self.name, want=count, free=len(self._free))

    def take(self, count: int, *, owner: Owner) -> list[int]:
        """Take `count` units, or none: raises PoolExhausted if fewer are free or have memory behind them."""
        self.check(count, owner=owner)
        return self.take_checked(count, owner=owner)

    def take_checked(self, count: int, *, owner: Owner) -> list[int]:
        """Take `count` units; `check` has just found enough."""
        take_one = self._free.pop if self.newest_first else self._free.popleft
        units = [take_one() for _ in range(count)]
        if self.observer and units:
            self.observer.notice(Taken(self.name, tuple(units), owner))
        return units

    def give(self, units: Sequence[int], *, from_owner: Owner, to_owner: Owner) -> None:
        """Change the owner of units; only observers keep that owner, so the free units stay the same."""
        if self.observer and units:
            self.observer.notice(Given(self.name, tuple(units), from_owner, to_owner))

    def free(self, units: Sequence[int], *, owner: Owner, cause: str, after: int = 0) -> None:
        """Free units; they can be taken again after launch `after` has completed."""
        if after > self.completed_launch:
            self._fenced.setdefault(after, []).extend(units)
        else:
            after = 0
            self._free.extend(units)
        if self.observer and units:
            self.observer.notice(Freed(self.name, tuple(units), owner, cause, after))

    def complete(self, launch: int) -> None:
        """Free the units that waited for launches up to `launch`, which have completed."""
        self.completed_launch = launch
        for fence in [fence for fence in self._fenced if fence <= launch]:
            self._free.extend(self._fenced.pop(fence))
