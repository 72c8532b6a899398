"""The reference model of the ledgers: lists of units, and an owner for each unit.

The model predicts the exact units of a take.  Reuse "lifo" takes the units that were freed last, "fifo" those that
were freed first.  A take that one pool refuses changes no pool.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.invariants.events import Owner

ALL, WINDOWED, REST = "all", "windowed", "rest"
PARTS = (ALL, WINDOWED, REST)


class PoolState(NamedTuple):
    """Free units in the order of their frees, fenced units as (launch, unit), and the owner of each taken unit."""

    free: list[int]
    fenced: list[tuple[int, int]]
    owners: dict[int, Owner]


class LedgerModel:
    """Units of every pool. A handle is a unit of the first pool; its peers are units of the other pools."""

    def __init__(self, config: EngineConfig) -> None:
        self.pools = {spec.name: PoolState(list(range(1, spec.num_pages + 1)), [], {}) for spec in config.pools}
        self.peers: dict[str, dict[int, int]] = {spec.name: {} for spec in config.pools[1:]}
        self._windowed = {spec.name: spec.window is not None for spec in config.pools}
        self._takes_newest = config.page_reuse == "lifo"
        self._completed = 0

    def pools_of(self, part: str) -> list[str]:
        """The pools that hold this part of a handle's pages."""
        wanted = {ALL: (True, False), WINDOWED: (True,), REST: (False,)}[part]
        return [name for name, is_windowed in self._windowed.items() if is_windowed in wanted]

    def take(self, places: Mapping[str, Sequence[int]], owner: Owner) -> list[int] | None:
        """Take units of every pool and return their handles; None if a pool refuses.

        `places` are, by pool, the indices of the handles with a unit there.
        """
        if any(len(places[pool]) > len(state.free) for pool, state in self.pools.items()):
            return None
        taken = {pool: self._pick(state, len(places[pool])) for pool, state in self.pools.items()}
        for pool, state in self.pools.items():
            state.owners.update(dict.fromkeys(taken[pool], owner))
        handles = next(iter(taken.values()))
        for pool, peers in self.peers.items():
            peers.update(zip([handles[place] for place in places[pool]], taken[pool], strict=True))
        return handles

    def lacks(self, handle: int) -> tuple[str, ...]:
        """The pools in which a handle has no unit."""
        return tuple(pool for pool, peers in self.peers.items() if handle not in peers)

    def give(self, handles: Sequence[int], to: Owner) -> None:
        for pool, state in self.pools.items():
            state.owners.update(dict.fromkeys(self._units(pool, handles), to))

    def free(self, handles: Sequence[int], part: str, *, after: int = 0) -> None:
        """Free a part of the pages of the handles, behind the fence of launch `after` unless it has completed."""
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
        """Make the windowed units of `incoming` the peers of `kept`, owned by `to`."""
        for pool in self.pools_of(WINDOWED):
            for keeper, giver in zip(kept, incoming, strict=True):
                if giver in self.peers[pool]:
                    unit = self.peers[pool][keeper] = self.peers[pool].pop(giver)
                    self.pools[pool].owners[unit] = to

    def complete(self, launch: int) -> None:
        """Release the units fenced by launches up to `launch`, in the order of their frees."""
        self._completed = launch
        for state in self.pools.values():
            state.free.extend(unit for fence, unit in state.fenced if fence <= launch)
            state.fenced[:] = [(fence, unit) for fence, unit in state.fenced if fence > launch]

    def hold(self, pool: str, pages: int, holder: Owner) -> None:
        """Pressure: free the holder's units of one pool, then take up to `pages` for it."""
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
