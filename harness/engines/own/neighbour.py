"""Memory pressure from outside of the engine."""

from swarden.engine_under_test.pools.memory import KVMemory
from swarden.invariants import view
from swarden.invariants.events import OUTSIDE_KIND, Owner

PRESSURE = Owner(OUTSIDE_KIND)


class Neighbour:
    """Another user of the same pools: it holds pages that the engine cannot use."""

    def __init__(self, memory: KVMemory) -> None:
        self._ledgers = memory.ledgers.ledgers
        self._held: dict[str, list[int]] = {ledger.name: [] for ledger in self._ledgers}

    def hold(self, pool: int, pages: int) -> bool:
        """Release the held pages of a pool (its ordinal), then take up to `pages`. False if no page moved."""
        ledger = self._ledgers[pool % len(self._ledgers)]
        released = self._held.pop(ledger.name)
        ledger.free(released, owner=PRESSURE, cause="pressure released")
        self._held[ledger.name] = ledger.take_checked(min(pages, ledger.num_free), owner=PRESSURE)
        return bool(released or self._held[ledger.name])

    def held(self, pool: str) -> tuple[int, ...]:
        return tuple(self._held[pool])

    def holdings(self, pool: str) -> list[view.Holding]:
        """The neighbour's holding in a pool, for a snapshot. Empty if the neighbour holds no page."""
        units = self.held(pool)
        return [view.Holding(PRESSURE, units, cached=False)] if units else []
