"""The pages of a record: its row of the request table, the pages shared with the tree, and the private ones.

On a server: Attention reads pages of another request, or pages that are free: a wrong answer, silently.
"""

from collections.abc import Sequence
from itertools import chain, count, repeat
from typing import NamedTuple

from swarden.invariants.events import Owner
from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import PoolView
from swarden.invariants.violation import Code, Evidence, found, node_ref, owner_ref, unit_ref
from swarden.invariants.windows import first_needed_page, next_position


class TableCode(Code):
    BEYOND_THE_ROW = "allocated_len {allocated_len}, but a row has only pages for {max_context_len} tokens"
    WRONG_PAGE_COUNT = "has {pages} {component} pages for allocated_len {allocated_len}"
    STALE_ROW = "row {row} names page {named} at page index {index}, the record has page {held}"
    SHARES_NO_NODE = "protected_len {protected_len}, but it shares no node"
    SHARES_ANOTHER_LENGTH = "protected_len {protected_len}, but {node} ends at {end}"
    NOT_ON_THE_PATH = "at page index {index} of {record}, but the tree has page {cached} there"
    PAGE_MISSING = "no {component} page for positions [{start}, {end})"
    KEPT_BELOW_FRONTIER = "still has {unit} for position {start}, below its frontier {frontier}"
    LAST_PAGE_MISSING = "no {component} page for its last token, at position {position}"
    IN_TWO_COMPONENTS = "in the tables of {records}, in components {components}, at page indices {indices}"
    IN_TWO_PLACES = "in the tables of {records}, at page indices {indices}"
    PRIVATE_OF_TWO = "in the tables of {records}, shared by neither"


class Column(NamedTuple):
    """The pages of one component in the table of a record, from index `first` on."""

    record: Owner
    component: int
    num_shared: int  # other tables may have the pages below this index, too
    first: int
    units: Sequence[int]


@state_invariant(needs=("records",), reads=("records",))
def rows_match_their_records(change: Transition) -> Evidence:
    """A record has an entry per page in each component, and its row lists those of the first one, in order.

    allocated_len is at most max_context_len plus the entries of a row for drafts, rounded up to whole pages.
    """
    after = change.after
    longest = after.limits.max_context_len + after.limits.draft_row_len
    for record in change.changes.records:
        allocated_len = record.allocated_len
        if after.page_sizes and allocated_len > -(-longest // after.page_sizes[0]) * after.page_sizes[0]:
            lens = {"allocated_len": allocated_len, "max_context_len": longest}
            yield found(owner_ref(record.owner), TableCode.BEYOND_THE_ROW, **lens)
        for component, units, size in zip(after.components, record.units, after.page_sizes, strict=True):
            if len(units) != -(-component.slot_len(allocated_len) // size):
                counts = {"component": component.pool, "pages": len(units), "allocated_len": allocated_len}
                yield found(owner_ref(record.owner), TableCode.WRONG_PAGE_COUNT, **counts)
        if record.row and list(record.table) != list(record.units[0]):
            index = _first_difference(record.table, record.units[0])
            named, held = _at(record.table, index), _at(record.units[0], index)
            entry = {"index": index, "named": named, "held": held}
            yield found(owner_ref(record.owner), TableCode.STALE_ROW, row=record.row, **entry)


@state_invariant(needs=("records", "nodes"), reads=("records", "nodes"))
def shared_pages_match_tree_path(change: Transition) -> Evidence:
    """The shared part of a record is as long as the path from a root to its node, and on the pages of these nodes.

    In a windowed component only the pages that the next token reads are compared: earlier nodes may have been evicted,
    and cached again on other pages.  If all components have a window, even the record's node may have been evicted.
    """
    after = change.after
    is_whole_read = any(component.window is None for component in after.components)
    for record in change.changes.records:
        path = after.path(record.node)
        end = path[0].end if path else 0
        if end != record.protected_len and (path or is_whole_read):
            code = TableCode.SHARES_ANOTHER_LENGTH if path else TableCode.SHARES_NO_NODE
            values = {"protected_len": record.protected_len, "node": node_ref(record.node), "end": end}
            yield found(owner_ref(record.owner), code, **values)
        for index, page_size in enumerate(after.page_sizes):
            window = after.components[index].window
            first = 0 if window is None else first_needed_page(next_position(record), window, page_size)
            pages = record.protected_len // page_size
            if first < pages:
                cached_pages = chain.from_iterable([node.units[index] for node in reversed(path)])
                shared, own = list(cached_pages)[first:], list(record.units[index][first:pages])
                if own != shared:
                    pool = after.pool(after.components[index].pool)
                    for place, (mine, cached) in enumerate(zip(own, shared, strict=False), start=first):
                        if mine != cached:
                            record_ref, unit = owner_ref(record.owner), unit_ref(pool, mine)
                            yield found(unit, TableCode.NOT_ON_THE_PATH, record=record_ref, index=place, cached=cached)


@state_invariant(needs=("records",), reads=("records",))
def private_pages_match_frontier(change: Transition) -> Evidence:
    """A record has all private pages, except that it has none below its frontier.

    A component of states may lack any page; a ring has all pages, because it shares and frees none.
    """
    after = change.after
    columns = [(index, component) for index, component in enumerate(after.components) if not component.has_states]
    for record in change.changes.records:
        for index, component in columns:
            pool = component.pool
            units, size, frontier = record.units[index], after.page_sizes[index], record.frontiers[index]
            first = 0 if component.is_ring else record.protected_len // size
            start = max(frontier // size, first)
            if not all(units[start:]):
                place = list(units).index(0, start)
                pages = {"component": pool, "start": place * size, "end": (place + 1) * size}
                yield found(owner_ref(record.owner), TableCode.PAGE_MISSING, **pages)
            if start > first and any(units[first:start]):
                place = next(place for place in range(first, start) if units[place])
                kept = {"unit": unit_ref(after.pool(pool), units[place]), "start": place * size}
                yield found(owner_ref(record.owner), TableCode.KEPT_BELOW_FRONTIER, **kept, frontier=frontier)


@state_invariant(needs=("records",), reads=("records",))
def last_token_keeps_its_page(change: Transition) -> Evidence:
    """In every component a record has the page of its last launched token, if the next token goes to that page, too.

    A component of states may lack any page.
    """
    after = change.after
    for record in change.changes.records:
        for component, units in zip(after.components, record.units, strict=True):
            index, position = component.page_index(record.launched_len), record.launched_len - 1
            if position < 0 or component.has_states or component.page_index(position) != index:
                continue
            if index >= len(units) or not units[index]:
                values = {"component": component.pool, "position": position}
                yield found(owner_ref(record.owner), TableCode.LAST_PAGE_MISSING, **values)


@state_invariant(needs=("records",), reads=("records",))
def unit_stands_in_one_table_place(change: Transition) -> Evidence:
    """A unit is in one component only, at one page index, and in the private part of one record at most.

    If two groups of layers, or two page indices, use the same block, it holds the KV of only one of them.
    Shared pages before the window are not checked: they may have been evicted and cached again in another place.
    If pages are shared before they are computed, the pages of the tree are not private, wherever they are.
    """
    after = change.after
    columns: dict[str, list[Column]] = {component.pool: [] for component in after.components}
    for record in (after.records or ()) if change.changes.records else ():
        for index, component in enumerate(after.components):
            units, size = record.units[index], after.page_sizes[index]
            needed, shared = 0, 0 if component.is_ring else record.protected_len // size
            if component.window is not None and shared:
                needed = min(first_needed_page(next_position(record), component.window, size), shared)
            columns[component.pool].append(Column(record.owner, index, shared, needed, units[needed:]))
    for pool, of_pool in columns.items():
        of_tree = frozenset(after.pool(pool).cached if after.limits.shares_uncomputed else ())
        if not _are_apart(of_pool, of_tree):
            yield from _collisions(after.pool(pool), of_pool, of_tree)


def _are_apart(columns: Sequence[Column], of_tree: frozenset[int]) -> bool:
    """Has each unit one component, one page index, and one private column at most, which is not `of_tree`?"""
    borders = [max(0, column.num_shared - column.first) for column in columns]
    split = [(column.units[:border], column.units[border:]) for column, border in zip(columns, borders, strict=True)]
    parts, private = [shared for shared, _ in split], [*filter(None, chain.from_iterable([own for _, own in split]))]
    units = set(chain.from_iterable(parts))
    if of_tree or not units.isdisjoint(private):  # else the only places of a private unit are in `private`
        parts, private = [column.units for column in columns], [unit for unit in private if unit not in of_tree]
        units = set(chain.from_iterable(parts))
    firsts = zip(columns, parts, strict=True)
    places = set(chain.from_iterable([zip(repeat(one.component), part, count(one.first)) for one, part in firsts]))
    if 0 in units:
        units.remove(0)
        places = {place for place in places if place[1]}
    return len(places) == len(units) and len(private) == len(set(private))


def _collisions(pool: PoolView, columns: Sequence[Column], of_tree: frozenset[int]) -> Evidence:
    named: dict[int, tuple[Column, int]] = {}
    for column in columns:
        for index, unit in enumerate(column.units, start=column.first):
            if unit not in named:
                named[unit] = column, index
            elif unit and (code := _collision(named[unit], (column, index), is_cached=unit in of_tree)):
                other, place = named[unit]
                values = {"records": (other.record, column.record), "components": (other.component, column.component)}
                yield found(unit_ref(pool, unit), code, **values, indices=(place, index))


def _collision(one: tuple[Column, int], other: tuple[Column, int], *, is_cached: bool) -> TableCode | None:
    """The violation if one unit is in these two places; None if it may be in both, as a shared page."""
    if one[0].component != other[0].component:
        return TableCode.IN_TWO_COMPONENTS
    if one[1] != other[1]:
        return TableCode.IN_TWO_PLACES
    is_shared = any(index < column.num_shared for column, index in (one, other))
    return None if is_shared or is_cached else TableCode.PRIVATE_OF_TWO


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _at(units: Sequence[int], index: int) -> int | None:
    return units[index] if index < len(units) else None
