"""A record's cursors and rows: what of a request's tokens it shares, has written and has room for.

0 ........ protected_len ........ committed_len ...... launched_len ... allocated_len
|the tree's, under receipt|private, KV written|private, in flight|private, room     |
                          |..windowed pages gone..|frontier

The next pass computes from launched_len on.  What those in flight read is units_in_flight_are_pinned's business.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.view import HANDOVER_KIND, REQUEST_KIND, NodeView, RecordView
from invariants.violation import Evidence
from invariants.windows import first_needed_page, goes_on_at, kept_len
from invariants.wording import node_name, unit_of


@invariant(When.OP, needs=("records",))
def cursors_are_ordered(change: Transition) -> Evidence:
    """0 <= protected_len <= committed_len <= launched_len <= allocated_len, and 0 <= frontier <= allocated_len."""
    for record in change.changes.records:
        if not 0 <= record.protected_len <= record.committed_len <= record.launched_len <= record.allocated_len:
            written = f"protected_len {record.protected_len}, committed_len {record.committed_len}"
            room = f"launched_len {record.launched_len}, allocated_len {record.allocated_len}"
            yield str(record.owner), f"{written}, {room}"
        if not 0 <= record.frontier <= record.allocated_len:
            yield str(record.owner), f"frontier {record.frontier}, allocated_len {record.allocated_len}"


@invariant(When.OP, needs=("records", "launches"))
def what_is_launched_is_in_flight(change: Transition) -> Evidence:
    """Between committed_len and launched_len lies what passes in flight compute for a record, one after the other."""
    after = change.after
    in_flight: dict[int, list[tuple[int, int]]] = {}
    for view in after.launches or ():
        for request, start, end in view.entries:
            if request not in view.given_up:
                in_flight.setdefault(request, []).append((start, end))
    for record in after.records or ():
        if record.launched_len != record.committed_len or record.owner.id in in_flight:
            entries = in_flight.get(record.owner.id, []) if record.owner.kind == REQUEST_KIND else []
            borders = [record.committed_len, *(border for entry in entries for border in entry), record.launched_len]
            if borders[::2] != borders[1::2]:
                stretches = ", ".join(f"[{start}, {end})" for start, end in entries) or "nothing"
                lengths = f"committed_len {record.committed_len}, launched_len {record.launched_len}"
                yield str(record.owner), f"{lengths}, yet {stretches} is in flight"


@invariant(When.OP, needs=("records",))
def room_ahead_is_the_lookahead(change: Transition) -> Evidence:
    """Beyond what was launched a record has room for its lookahead, in whole pages, and no more.

    Or for what is to come from another engine.
    """
    page_size, lookahead = change.after.limits.page_size, change.after.limits.lookahead_len
    for record in change.after.records or ():
        if record.allocated_len - record.launched_len > lookahead and record.owner.kind != HANDOVER_KIND:
            most = -(-(record.launched_len + lookahead) // page_size) * page_size
            if record.allocated_len > most:
                room = f"allocated_len {record.allocated_len}, launched_len {record.launched_len}"
                yield str(record.owner), f"{room}, at most {most} with a lookahead of {lookahead}"


@invariant(When.OP, needs=("records",))
def cursors_are_aligned(change: Transition) -> Evidence:
    """What splits a request's pages, protected_len and frontier, lies on a page boundary."""
    page_size = change.after.limits.page_size
    for record in change.changes.records:
        if record.protected_len % page_size:
            yield str(record.owner), f"protected_len {record.protected_len} is inside a page of {page_size}"
        if record.frontier % page_size:
            yield str(record.owner), f"frontier {record.frontier} is inside a page of {page_size}"


@invariant(When.OP, needs=("records",))
def rows_hold_the_pages_of_their_record(change: Transition) -> Evidence:
    """A row names, page by page, what its record holds, and no more than it is long."""
    page_size, most = change.after.limits.page_size, change.after.limits.max_context_len
    for record in change.changes.records:
        pages = -(-record.allocated_len // page_size)
        if record.allocated_len > most:
            yield str(record.owner), f"allocated_len {record.allocated_len}, yet row {record.row} ends at {most}"
        for component, units in zip(change.after.components, record.units, strict=True):
            if len(units) != pages:
                yield str(record.owner), f"{len(units)} {component.pool} pages for allocated_len {record.allocated_len}"
        if record.row and not _same(record.table, record.units[0]):
            index = _first_difference(record.table, record.units[0])
            named = f"names {_at(record.table, index)}, the record {_at(record.units[0], index)}"
            yield str(record.owner), f"row {record.row}, page index {index}: the row {named}"


@invariant(When.OP, needs=("records", "nodes"))
def rows_begin_with_the_tree_path(change: Transition) -> Evidence:
    """The shared part of a record is the pages of the nodes from a root to its own, and as long.

    In a component with a window only what the next token still reads is compared: below it a node may
    have died, and come back on other pages.
    """
    after, page_size = change.after, change.after.limits.page_size
    is_whole_read = any(component.window is None for component in after.components)
    for record in change.changes.records:
        path = after.path(record.node)
        end = path[0].end if path else 0
        if end != record.protected_len and (path or is_whole_read):
            below = f"{node_name(record.node)} ends at {end}" if path else "it shares no node"
            yield str(record.owner), f"protected_len {record.protected_len}, yet {below}"
        for index, (pool, window, _) in enumerate(after.components):
            first = 0 if window is None else first_needed_page(goes_on_at(record), window, page_size)
            pages = record.protected_len // page_size
            if first < pages:
                shared, own = _path_units(path, index)[first:], list(record.units[index][first:pages])
                if own != shared:
                    for place, (mine, theirs) in enumerate(zip(own, shared, strict=False), start=first):
                        if mine != theirs:
                            subject = unit_of(after.pool_by_name[pool], mine)
                            yield subject, f"in the row of {record.owner} at page index {place}, the tree has {theirs}"


@invariant(When.OP, needs=("records",))
def windowed_pages_go_with_the_frontier(change: Transition) -> Evidence:
    """A record's private pages are all there, but for the windowed ones below its frontier, which are gone."""
    page_size = change.after.limits.page_size
    for record in change.changes.records:
        first = record.protected_len // page_size
        border = max(record.frontier // page_size, first)
        for component, units in zip(change.after.components, record.units, strict=True):
            start = first if component.window is None else border
            if not all(units[start:]):
                index = list(units).index(0, start)
                yield str(record.owner), f"no {component.pool} page for {_positions(index, page_size)}"
            if component.window is not None and any(units[first:border]):
                index = next(index for index in range(first, border) if units[index])
                kept = f"{component.pool} page {units[index]} for {_positions(index, page_size)}"
                yield str(record.owner), f"still has {kept}, below its frontier {record.frontier}"


@invariant(When.STEP, needs=("records", "windowed"))
def private_windows_are_bounded(change: Transition) -> Evidence:
    """Behind what a record had computed before a step, it keeps a window, a page and the agreed slack."""
    limits, earlier = change.after.limits, change.before.record_by_request
    for component in change.after.components:
        if component.window is not None:
            most = kept_len(component.window, limits.page_size) + limits.page_size - 1 + limits.window_slack
            for record in change.after.records or ():
                if record.committed_len - max(record.frontier, record.protected_len) > most:
                    committed = _committed_before(earlier, record)
                    kept = committed - max(record.frontier, record.protected_len)
                    if kept > most:
                        frontier = f"committed_len was {committed}, frontier {record.frontier}"
                        yield str(record.owner), f"keeps {kept} tokens of {component.pool}, at most {most}: {frontier}"


@invariant(When.OP, needs=("records", "windowed"))
def frontiers_spare_the_window(change: Transition) -> Evidence:
    """A record's frontier stays behind everything that its next token still reads."""
    page_size = change.after.limits.page_size
    for record in change.changes.records:
        for component in change.after.components:
            if component.window is not None:
                most = first_needed_page(goes_on_at(record), component.window, page_size) * page_size
                if record.frontier > most:
                    yield (
                        str(record.owner),
                        f"frontier {record.frontier} where position {goes_on_at(record)} is next, at most {most}",
                    )


@invariant(When.OP, needs=("records",))
def the_last_token_keeps_its_page(change: Transition) -> Evidence:
    """The page that holds the last token launched is there in every component, for the next one joins it."""
    page_size = change.after.limits.page_size
    for record in change.changes.records:
        index = record.launched_len // page_size
        if record.launched_len % page_size:
            for component, units in zip(change.after.components, record.units, strict=True):
                if index >= len(units) or not units[index]:
                    position = record.launched_len - 1
                    yield str(record.owner), f"no {component.pool} page for its last token, at position {position}"


def _committed_before(before: Mapping[int, RecordView], record: RecordView) -> int:
    """What the record had computed when windows last slid; 0 for one that began in this step."""
    earlier = before.get(record.owner.id) if record.owner.kind == "request" else None
    return min(earlier.committed_len, record.committed_len) if earlier is not None else 0


def _path_units(path: Sequence[NodeView], component: int) -> list[int]:
    return list(chain.from_iterable([node.units[component] for node in reversed(path)]))


def _same(one: Sequence[int], other: Sequence[int]) -> bool:
    return list(one) == list(other)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _at(units: Sequence[int], index: int) -> str:
    return f"page {units[index]}" if index < len(units) else "nothing"


def _positions(index: int, page_size: int) -> str:
    return f"positions [{index * page_size}, {(index + 1) * page_size})"
