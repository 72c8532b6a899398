"""What the ledgers must do, in the plainest way: lists of units, and an owner for each.

Says which very units a take gets: the ones freed last with reuse "lifo", those freed first with
"fifo".  A take that a pool refuses changes nothing in any.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine_under_test.config import EngineConfig
from engine_under_test.units import Owner

ALL, WINDOWED, REST = "all", "windowed", "rest"
PARTS = (ALL, WINDOWED, REST)


class PoolState(NamedTuple):
    """Free units in order of their freeing, fenced ones as (launch, unit), and whose the others are."""

    free: list[int]
    fenced: list[tuple[int, int]]
    owners: dict[int, Owner]


class LedgerModel:
    """Units of every pool; a handle is a unit of the first pool, and its peers those that came with it."""

    def __init__(self, config: EngineConfig) -> None:
        self.pools = {spec.name: PoolState(list(range(1, spec.num_pages + 1)), [], {}) for spec in config.pools}
        self.peers: dict[str, dict[int, int]] = {spec.name: {} for spec in config.pools[1:]}
        self._windowed = {spec.name: spec.window is not None for spec in config.pools}
        self._takes_newest = config.page_reuse == "lifo"
        self._completed = 0

    def pools_of(self, part: str) -> list[str]:
        """The pools in which a part of a handle's pages lies."""
        wanted = {ALL: (True, False), WINDOWED: (True,), REST: (False,)}[part]
        return [name for name, is_windowed in self._windowed.items() if is_windowed in wanted]

    def take(self, count: int, owner: Owner) -> list[int] | None:
        """Handles of `count` units of every pool; None where a pool refused."""
        if any(count > len(state.free) for state in self.pools.values()):
            return None
        taken = [self._pick(state, count) for state in self.pools.values()]
        for state, units in zip(self.pools.values(), taken, strict=True):
            state.owners.update(dict.fromkeys(units, owner))
        for peers, units in zip(self.peers.values(), taken[1:], strict=True):
            peers.update(zip(taken[0], units, strict=True))
        return taken[0]

    def give(self, handles: Sequence[int], to: Owner) -> None:
        for pool, state in self.pools.items():
            state.owners.update(dict.fromkeys(self._units(pool, handles), to))

    def free(self, handles: Sequence[int], part: str, *, after: int = 0) -> None:
        """Free a part of what the handles stand for, behind the fence of launch `after`."""
        for pool in self.pools_of(part):
            state, units = self.pools[pool], self._units(pool, handles)
            for unit in units:
                del state.owners[unit]
            if after > self._completed:
                state.fenced.extend((after, unit) for unit in units)
            else:
                state.free.extend(units)
        for peers in self._peers_of(part):
            for handle in handles:
                peers.pop(handle, None)

    def take_over(self, kept: Sequence[int], incoming: Sequence[int], to: Owner) -> None:
        """The windowed units of `incoming` are the peers of `kept` from now on, and `to`'s."""
        for pool in self.pools_of(WINDOWED):
            for keeper, giver in zip(kept, incoming, strict=True):
                unit = self.peers[pool][keeper] = self.peers[pool].pop(giver)
                self.pools[pool].owners[unit] = to

    def complete(self, launch: int) -> None:
        """What waited for launches up to `launch` is free, in the order in which it was freed."""
        self._completed = launch
        for state in self.pools.values():
            state.free.extend(unit for fence, unit in state.fenced if fence <= launch)
            state.fenced[:] = [(fence, unit) for fence, unit in state.fenced if fence > launch]

    def hold(self, pool: str, pages: int, holder: Owner) -> None:
        """Pressure: the holder's units of one pool come back, then it takes up to `pages`."""
        state = self.pools[pool]
        for unit in [unit for unit, owner in state.owners.items() if owner == holder]:
            del state.owners[unit]
            state.free.append(unit)
        for unit in self._pick(state, min(pages, len(state.free))):
            state.owners[unit] = holder

    def _peers_of(self, part: str) -> list[dict[int, int]]:
        return [self.peers[pool] for pool in self.pools_of(part) if pool in self.peers]

    def _pick(self, state: PoolState, count: int) -> list[int]:
        return [state.free.pop(-1 if self._takes_newest else 0) for _ in range(count)]

    def _units(self, pool: str, handles: Sequence[int]) -> list[int]:
        if pool not in self.peers:
            return list(handles)
        return [self.peers[pool][handle] for handle in handles if handle in self.peers[pool]]
