"""What a request has computed stays in the cache when it ends."""

from collections.abc import Iterator
from math import lcm

from swarden.invariants.events import TREE_KIND, Finished, FinishReason, Freed, Preempted, RanOut, Retracted, Taken
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import cached_pages
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import FREE, RecordView
from swarden.invariants.violation import Code, Evidence, found, unit_ref

BY_ITSELF = (FinishReason.STOP, FinishReason.LENGTH)


class CompletenessCode(Code):
    NOT_KEPT = "free after request {request} has ended, which computed all of its tokens [{start}, {end})"


def shares_prefixes(change: Transition) -> bool:
    """Does the engine keep the prefixes of ended requests, and has it evicted none in this step?"""
    has_evicted = any(event.owner.kind == TREE_KIND for event in change.events_of(Freed))
    return change.after.limits.shares_prefixes and not has_evicted


@invariant(When.STEP, needs=("requests", "records", "Freed"), on=(Finished,), given=shares_prefixes)
def ended_requests_leave_their_kv_cached(change: Transition) -> Evidence:
    """A request that ends by itself frees no whole page that it has computed, unless the cache has these tokens.

    Its last token is not computed, accepted drafts are (vllm pull 54979).  Not for turns, whose sessions keep their KV,
    for requests that ask not to be cached or were put back before their last pass ended, and for windows and states, of
    which an engine may keep less.  Not applicable if the cache lost pages.
    """
    put_back = {event.request_id for event in change.in_order(Retracted, RanOut, Preempted)}  # type: ignore[attr-defined]  # all have one
    taken = {(event.pool, unit) for event in change.events_of(Taken) for unit in event.units}
    for event in change.events_of(Finished):
        request = change.before.request_by_id.get(event.request_id)
        record = change.before.record_by_request.get(event.request_id)
        is_whole = request is not None and not request.session and request.id not in put_back
        expected = change.reference.expectations.get(event.request_id)
        if event.reason in BY_ITSELF and record and expected and is_whole and not expected.is_uncached:
            for index, page in _freed_pages(change, record, expected):
                component = change.after.components[index]
                unit, size = record.units[index][page], component.page_size
                if (component.pool, unit) not in taken:
                    yield found(
                        unit_ref(change.after.pool(component.pool), unit),
                        CompletenessCode.NOT_KEPT,
                        request=event.request_id,
                        start=page * size,
                        end=(page + 1) * size,
                    )


def _freed_pages(change: Transition, record: RecordView, expected: Expectation) -> Iterator[tuple[int, int]]:
    """The component and the index of each whole computed page whose unit is free, and whose tokens are not cached."""
    after, shared = change.after, change.after.limits.page_size
    whole = lcm(shared, *[one.page_size for one in after.components if not one.has_states])  # of all components
    num_computed = (len(expected.tokens) - 1) // whole * whole
    num_cached = shared * sum(1 for _ in cached_pages(after, expected.namespace, expected.tokens))
    for index, component in enumerate(after.components):
        if component.window is None:
            owner_of, size = after.pool(component.pool).owner_of, component.page_size
            for page, unit in enumerate(record.units[index][: num_computed // size]):
                if unit and owner_of.get(unit) == FREE and (page + 1) * size > num_cached:
                    yield index, page
