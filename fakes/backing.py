"""The fake of page memory that is mapped on demand."""

from typing import ClassVar

from swarden.fakes.faults import Faults


class FakeBacking:
    """Maps every page, except under an armed fault.

    Each pool of a take is one crossing, in the order of the pools, unless the take needs no page of it.  The first pool
    with too few free pages, or without memory for them, ends the take.
    """

    FAULTS: ClassVar = {
        "pool.refuses": "a pool has free pages, but no memory for them; with skip 1 it is the second pool of a take"
    }

    def __init__(self, plan: Faults) -> None:
        self._plan = plan

    def allows(self, pool: str, count: int) -> bool:
        """Is there memory for `count` more pages?"""
        return count == 0 or not self._plan.fires("pool.refuses")
