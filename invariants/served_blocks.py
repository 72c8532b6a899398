"""The prefixes that an engine has served which finds blocks by hashes: by request, from its passes and its blocks."""

from collections.abc import Mapping
from itertools import chain, compress, count, repeat
from math import lcm
from operator import ne

from swarden.invariants.events import REQUEST_KIND, TREE, Admitted, Freed, Given, Retracted, Written
from swarden.invariants.limits import Ends
from swarden.invariants.reference import Computed
from swarden.invariants.transition import Transition
from swarden.invariants.windows import first_needed_page

SEEN = (Admitted, Written, Freed, Given, Retracted)
Lost = Mapping[tuple[str, int], int]


def note_blocks(change: Transition) -> None:
    """Add the blocks of the requests to the past, and the prompts that passes have completed.

    A request that was put back begins anew: it may have had blocks that were never filled, of a load that failed.
    """
    past, components, lost = change.reference.past, change.after.components, change.once(_lost)
    for gone in past.places.keys() & lost.keys():
        for computed, at in past.places.pop(gone):
            computed.seen = ()
            if computed.blocks[at] == gone[1]:
                computed.blocks[at] = 0
    for place, event in enumerate(change.in_order(*SEEN)):
        if isinstance(event, Admitted):
            past.computed[event.request_id] = Computed(event.start, places=past.places)
            past.served.pop(event.request_id, None)
        elif isinstance(event, Retracted):
            past.computed.pop(event.request_id, None)
            past.served.pop(event.request_id, None)
        elif isinstance(event, Written) and event.request_id in past.computed:
            last = (event.end - 1) // components[event.component].page_size
            if components[event.component].has_states and len(event.pages) > 1:
                continue  # a state for each draft, in no page of its own yet
            for index, unit in enumerate(event.pages, start=last + 1 - len(event.pages)):
                left = 0 if lost.get((event.pool, unit), -1) > place else unit
                past.computed[event.request_id].put(event.pool, (event.component, index), left)
    for record in change.changes.records:
        if record.owner.kind == REQUEST_KIND and record.owner.id in past.computed:
            computed = past.computed[record.owner.id]
            for component, (units, seen) in enumerate(zip(record.units, computed.seen or repeat(()), strict=False)):
                for index in compress(count(), map(ne, units, chain(seen, repeat(0)))):
                    at, unit = (component, index), units[index]
                    if unit and computed.blocks.get(at) != unit:
                        computed.put(components[component].pool, at, unit)
            computed.seen = [*map(list, record.units)]
    for landing in change.landings:
        request, begun = change.before.request_by_id.get(landing.request_id), past.computed.get(landing.request_id)
        # of a resumed request no pass needs to end in its prompt
        if begun is None or request is None or request.session or request.num_outputs or request.id in past.served:
            continue
        if landing.counts and landing.end >= request.prompt_len:
            past.served[request.id] = [*_ends(change, begun.start, request.prompt_len)]


def _lost(change: Transition) -> Lost:
    """The blocks that the cache has lost in this transition, each with the place of the event."""
    places: dict[tuple[str, int], int] = {}
    for place, event in enumerate(change.in_order(*SEEN)):
        if isinstance(event, (Freed, Given)):
            owner = event.owner if isinstance(event, Freed) else event.from_owner
            if owner == TREE:
                places.update(dict.fromkeys([(event.pool, unit) for unit in event.units], place))
    return places


def _ends(change: Transition, start: int, prompt_len: int) -> range:
    """The ends of the prefixes of a computed prompt behind which an equal one can begin."""
    replays, whole = change.after.limits.replays, lcm(*change.after.page_sizes)
    assert replays is not None, "limits.replays is needed"
    last = (prompt_len - 1) // whole * whole - replays.drop_len
    first = max(start, 1, last if replays.ends == Ends.PROMPT else 0)
    return range(-(-first // whole) * whole, last + 1, whole)


def is_whole(change: Transition, request_id: int, end: int) -> bool:
    """Has the cache lost no block of a request that an equal one needs to begin behind `end`?

    Blocks that never were are not lost.  Of blocks before the first pass that are not known, it is not known either
    whether they are lost.
    """
    known, replays, lost = change.reference.past.computed[request_id], change.after.limits.replays, change.once(_lost)
    assert replays is not None, "limits.replays is needed"
    for index, component in enumerate(change.after.components):
        size, window = component.page_size, component.window
        first = 0 if window is None else first_needed_page(end, window, size)
        for page in range(first, (end if component.has_states else end + replays.peek_len) // size):
            unit = known.blocks.get((index, page), 0 if page < known.start // size else None)
            if unit == 0 or (component.pool, unit) in lost:
                return False
    return True
