"""Somebody else on the same device."""

from engine_under_test.pools.memory import KVMemory
from engine_under_test.units import Owner
from invariants import view

PRESSURE = Owner(view.OUTSIDE_KIND)


class Neighbour:
    """Holds pages of single pools, outside of whatever else uses them."""

    def __init__(self, memory: KVMemory) -> None:
        self._ledgers = memory.ledgers.ledgers
        self._held: dict[str, list[int]] = {ledger.name: [] for ledger in self._ledgers}

    def hold(self, pool: int, pages: int) -> bool:
        """Let the pages of a pool (its ordinal) go and take up to `pages` of it; False where neither was any."""
        ledger = self._ledgers[pool % len(self._ledgers)]
        let_go = self._held.pop(ledger.name)
        ledger.free(let_go, owner=PRESSURE, cause="pressure let go")
        self._held[ledger.name] = ledger.take_checked(min(pages, ledger.num_free), owner=PRESSURE)
        return bool(let_go or self._held[ledger.name])

    def let_go(self) -> None:
        """Of every pool."""
        for pool in range(len(self._ledgers)):
            self.hold(pool, 0)

    def held(self, pool: str) -> tuple[int, ...]:
        return tuple(self._held[pool])

    def holdings(self, pool: str) -> list[view.Holding]:
        """What the neighbour holds of a pool, for a snapshot; a list without it where it holds nothing."""
        units = self.held(pool)
        return [view.Holding(view.Owner(*PRESSURE), units, cached=False)] if units else []
