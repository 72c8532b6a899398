"""The middle level: tracks the owner of each unit from the moves of the allocators and the growth of the records."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.foreign.attached import levels
from swarden.harness.engines.sglang.attached.live import Holders, inner_tree
from swarden.harness.engines.sglang.attached.sums import Sums
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capture import nodes_of
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.moves import UNKNOWN, AllocatorMove, free_units
from swarden.harness.engines.sglang.requests import held
from swarden.harness.engines.sglang.scheduler import BuiltScheduler
from swarden.harness.strict.owners import OwnerTable, moved_without_event, wrongly_owned_unit
from swarden.invariants.events import TREE, Owner
from swarden.invariants.view import FREE
from swarden.invariants.violation import Violation

FULL, SWA = 0, 1


@dataclass(slots=True)
class AuditedRecord:
    """The pages of a record in both pools, as they were read last; `live` is the first page in use of each pool."""

    owner: Owner
    row: int
    protected: int
    pages: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    live: tuple[int, int] = (0, 0)


class PageHolder(NamedTuple):
    """The record that was the last to hold a page, and the page's ordinal in it."""

    owner: Owner
    ordinal: int


class FreedPage(NamedTuple):
    """A freed page, and the record that held it."""

    pool: int
    unit: int
    place: PageHolder
    known: AuditedRecord


class Audit(levels.Audit):
    """Checks that only free pages are taken, only pages in use are freed, and no page in use is free after a turn.

    A page of the tree is judged by the request that was the last to read it. The cost is proportional to the moved
    pages, plus a pass over the running requests.
    """

    def __init__(self, release: SglangRelease, config: SglangConfig, built: BuiltScheduler) -> None:
        super().__init__(Sums(release, config, built))
        self._built, self._page = built, config.page_size
        self._nodes, self._holders = nodes_of(release, config, inner_tree(built.memory.tree)), Holders(built)
        self._full = OwnerTable("full", "page", config.full_pages)
        self._swa = OwnerTable("swa", "page", config.swa_pages)
        self._places: tuple[dict[int, PageHolder], dict[int, PageHolder]] = ({}, {})
        self._known: dict[Owner, AuditedRecord] = {}
        self._freed: list[FreedPage] = []  # in this turn

    @property
    def _tables(self) -> Sequence[OwnerTable]:
        return self._full, self._swa

    def _protected(self, table: OwnerTable) -> int:
        tree = self._built.memory.tree
        count = tree.full_protected_size() if table is self._full else tree.swa_protected_size()
        return int(count) // self._page

    def _follow(self, event: NamedTuple) -> None:
        if not isinstance(event, AllocatorMove):
            self._note(event)
            return
        table = self._full if event.pool == self._full.name else self._swa
        if event.taken:
            self._move(seen.Taken(event.pool, event.units, UNKNOWN), table, FREE, UNKNOWN)
        else:
            self._free(event.units, table)

    def _compare(self) -> None:
        holders = self._holders.now()
        for owner in self._known.keys() - holders.keys():
            self._forget(self._known.pop(owner))
        self._read(holders)
        self._found += [*self._freed_in_use(), *self._moved_unseen()]

    def _free(self, units: Sequence[int], table: OwnerTable) -> None:
        pool = FULL if table.name == "full" else SWA
        by_owner: dict[Owner, list[int]] = {}
        for unit in units:
            place = self._places[pool].get(unit)
            if place is not None and place.owner in self._known:
                self._freed.append(FreedPage(pool, unit, place, self._known[place.owner]))
            owner = table.owners[unit] if 0 < unit <= table.capacity else UNKNOWN
            by_owner.setdefault(UNKNOWN if owner == FREE else owner, []).append(unit)
        for owner, freed_units in by_owner.items():
            self._move(seen.Freed(table.name, tuple(freed_units), owner, "freed", 0), table, owner, FREE)

    def _forget(self, known: AuditedRecord) -> None:
        """The tree owns the pages that a request has left behind."""
        for table, pages in zip(self._tables, known.pages, strict=True):
            kept = [unit for unit in pages if unit and table.owners[unit] == known.owner]
            table.move(kept, known.owner, TREE)

    def _read(self, holders: dict[Owner, Any]) -> None:
        """Read the new pages of all records at once; of a record with another prefix or row, all pages."""
        rows: list[int] = []
        firsts: list[int] = []
        spans: list[tuple[AuditedRecord, int]] = []
        page = self._page
        for owner, kv in holders.items():
            row, protected = held(kv, "req_pool_idx"), held(kv, "cache_protected_len")
            num_pages = -(-held(kv, "kv_allocated_len") // page)
            known = self._known.get(owner)
            if known is None or (known.row, known.protected) != (row, protected) or len(known.pages[FULL]) > num_pages:
                if known is not None:
                    self._forget(known)
                known = self._known[owner] = AuditedRecord(owner, row, protected)
            known.live = (0, max(protected, self._nodes.frontier(kv)) // page)
            start = len(known.pages[FULL])
            if start < num_pages:
                rows += [row] * (num_pages - start)
                firsts += range(start * page, num_pages * page, page)
                spans.append((known, num_pages - start))
        if not spans:
            return
        slots = self._built.memory.rows.req_to_token[rows, firsts].long()
        windowed = self._built.memory.allocator.full_to_swa_index_mapping[slots]
        units = ((slots // page).tolist(), (windowed // page).tolist())
        begin = 0
        for known, count in spans:
            for pool in (FULL, SWA):
                self._add(known, pool, units[pool][begin : begin + count])
            begin += count

    def _add(self, known: AuditedRecord, pool: int, units: list[int]) -> None:
        """Let a record, or the tree below its protected length, own further pages of a pool."""
        table, pages, places = self._tables[pool], known.pages[pool], self._places[pool]
        num_protected = known.protected // self._page
        for unit in units:
            index = len(pages)
            pages.append(unit)
            if not unit or index < known.live[pool]:
                continue
            owner, before = TREE if index < num_protected else known.owner, table.owners[unit]
            places[unit] = PageHolder(known.owner, index)
            if before == FREE:
                self._found.append(wrongly_owned_unit(table, unit, [FREE, owner]))
            elif owner != TREE and before in self._known and before != owner:
                self._found.append(wrongly_owned_unit(table, unit, [before, owner]))
            else:
                table.move([unit], before, owner)

    def _freed_in_use(self) -> list[Violation]:
        """The pages that were freed in this turn although the record that held them still has them in use."""
        found = []
        for pool, unit, place, known in self._freed:
            pages = known.pages[pool]
            if (
                self._known.get(place.owner) is known
                and known.live[pool] <= place.ordinal < len(pages)
                and pages[place.ordinal] == unit
            ):
                owner = TREE if place.ordinal < known.protected // self._page else known.owner
                table = self._tables[pool]
                found.append(wrongly_owned_unit(table, unit, [table.owners[unit], owner]))
        self._freed.clear()
        return found

    def _moved_unseen(self) -> list[Violation]:
        """Units that entered or left a free list without a move."""
        allocator = self._built.memory.allocator
        found: list[Violation] = []
        for table, pool in zip(
            self._tables, (allocator.full_attn_allocator, allocator.swa_attn_allocator), strict=True
        ):
            if pool.available_size() // self._page != table.num_free:
                found += moved_without_event(table, free_units(pool))
        return found
