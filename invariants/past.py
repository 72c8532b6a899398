"""What the transitions of a run have shown, for laws that need more than one step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Ends
from swarden.invariants.passes import Landing
from swarden.invariants.prefixes import cached_pages
from swarden.invariants.reference import Expectation, SessionUse
from swarden.invariants.served_blocks import note_blocks
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import ComponentView, NodeView

BY_ITSELF = (seen.FinishReason.STOP, seen.FinishReason.LENGTH)
MOST_SERVED = 32  # requests, the latest: a law that looks for prefixes compares each
Served = Mapping[int, list[int]]


def note(change: Transition) -> None:
    """Add a transition, in which each law held, to the past of the reference."""
    _note_sessions(change)
    _note_waiting(change)
    if change.after.limits.evicts_longest_idle:
        _note_idle(change)
    if change.after.limits.replays is not None:
        (note_blocks if change.after.nodes is None else _note_prefixes)(change)
    past = change.reference.past
    for request_id in [*past.served][:-MOST_SERVED]:
        del past.served[request_id]
    for request_id in [one for one in [*past.computed][:-MOST_SERVED] if one not in past.served]:
        del past.computed[request_id]


def _note_sessions(change: Transition) -> None:
    past = change.reference.past
    past.steps_ms += change.after.limits.ms_per_step if change.when == When.STEP else 0
    now_ms = change.reference.now_ms + past.steps_ms
    timeout = change.after.limits.session_timeout  # a rejected turn counts, too (sglang 0.5.23, Session.create_req)
    may_be_active = timeout is not None and timeout.from_begin and bool(change.events_of(seen.Rejected))
    for session in (*(change.before.sessions or ()), *(change.after.sessions or ())):
        known = past.sessions.get(session.id)
        if known is None or session.turn not in (0, known.turn):
            past.sessions[session.id] = SessionUse(session.turn, now_ms, now_ms)
        elif session.turn or may_be_active:
            past.sessions[session.id] = known._replace(ended_ms=now_ms)


def moved_units(change: Transition) -> set[tuple[str, int]]:
    """The units that were taken, given or freed."""
    moves: list[seen.Taken | seen.Given | seen.Freed] = [
        *change.events_of(seen.Taken),
        *change.events_of(seen.Given),
        *change.events_of(seen.Freed),
    ]
    return {(event.pool, unit) for event in moves for unit in event.units}


def idle_units(change: Transition) -> set[tuple[str, int]]:
    """The cached units of the device that have no reader after the transition."""
    names = {component.pool for component in change.after.components}
    pools = [pool for pool in change.after.pools if pool.name in names]
    idle = [(pool.name, one.units) for pool in pools for one in pool.holdings if one.cached and not one.locks]
    return {(name, unit) for name, units in idle for unit in units}


def unseen_readers(change: Transition) -> bool:
    """Was a request with a hit admitted and let go within the transition?  What it has read is in neither state."""
    return any(event.start and event.request_id in change.released for event in change.events_of(seen.Admitted))


def _note_idle(change: Transition) -> None:
    past, idle, moved = change.reference.past, change.once(idle_units), change.once(moved_units)
    past.moment += 1
    still = () if unseen_readers(change) else idle - moved - {*_units_below_splits(change)}
    for unit in set(past.idle).difference(still):
        del past.idle[unit]
    past.idle |= dict.fromkeys(idle.difference(past.idle), past.moment)
    if change.after.nodes is not None:
        oldest = min(past.idle.values(), default=0)
        past.used = {unit: since for unit, since in past.used.items() if unit not in moved}
        past.used |= dict.fromkeys(_used_units(change), past.moment)
        past.asked = {one: last for one, last in past.asked.items() if last >= oldest}
        there = (*(change.before.requests or ()), *(change.after.requests or ()))
        past.asked |= dict.fromkeys([request.id for request in there], past.moment)


def units_of(node: NodeView, components: Sequence[ComponentView]) -> list[tuple[str, int]]:
    """The units of a node in all pools."""
    return [(one.pool, unit) for one, units in zip(components, node.units, strict=True) for unit in units]


def _units_below_splits(change: Transition) -> Iterator[tuple[str, int]]:
    """The units of the lower parts of nodes that were split.

    SGLang counts a split as a use of the lower part (0.5.23, unified_tree_core.py:1524), which no request has read.
    """
    for node in change.changes.nodes:
        was = change.before.node_by_id.get(node.id)
        if was is not None and was.start != node.start:
            yield from units_of(node, change.after.components)


def _used_units(change: Transition) -> Iterator[tuple[str, int]]:
    """The units that were inserted into the tree, and those with which the first pass of a waiting request begins."""
    for event in change.events_of(seen.Given):
        if event.to_owner.kind == seen.TREE_KIND:
            yield from ((event.pool, unit) for unit in event.units)
    waiting = {one.id: one.namespace for one in change.before.requests or () if one.place == Place.WAITING}
    entries = [entry for event in change.events_of(seen.Launched) for entry in event.entries]
    for request_id, start, _ in [entry for entry in entries if entry[0] in waiting and entry[1]]:
        tokens = change.reference.tokens_of(request_id)[:start]
        for node, place in cached_pages(change.after, waiting[request_id], tokens):
            columns = zip(change.after.components, node.units, strict=True)
            yield from ((one.pool, units[place]) for one, units in columns)


def overtaken(change: Transition) -> Mapping[int, int]:
    """The requests that still wait while a later one has begun, of no higher priority: by request the last of these."""
    begun = {entry[0] for event in change.events_of(seen.Launched) for entry in event.entries}
    waiting, before = list(change.reference.past.waiting) if begun else [], change.before.request_by_id
    latest = dict[int, int]()
    for place, request_id in enumerate(waiting):
        if request_id not in begun:
            behind = [one for one in waiting[place + 1 :] if one in begun and one > request_id]
            rivals = [one for one in behind if before[one].priority <= before[request_id].priority]
            latest |= {request_id: rivals[-1]} if rivals else {}
    return latest


def _note_waiting(change: Transition) -> None:
    """Keep the waiting requests in the order in which they were queued."""
    waiting, passed_over = change.reference.past.waiting, change.once(overtaken)
    still = [one.id for one in change.after.requests or () if one.place == Place.WAITING]
    for gone in waiting.keys() - still:
        del waiting[gone]
    for request_id in still:
        waiting[request_id] = waiting.get(request_id, 0) + (request_id in passed_over)


def _note_prefixes(change: Transition) -> None:
    """What was computed in a step with an eviction may have been evicted, so it is not noted."""
    past, served = change.reference.past, change.once(still_served)
    if served is not past.served:
        past.served = dict(served)
        return
    for landing in change.landings:
        expected = change.reference.expectations.get(landing.request_id)
        if landing.counts and expected is not None and _is_cached(change, landing.request_id, expected):
            past.served.setdefault(landing.request_id, []).extend(_computed_lengths(change, landing, expected))
    for event in change.events_of(seen.Finished):
        expected = change.reference.expectations.get(event.request_id)
        if event.reason in BY_ITSELF and expected is not None and _is_cached(change, event.request_id, expected):
            page_size = change.after.limits.page_size
            whole = (len(expected.tokens) - 1) // page_size * page_size  # its last output is not computed
            lengths = past.served.setdefault(event.request_id, [])
            if whole > max(lengths, default=0):  # a request without outputs has computed its whole prompt
                lengths.append(whole)


class Loss(NamedTuple):
    """Positions [start, end) of a node that the tree has lost in a component with this window (None: the prefix)."""

    node: NodeView
    start: int
    end: int
    window: int | None


def still_served(change: Transition) -> Served:
    """The served prefixes of the past that were not evicted in this transition either; the same object if none was.

    A prefix is evicted if the tree has lost a page on its path, or one in its window.  No engine promises to keep what
    was computed for a request that was aborted or put back: its last chunk may not have been cached yet.
    """
    past, losses, page_size = change.reference.past, _losses(change), change.before.limits.page_size
    if losses is None:
        return {}
    released = change.in_order(*seen.RECORD_RELEASES)
    left_out = {event.request_id for event in released if getattr(event, "reason", None) not in BY_ITSELF}  # type: ignore[attr-defined]  # all have one
    if not losses and left_out.isdisjoint(past.served):
        return past.served
    served = {request_id: lengths for request_id, lengths in past.served.items() if request_id not in left_out}
    for node, start, end, window in losses:
        page, head = slice(node.start, node.start + page_size), list(node.key[:page_size])
        for request_id, lengths in served.items():
            if lengths and lengths[-1] > start and list(change.reference.tokens_of(request_id)[page]) == head:
                least = lengths[-1] + 1 if window is None else end + window
                served[request_id] = [length for length in lengths if length <= start or length >= least]
    return served


def _losses(change: Transition) -> list[Loss] | None:
    """What was evicted, by the events of evictions, or else by the pages that the tree has lost; None: all."""
    before, losses = change.before, list[Loss]()
    if change.in_order(seen.CacheReset, seen.Flushed):
        return None
    windows = {component.pool: component.window for component in before.components}
    for event in change.in_order(seen.Tombstoned, seen.Removed, seen.Demoted):
        node = before.node_by_id.get(event.node)  # type: ignore[attr-defined]  # all have one
        if node is None:
            return None
        window = windows.get(event.component) if isinstance(event, seen.Tombstoned) else None
        losses.append(Loss(node, node.start, node.end, window))
    if seen.Removed.__name__ not in change.after.missing:
        return losses
    freed = [(event.pool, event.units) for event in change.events_of(seen.Freed) if event.owner.kind == seen.TREE_KIND]
    given = [
        (event.pool, event.units) for event in change.events_of(seen.Given) if event.from_owner.kind == seen.TREE_KIND
    ]
    lost = {pool: {unit for name, units in (*freed, *given) if name == pool for unit in units} for pool in windows}
    for node in (before.nodes or ()) if any(lost.values()) else ():
        size = before.limits.page_size
        for component, units in zip(before.components, node.units, strict=True):
            if not (of_pool := lost[component.pool]).isdisjoint(units):
                pages = [page for page, unit in enumerate(units) if unit in of_pool]
                of_pool.difference_update([units[page] for page in pages])
                span = (node.start + pages[0] * size, node.start + (pages[-1] + 1) * size)
                losses.append(Loss(node, *span, component.window))
    return None if any(lost.values()) else losses


def _computed_lengths(change: Transition, landing: Landing, expected: Expectation) -> list[int]:
    """The lengths of the prefixes of a prompt in whole pages that a pass has completed.

    If each pass keeps the state or the window of its last page boundary alone, only that one; none if it lies in the
    outputs of a retracted request, or if the KV before it is kept for later (sglang 0.5.23, swa_branching_seqlen).
    """
    page_size, replays = change.after.limits.page_size, change.after.limits.replays
    ends = range(landing.start // page_size + 1, landing.end // page_size + 1)
    lengths = [end * page_size for end in ends]
    if replays is not None and replays.ends != Ends.PAGES:
        record = change.after.record_by_request.get(landing.request_id)
        lengths = [length for length in lengths[-1:] if record is None or length <= record.protected_len]
    return [length for length in lengths if length <= expected.prompt_len]


def _is_cached(change: Transition, request_id: int, expected: Expectation) -> bool:
    """Does the cache get the KV of a request?  Of a turn its session has it."""
    request = change.before.request_by_id.get(request_id)
    return request is not None and not request.session and not expected.is_uncached
