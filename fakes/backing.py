"""The stand-in for the memory behind the pages, as where it is mapped on demand."""

from typing import ClassVar

from fakes.faults import Faults


class FakeBacking:
    """Has memory for every page there is, but for the armed fault:

    Each pool of a take is a crossing, in the order of the pools; whoever takes nothing crosses nothing.
    """

    FAULTS: ClassVar = {
        "pool.refuses": "a pool has free pages and no memory behind them; with a skip it is the second pool of a take",
    }

    def __init__(self, plan: Faults) -> None:
        self._plan = plan

    def allows(self, pool: str, count: int) -> bool:
        """Is there memory for `count` more pages of `pool`?"""
        return count == 0 or not self._plan.fires("pool.refuses")
