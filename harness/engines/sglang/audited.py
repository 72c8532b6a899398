"""The owners of pages for an audit, from the moves of the allocators and the growth of the records."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.sglang.moves import AllocatorMove
from swarden.harness.engines.sglang.running import LiveMemory, LiveRecord
from swarden.harness.kit.owners import UNKNOWN
from swarden.harness.strict.owners import PADDING, OwnerTable, wrongly_owned_unit
from swarden.invariants.events import TREE, Owner
from swarden.invariants.view import FREE
from swarden.invariants.violation import Violation

FULL = 0  # the first pool


@dataclass(slots=True)
class AuditedRecord:
    """The pages of a record in each pool, as they were read last.

    The first `protected` ones are shared with the tree; `live` is the first page in use of each pool.
    """

    owner: Owner
    row: int
    protected: int
    pages: tuple[list[int], ...]
    live: tuple[int, int] = (0, 0)


class FreedPage(NamedTuple):
    """A freed page, the record that held it, and the page's ordinal in it."""

    pool: int
    unit: int
    ordinal: int
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
        # By page, the record that was the last to hold it, and the page's ordinal in it.
        self._places: list[dict[int, tuple[Owner, int]]] = [{} for _ in self._pools]
        self._records: dict[Owner, AuditedRecord] = {}
        self._freed: list[FreedPage] = []  # in this iteration
        self._violations: list[Violation] = []

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
        self._memory.latest = holders = self._memory.records()
        for owner in self._records.keys() - holders.keys():
            self._forget(self._records.pop(owner))
        self._read(holders)
        violations, self._violations = [*self._violations, *self._freed_in_use()], []
        return violations

    def _frees(self, units: Sequence[int], pool: int) -> list[seen.Freed]:
        table, by_owner = self._tables[pool], dict[Owner, list[int]]()
        for unit in units:
            holder, ordinal = self._places[pool].get(unit, (UNKNOWN, 0))
            if unit and holder in self._records:
                self._freed.append(FreedPage(pool, unit, ordinal, self._records[holder]))
            owner = table.owners[unit] if 0 < unit <= table.capacity else UNKNOWN
            by_owner.setdefault(UNKNOWN if owner == FREE else owner, []).append(unit)
        return [seen.Freed(table.name, tuple(freed), owner, "freed", 0) for owner, freed in by_owner.items()]

    def _forget(self, record: AuditedRecord) -> None:
        """Give the pages that an ended request still owns to the tree."""
        for table, pages in zip(self._tables, record.pages, strict=True):
            kept = [unit for unit in pages if unit and table.owners[unit] == record.owner]
            table.move(kept, record.owner, TREE)

    def _read(self, holders: Mapping[Owner, LiveRecord]) -> None:
        """Read the new pages of all records at once; of a record with another prefix or row, all pages."""
        memory, table = self._memory.built.memory, self._memory.built.memory.rows.req_to_token
        firsts, page = list[int](), self._page  # indices of the flattened table
        spans: list[tuple[AuditedRecord, int]] = []
        for owner, (row, num_pages, protected, frontier) in holders.items():
            record = self._records.get(owner)
            is_same = record is not None and (record.row, record.protected) == (row, protected)
            if record is None or not is_same or len(record.pages[FULL]) > num_pages:
                if record is not None:
                    self._forget(record)
                record = self._records[owner] = AuditedRecord(owner, row, protected, tuple([[] for _ in self._pools]))
            record.live = (0, frontier)
            start = len(record.pages[FULL])
            if start < num_pages:
                begin = row * table.shape[1]
                firsts += range(begin + start * page, begin + num_pages * page, page)
                spans.append((record, num_pages - start))
        if not spans:
            return
        slots = table.take(table.new_tensor(firsts, dtype=self._memory.int64)).long()
        of_pools = [slots] if memory.mapping is None else [slots, memory.mapping[slots]]
        units = [(of_pool // page).tolist() for of_pool in of_pools]
        begin = 0
        for record, num_new in spans:
            for pool, of_pool in enumerate(units):
                self._add(record, pool, of_pool[begin : begin + num_new])
            begin += num_new

    def _add(self, record: AuditedRecord, pool: int, units: list[int]) -> None:
        """Let a record, or the tree below its protected length, own further pages of a pool."""
        table, pages = self._tables[pool], record.pages[pool]
        first, live = len(pages), record.live[pool]
        pages += units
        begin, border = max(first, live), max(first, live, record.protected)
        self._places[pool].update(zip(pages[begin:], zip(repeat(record.owner), count(begin)), strict=False))
        for owner, of_owner in ((TREE, pages[begin:border]), (record.owner, pages[border:])):
            by_owner = defaultdict[Owner, list[int]](list)
            for unit, before in zip(of_owner, map(table.owners.__getitem__, of_owner), strict=True):
                by_owner[before].append(unit)
            for before, moved in by_owner.items():
                if before == FREE or (owner != TREE and before in self._records and before != owner):
                    self._violations += [wrongly_owned_unit(table, unit, [before, owner]) for unit in moved]
                elif before != PADDING:  # that of a windowed page that was freed, or never there
                    table.move(moved, before, owner)

    def _freed_in_use(self) -> list[Violation]:
        """The pages that were freed in this iteration although the record that held them still has them in use."""
        violations = []
        for pool, unit, ordinal, record in self._freed:
            pages = record.pages[pool]
            is_held = self._records.get(record.owner) is record
            if is_held and record.live[pool] <= ordinal < len(pages) and pages[ordinal] == unit:
                owner = TREE if ordinal < record.protected else record.owner
                table = self._tables[pool]
                violations.append(wrongly_owned_unit(table, unit, [table.owners[unit], owner]))
        self._freed.clear()
        return violations
