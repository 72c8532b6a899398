"""What the transitions of a run have shown, for laws that need more than one step."""

from collections.abc import Mapping

from swarden.invariants.events import CacheReset, Demoted, Finished, FinishReason, Flushed, Removed, Tombstoned
from swarden.invariants.passes import Landing
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition

BY_ITSELF = (FinishReason.STOP, FinishReason.LENGTH)
MOST_SERVED = 32  # requests, the latest: a law that looks for prefixes compares each
Served = Mapping[int, list[int]]


def note(change: Transition) -> None:
    """Add a transition, in which each law held, to the past of the reference."""
    _note_sessions(change)
    _note_prefixes(change)


def _note_sessions(change: Transition) -> None:
    idle_since, now_ms = change.reference.past.idle_since, change.reference.now_ms
    for session in (*(change.before.sessions or ()), *(change.after.sessions or ())):
        if session.turn or session.id not in idle_since:
            idle_since[session.id] = now_ms


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
    for event in change.events_of(Finished):
        expected = change.reference.expectations.get(event.request_id)
        if event.reason in BY_ITSELF and expected is not None and _is_cached(change, event.request_id, expected):
            page_size = change.after.limits.page_size
            whole = (len(expected.tokens) - 1) // page_size * page_size  # its last token is not computed
            past.served.setdefault(event.request_id, []).append(whole)
    for request_id in [*past.served][:-MOST_SERVED]:
        del past.served[request_id]


def still_served(change: Transition) -> Served:
    """The served prefixes of the past that were not evicted in this transition either; the same object if none was.

    A prefix is evicted if a node on its path was removed or demoted, or has become a tombstone in its window.
    """
    served = change.reference.past.served
    evictions = change.in_order(Tombstoned, Removed, Demoted, CacheReset, Flushed)
    if not evictions:
        return served
    windows = {component.pool: component.window for component in change.before.components}
    for event in evictions:
        node = change.before.node_by_id.get(event.node) if isinstance(event, (Tombstoned, Removed, Demoted)) else None
        if node is None:
            return {}
        window = windows.get(event.component) if isinstance(event, Tombstoned) else None
        page, left = slice(node.start, node.start + change.before.limits.page_size), {}
        for request_id, lengths in served.items():
            is_on_path = list(change.reference.tokens_of(request_id)[page]) == list(node.key[: page.stop - page.start])
            left[request_id] = [
                length
                for length in lengths
                if not is_on_path or length <= node.start or (window is not None and length >= node.end + window)
            ]
        served = left
    return served


def _computed_lengths(change: Transition, landing: Landing, expected: Expectation) -> list[int]:
    """The lengths of the prefixes of a prompt in whole pages that a pass has completed.

    In an engine with states only the longest: each pass keeps the state of its last page boundary.
    """
    page_size = change.after.limits.page_size
    ends = range(landing.start // page_size + 1, min(landing.end, expected.prompt_len) // page_size + 1)
    return [end * page_size for end in (ends if change.after.stateful is None else ends[-1:])]


def _is_cached(change: Transition, request_id: int, expected: Expectation) -> bool:
    """Does the cache get the KV of a request?  Of a turn its session has it."""
    request = change.before.request_by_id.get(request_id)
    return request is not None and not request.session and not expected.is_uncached
