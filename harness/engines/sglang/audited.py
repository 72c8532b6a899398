"""The owners of pages for an audit, from the moves of the allocators and the growth of the records."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.sglang.moves import AllocatorMove
from swarden.harness.engines.sglang.requests import held
from swarden.harness.engines.sglang.running import LiveMemory
from swarden.harness.kit.owners import UNKNOWN
from swarden.harness.strict.owners import OwnerTable, wrongly_owned_unit
from swarden.invariants.events import TREE, Owner
from swarden.invariants.view import FREE
from swarden.invariants.violation import Violation

FULL = 0  # the first pool


@dataclass(slots=True)
class AuditedRecord:
    """The pages of a record in each pool, as they were read last; `live` is the first page in use of each pool."""

    owner: Owner
    row: int
    protected: int
    pages: tuple[list[int], ...]
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
    record: AuditedRecord


class AuditedRecords:
    """Follows the owners of pages, as far as rows and records show them at the end of an iteration.

    The allocators name no owner: the owner of a page is unknown until the page is found in a row, and a page of the
    tree is judged by the request that was the last to read it.  The cost is proportional to the moved pages, plus a
    pass over the running requests.
    """

    def __init__(self, memory: LiveMemory, tables: Mapping[str, OwnerTable]) -> None:
        self._memory, self._page = memory, memory.page
        self._pools = {component.pool: index for index, component in enumerate(memory.config.components)}
        self._tables = [tables[pool] for pool in self._pools]
        self._places: list[dict[int, PageHolder]] = [{} for _ in self._pools]
        self._known: dict[Owner, AuditedRecord] = {}
        self._freed: list[FreedPage] = []  # in this iteration
        self._found: list[Violation] = []

    def named(self, events: Iterable[NamedTuple]) -> Iterator[NamedTuple]:
        """The events, with the moves of the allocators as takes and frees by the owners that are known by then."""
        for event in events:
            if not isinstance(event, AllocatorMove):
                yield event
            elif event.taken:
                yield seen.Taken(event.pool, event.units, UNKNOWN)
            else:
                yield from self._frees(event.units, self._pools[event.pool])

    def compare(self, _moved: Collection[Owner]) -> Sequence[Violation]:
        """No page in use is free, and none has two owners."""
        holders = self._memory.holders.now()
        for owner in self._known.keys() - holders.keys():
            self._forget(self._known.pop(owner))
        self._read(holders)
        violations, self._found = [*self._found, *self._freed_in_use()], []
        return violations

    def _frees(self, units: Sequence[int], pool: int) -> list[seen.Freed]:
        table, by_owner = self._tables[pool], dict[Owner, list[int]]()
        for unit in units:
            place = self._places[pool].get(unit)
            if place is not None and place.owner in self._known:
                self._freed.append(FreedPage(pool, unit, place, self._known[place.owner]))
            owner = table.owners[unit] if 0 < unit <= table.capacity else UNKNOWN
            by_owner.setdefault(UNKNOWN if owner == FREE else owner, []).append(unit)
        return [seen.Freed(table.name, tuple(freed), owner, "freed", 0) for owner, freed in by_owner.items()]

    def _forget(self, record: AuditedRecord) -> None:
        """Give the pages that an ended request still owns to the tree."""
        for table, pages in zip(self._tables, record.pages, strict=True):
            kept = [unit for unit in pages if unit and table.owners[unit] == record.owner]
            table.move(kept, record.owner, TREE)

    def _read(self, holders: dict[Owner, Any]) -> None:
        """Read the new pages of all records at once; of a record with another prefix or row, all pages."""
        rows: list[int] = []
        firsts: list[int] = []
        spans: list[tuple[AuditedRecord, int]] = []
        page = self._page
        for owner, kv in holders.items():
            row, protected = held(kv, "req_pool_idx"), held(kv, "cache_protected_len")
            count = -(-held(kv, "kv_allocated_len") // page)
            record = self._known.get(owner)
            if record is None or (record.row, record.protected) != (row, protected) or len(record.pages[FULL]) > count:
                if record is not None:
                    self._forget(record)
                record = self._known[owner] = AuditedRecord(owner, row, protected, tuple([[] for _ in self._pools]))
            record.live = (0, max(protected, self._memory.nodes.frontier(kv)) // page)
            start = len(record.pages[FULL])
            if start < count:
                rows += [row] * (count - start)
                firsts += range(start * page, count * page, page)
                spans.append((record, count - start))
        if not spans:
            return
        memory = self._memory.built.memory
        slots = memory.rows.req_to_token[rows, firsts].long()
        of_pools = [slots] if memory.mapping is None else [slots, memory.mapping[slots]]
        units = [(one // page).tolist() for one in of_pools]
        begin = 0
        for record, count in spans:
            for pool, of_pool in enumerate(units):
                self._add(record, pool, of_pool[begin : begin + count])
            begin += count

    def _add(self, record: AuditedRecord, pool: int, units: list[int]) -> None:
        """Let a record, or the tree below its protected length, own further pages of a pool."""
        table, pages, places = self._tables[pool], record.pages[pool], self._places[pool]
        num_protected, moved = record.protected // self._page, dict[tuple[Owner, Owner], list[int]]()
        first, live = len(pages), record.live[pool]
        pages += units
        for index, unit in enumerate(units, first):
            if not unit or index < live:
                continue
            owner, before = TREE if index < num_protected else record.owner, table.owners[unit]
            places[unit] = PageHolder(record.owner, index)
            if before == FREE:
                self._found.append(wrongly_owned_unit(table, unit, [FREE, owner]))
            elif owner != TREE and before in self._known and before != owner:
                self._found.append(wrongly_owned_unit(table, unit, [before, owner]))
            else:
                moved.setdefault((before, owner), []).append(unit)
        for (before, owner), of_one in moved.items():
            table.move(of_one, before, owner)

    def _freed_in_use(self) -> list[Violation]:
        """The pages that were freed in this iteration although the record that held them still has them in use."""
        violations = []
        for pool, unit, place, record in self._freed:
            pages = record.pages[pool]
            if (
                self._known.get(place.owner) is record
                and record.live[pool] <= place.ordinal < len(pages)
                and pages[place.ordinal] == unit
            ):
                owner = TREE if place.ordinal < record.protected // self._page else record.owner
                table = self._tables[pool]
                violations.append(wrongly_owned_unit(table, unit, [table.owners[unit], owner]))
        self._freed.clear()
        return violations
