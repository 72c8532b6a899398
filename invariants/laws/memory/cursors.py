"""A record's cursors: how much of a request's tokens is shared with the tree, written, in flight and allocated.

0 ........ protected_len ........ committed_len ...... launched_len ... allocated_len
|the tree's, under receipt|private, KV written|private, in flight|private, empty    |
                          |.windowed pages freed..|frontier

The next pass computes from launched_len on.  Other laws check the reads of passes in flight.

On a server: KV is read that was not computed, or pages are freed that the next token reads: a wrong answer, silently.
"""

from swarden.invariants.events import REQUEST_KIND
from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Code, Evidence, found, owner_ref
from swarden.invariants.windows import first_needed_page, next_position


class CursorCode(Code):
    OUT_OF_ORDER = (
        "protected_len {protected_len}, committed_len {committed_len}, "
        "launched_len {launched_len}, allocated_len {allocated_len}"
    )
    FRONTIER_OUT_OF_RANGE = "frontier {frontier}, allocated_len {allocated_len}"
    IN_FLIGHT_DIFFERS = (
        "committed_len {committed_len}, launched_len {launched_len}, "
        "but the positions in flight (start, end) are {in_flight}"
    )
    SHARES_PART_OF_A_PAGE = "protected_len {protected_len} is inside a {component} page of {page_size}"
    FRONTIER_INSIDE_A_PAGE = "frontier {frontier} is inside a {component} page of {page_size}"
    FRONTIER_IN_WINDOW = "frontier {frontier}, but position {position} reads {component} from {most} on"


@state_invariant(needs=("records",), reads=("records",))
def cursors_are_ordered(change: Transition) -> Evidence:
    """0 <= protected_len <= committed_len <= launched_len <= allocated_len, and 0 <= frontier <= allocated_len."""
    for record in change.changes.records:
        if not 0 <= record.protected_len <= record.committed_len <= record.launched_len <= record.allocated_len:
            yield found(
                owner_ref(record.owner),
                CursorCode.OUT_OF_ORDER,
                protected_len=record.protected_len,
                committed_len=record.committed_len,
                launched_len=record.launched_len,
                allocated_len=record.allocated_len,
            )
        for frontier in sorted({place for place in record.frontiers if not 0 <= place <= record.allocated_len}):
            lens = {"frontier": frontier, "allocated_len": record.allocated_len}
            yield found(owner_ref(record.owner), CursorCode.FRONTIER_OUT_OF_RANGE, **lens)


@state_invariant(needs=("records", "launches"), reads=("records", "launches"))
def launched_tokens_are_in_flight(change: Transition) -> Evidence:
    """Passes in flight compute exactly the tokens between committed_len and launched_len, without gap or overlap."""
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
                values = {"committed_len": record.committed_len, "launched_len": record.launched_len}
                yield found(owner_ref(record.owner), CursorCode.IN_FLIGHT_DIFFERS, **values, in_flight=tuple(entries))


@state_invariant(needs=("records",), reads=("records",))
def cursors_are_page_aligned(change: Transition) -> Evidence:
    """A record shares whole pages and frees whole pages: protected_len and frontier are page boundaries.

    A ring shares and frees no page.
    """
    after = change.after
    for record in change.changes.records:
        for index, (component, page_size) in enumerate(zip(after.components, after.page_sizes, strict=True)):
            frontier = record.frontiers[index]
            if record.protected_len % page_size and not component.is_ring:
                values = {"component": component.pool, "protected_len": record.protected_len, "page_size": page_size}
                yield found(owner_ref(record.owner), CursorCode.SHARES_PART_OF_A_PAGE, **values)
            if component.window is not None and frontier % page_size:
                values = {"component": component.pool, "frontier": frontier, "page_size": page_size}
                yield found(owner_ref(record.owner), CursorCode.FRONTIER_INSIDE_A_PAGE, **values)


@state_invariant(needs=("records", "windowed"), reads=("records",))
def frontiers_spare_the_window(change: Transition) -> Evidence:
    """A record's frontier is at most the start of the first page that its next token reads."""
    after = change.after
    for record in change.changes.records:
        for index, (component, page_size) in enumerate(zip(after.components, after.page_sizes, strict=True)):
            frontier = record.frontiers[index]
            if component.window is not None:
                following = next_position(record)
                most = first_needed_page(following, component.window, page_size) * page_size
                if frontier > most:
                    values = {"component": component.pool, "frontier": frontier, "position": following, "most": most}
                    yield found(owner_ref(record.owner), CursorCode.FRONTIER_IN_WINDOW, **values)
