"""The sectors and blocks of a cache: who has them, by a walk over the structures of the release, and their moves.

Sectors move between the groups of layers.  Each group has a pool with the blocks of all sectors; those of sectors that
it does not have are absent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from swarden.harness.kit.calls import intercept
from swarden.harness.kit.owners import Owners, UnitFacts, Worker, pool_view
from swarden.invariants.events import ABSENT, GROUP_KIND, TREE, Owner
from swarden.invariants.view import FREE, Holding, PoolView

SECTORS = "sectors"


class GroupFacts(NamedTuple):
    """What is known of the blocks of a group: the holders of each, how many readers are counted, and which are cached.

    `counts` has only blocks that several requests read, `cached` those that none reads, `hashed` these and others.
    """

    holders: Mapping[int, Sequence[Owner]]
    counts: Mapping[int, int] = {}
    cached: Iterable[int] = ()
    hashed: Mapping[int, int] = {}


class SectorPools:
    """The pools of one memory: that of its sectors, and one for each group of layers.

    `facts_of` walks over the structures of a group.  A unit is the id of the release, counted from 1.
    """

    def __init__(
        self, pool: Any, prefix: str, names: Sequence[str], facts_of: Callable[[int], GroupFacts], worker: Worker
    ) -> None:
        self._pool, self._facts_of, self._worker = pool, facts_of, worker
        self.names = [f"{prefix}{name}" for name in names]
        self._first = pool.num_reserved_sectors
        self._sectors = Owners(f"{prefix}{SECTORS}", dict.fromkeys(range(1, pool.num_sectors + 1), FREE))
        self._groups = [
            Owners(name, dict.fromkeys(range(1, pool.num_sectors * size + 1), ABSENT))
            for name, size in zip(self.names, pool.blocks_per_sector, strict=True)
        ]
        intercept(pool, "allocate_sector", self._allocate_sector)
        intercept(pool, "try_to_free_sectors", self._try_to_free_sectors)
        intercept(pool, "get_free_blocks", self._get_free_blocks)
        intercept(pool, "free_blocks", self._free_blocks)

    def units(self, group: int, blocks: Iterable[int]) -> list[int]:
        first = self._first * self._pool.blocks_per_sector[group] - 1
        return [block - first for block in blocks]

    def settle(self) -> Iterator[NamedTuple]:
        """The events of blocks that changed hands without a take or a free."""
        for group, owners in enumerate(self._groups):
            now = {unit: facts.owner for unit, facts in self._unit_facts(group).items()}
            yield from owners.settle({unit: owner for unit, owner in now.items() if owner is not None})

    def views(self) -> Iterator[PoolView]:
        holdings = list[Holding]()
        for group, name in enumerate(self.names):
            facts, free = self._unit_facts(group), self._free_units(group)
            cached = self.units(group, self._facts_of(group).cached)
            yield replace(pool_view(name, "block", facts, [*free, *cached]), free=free)
            if sectors := self._sectors_of(group):
                holdings.append(Holding(Owner(GROUP_KIND, group + 1), sectors, False))
        unassigned = [sector - self._first + 1 for sector in self._pool.free_sectors]
        yield PoolView(self._sectors.pool, "sector", self._pool.num_sectors, unassigned, (), holdings)

    def counted(self) -> dict[str, int]:
        """The free units of each pool, as the release counts them."""
        groups = {name: self._pool.count_free_blocks(group) for group, name in enumerate(self.names)}
        return {self._sectors.pool: self._pool.num_free_sectors, **groups}

    def shared_len(self, group: int, units: Sequence[int]) -> int:
        """The number of units at the begin of a table that the cache owns."""
        owner_of = self._groups[group].owner_of
        return next((index for index, unit in enumerate(units) if owner_of.get(unit) != TREE), len(units))

    def _free_units(self, group: int) -> list[int]:
        return self.units(group, [block for tree in self._pool._free_blocks[group].trees.values() for block in tree])

    def _sectors_of(self, group: int) -> list[int]:
        """The sectors with a block that is free in this group, in a table or cached."""
        size = self._pool.blocks_per_sector[group]
        facts = self._unit_facts(group)
        used = {unit for unit, unit_facts in facts.items() if unit_facts.owner not in (FREE, ABSENT)}
        return sorted({(unit - 1) // size + 1 for unit in [*used, *self._free_units(group)]})

    def _unit_facts(self, group: int) -> dict[int, UnitFacts]:
        facts, size = self._facts_of(group), self._pool.blocks_per_sector[group]
        to_unit = self.units(group, [0])[0]
        holders = {block + to_unit: owners for block, owners in facts.holders.items()}
        cached, hashed = set(self.units(group, facts.cached)), set(self.units(group, facts.hashed))
        counts = {block + to_unit: count for block, count in facts.counts.items()}
        used = {*holders, *cached, *hashed, *counts, *self._free_units(group)}
        present = {(unit - 1) // size for unit in used}
        absent = UnitFacts((ABSENT,), 1, False)
        return {
            unit: UnitFacts(
                holders.get(unit, ()),
                counts.get(unit, int(unit in holders or (unit in hashed and unit not in cached))),
                unit in hashed or unit in cached,
            )
            if (unit - 1) // size in present
            else absent
            for unit in range(1, self._pool.num_sectors * size + 1)
        }

    def _blocks_of(self, group: int, sector: int) -> list[int]:
        size = self._pool.blocks_per_sector[group]
        return list(range((sector - 1) * size + 1, sector * size + 1))

    def _allocate_sector(self, original: Callable[..., Any], group: int) -> None:
        sector = self._pool.free_sectors[-1] - self._first + 1 if self._pool.free_sectors else 0
        original(group)
        self._worker.report(self._sectors.take([sector], lambda _: Owner(GROUP_KIND, group + 1)))
        self._worker.report(
            self._groups[group].free(self._blocks_of(group, sector), lambda _: ABSENT, cause="assigned")
        )

    def _try_to_free_sectors(self, original: Callable[..., Any]) -> None:
        before = len(self._pool.free_sectors)
        original()
        for sector in [sector - self._first + 1 for sector in self._pool.free_sectors[before:]]:
            group = self._sectors.owner_of[sector].id - 1
            if group >= 0:
                self._worker.report(self._groups[group].take(self._blocks_of(group, sector), lambda _: ABSENT))
            self._worker.report(self._sectors.free([sector]))

    def _get_free_blocks(self, original: Callable[..., Any], group: int, count: int) -> Any:
        blocks = original(group, count)
        self._worker.take(self._groups[group], self.units(group, blocks), FREE)
        return blocks

    def _free_blocks(self, original: Callable[..., Any], group: int, blocks: Sequence[int]) -> None:
        original(group, blocks)
        self._worker.free(self._groups[group], self.units(group, blocks))
