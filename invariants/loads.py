"""Loads from the host: what they bring, who pays for them, and who waits for them."""

from collections.abc import Sequence
from itertools import chain

from invariants.contracts.admission import has_pages_for_all
from invariants.events import (
    LEAVINGS,
    Admitted,
    Completed,
    Failed,
    LetGo,
    Loaded,
    LoadPlanned,
    TransferBegan,
    TransferEnded,
)
from invariants.handover import LINKED
from invariants.invariant import invariant
from invariants.prefixes import CHANGES_CONTENT, cached_pages, reachable_len
from invariants.transition import Transition, When
from invariants.view import Snapshot
from invariants.violation import Evidence
from invariants.windows import first_needed_page, tail_len
from invariants.wording import request_name

WAITING = "waiting"


@invariant(When.OP, needs=("transfers", "windowed"), on=(TransferBegan,))
def loads_bring_no_more_than_is_read(change: Transition) -> Evidence:
    """Of a windowed component a load brings the last window and no more, however long the segment on the host is."""
    page_size = change.after.limits.page_size
    windows = {component.pool: component.window for component in change.after.components}
    for event in change.events_of(TransferBegan):
        for pool, here, _ in event.pages if not event.to_host else ():
            window = windows[pool]
            if window is not None and len(here) * page_size > tail_len(window, page_size):
                most = tail_len(window, page_size) // page_size
                yield f"load {event.transfer}", f"brings {len(here)} pages of {pool}, {most} are read"


@invariant(When.OP, needs=("transfers",), on=(LoadPlanned,))
def loads_are_paid_for_once(change: Transition) -> Evidence:
    """Who is admitted with a load was promised just the pages that it brings, none where it was under way already."""
    began = {event.transfer: event for event in change.events_of(TransferBegan)}
    known = {view.id for view in change.before.transfers or ()}
    for event in change.events_of(LoadPlanned):
        load = began.pop(event.transfer, None)
        brought = {pool: len(here) for pool, here, _ in load.pages} if load is not None else {}
        firm, demand = {pool: count for pool, count in event.firm if count}, dict(event.demand)
        subject = request_name(event.request_id)
        if firm != brought:
            yield subject, f"was promised {firm} for load {event.transfer}, which brings {brought}"
        if any(demand.get(pool, 0) <= count for pool, count in brought.items()):
            yield subject, f"is to come to need {demand}, yet its load alone brings {brought}"
        known.add(event.transfer)
    for transfer in sorted(began):
        if not began[transfer].to_host and transfer not in known:
            yield f"load {transfer}", "was begun for nobody"


@invariant(When.OP, needs=("nodes", "requests", "transfers"), on=(LoadPlanned,))
def who_joins_a_load_lacks_no_more(change: Transition) -> Evidence:
    """Who waits with a load that was under way already lacks nothing else up to where it is to go on.

    It would compute what the host has.  Judged against the tree before the step, so only while nothing has come into it
    or left it.
    """
    before = change.before
    coming = {view.id: [len(units) for units in view.here] for view in before.transfers or () if not view.to_host}
    for event in change.events:
        if isinstance(event, CHANGES_CONTENT):
            break
        request = before.request_by_id.get(event.request_id) if isinstance(event, LoadPlanned) else None
        if isinstance(event, LoadPlanned) and request is not None and event.transfer in coming:
            lacking = _lacking(before, request.namespace, change.reference.tokens_of(request.id)[: event.length])
            for component, lacks, brings in zip(before.components, lacking, coming[event.transfer], strict=True):
                if lacks > brings:
                    said = f"which brings {brings} pages of {component.pool}, and lacks {lacks}"
                    yield request_name(request.id), f"waits with load {event.transfer}, {said}"


@invariant(When.OP, needs=("nodes", "requests", "transfers"), on=(Loaded,))
def who_waited_goes_on_from_what_was_loaded(change: Transition) -> Evidence:
    """A request that waited for a load goes on where that ends, unless it came to nothing.

    What has come for somebody is not evicted before he has it.
    """
    ended = {event.transfer for event in change.events_of(TransferEnded) if event.failure is None}
    loads = {view.id: view for view in change.before.transfers or () if view.id in ended}
    for event in change.events_of(Loaded):
        request = change.before.request_by_id.get(event.request_id)
        view = loads.get(request.awaits) if request is not None else None
        receipt = change.before.receipt_by_id.get(view.receipt) if view is not None else None
        path = change.before.path(receipt.node)[::-1] if receipt is not None else []
        key = list(chain.from_iterable(node.key for node in path))
        input_len = request.prompt_len + request.num_outputs if request is not None else 0
        tokens = change.reference.tokens_of(event.request_id)[:input_len]
        if event.length < len(key) < len(tokens) and list(tokens[: len(key)]) == key:
            yield request_name(event.request_id), f"goes on from {event.length}, {len(key)} tokens were loaded for it"


def it_is_known_what_is_loaded(change: Transition) -> bool:
    return change.after.limits.least_load_len is not None


@invariant(
    When.STEP,
    needs=("nodes", "requests", "transfers"),
    on=(Admitted,),
    given=it_is_known_what_is_loaded,
)
def what_the_host_has_is_not_computed_again(change: Transition) -> Evidence:
    """Who is admitted loads what the host has for it, be it a window alone (sglang pull 27391).

    Only who is alone may begin without, where there is no room for all of it.  Judged against the tree before the
    step, so only while nothing has come into it or left it.
    """
    waiting = {request.id: request for request in change.before.requests or () if request.place == WAITING}
    loading = {event.request_id for event in change.events_of(LoadPlanned)}
    others = [request for request in change.before.requests or () if request.place not in (WAITING, LINKED)]
    has_room = has_pages_for_all(change.before)
    is_alone = not others and not change.before.launches
    for event in change.events:
        is_alone = is_alone or isinstance(event, (*LEAVINGS, LetGo, Failed, Completed))  # or may be by now
        if isinstance(event, CHANGES_CONTENT) or (is_alone and not has_room):
            break
        if isinstance(event, Admitted) and event.request_id in waiting.keys() - loading:
            request = waiting[event.request_id]
            tokens = change.reference.tokens_of(request.id)[: request.prompt_len + request.num_outputs]
            reach = _reach_worth_a_load(change.before, request.namespace, tokens, event.start)
            if reach is not None:
                yield request_name(request.id), f"admitted at {event.start}, with the host {reach} tokens are cached"


def _lacking(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> list[int]:
    """Per component, how many pages are not on the device of those that who goes on behind `tokens` reads."""
    page_size, pages = snapshot.limits.page_size, list(cached_pages(snapshot, namespace, tokens))
    counts = []
    for index, (_, window) in enumerate(snapshot.components):
        first = 0 if window is None else first_needed_page(len(tokens), window, page_size)
        counts.append(sum(not node.units[index][place] for node, place in pages[first:]))
    return counts


def _reach_worth_a_load(snapshot: Snapshot, namespace: int, tokens: Sequence[int], start: int) -> int | None:
    """How far a request could begin if what the host has were loaded; None where that is not worth it."""
    page_size, least = snapshot.limits.page_size, snapshot.limits.least_load_len or 0
    usable = tokens[: max(0, len(tokens) - 1) // page_size * page_size]
    reach = reachable_len(snapshot, namespace, usable)
    pages = list(cached_pages(snapshot, namespace, usable[:reach]))
    has_all = all(
        node.units[index][place]
        for node, place in pages
        for index, component in enumerate(snapshot.components)
        if component.window is None
    )
    is_worth_it = has_all or reach - start >= least
    return reach if reach > start and is_worth_it else None
