"""Loads from the host tier: they restore only missing pages, are reserved once, and are used.

On a server: More is loaded than is read, or what was loaded is computed again: time and pages for nothing.
"""

from collections.abc import Sequence
from itertools import chain

import swarden.invariants.events as seen
from swarden.invariants.contracts.free_places import has_pages_for_all
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.prefixes import CHANGES_CONTENT, cached_pages, reachable_len
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Code, Evidence, Ref, found, request_ref
from swarden.invariants.windows import first_needed_page, tail_len


class LoadCode(Code):
    BRINGS_TOO_MUCH = "loads {pages} pages of {pool}, but the window has {most}"
    RESERVED_OTHER_COUNT = "reserved {reserved} pages of {pool} for {load}, which loads {brings}"
    DEMAND_TOO_SMALL = "has a demand of {demand} pages of {pool}, but {load} alone loads {brings}"
    LOADED_FOR_NO_REQUEST = "no request waits for it"
    JOINED_TOO_SHORT = "lacks {lacks} pages of {pool}, but {load} loads {brings}"
    LOADED_BUT_UNUSED = "continues at {start}, but the prefix loaded for it has {loaded} tokens"
    COMPUTED_AGAIN = "admitted at {start}, but {cached} tokens are cached on the device and the host"


@invariant(When.OP, needs=("copy_jobs", "windowed"), on=(seen.CopyBegan,))
def loads_bring_only_the_window(change: Transition) -> Evidence:
    """Of a windowed component a load restores at most the last window, however many pages the host has."""
    page_size = change.after.limits.page_size
    windows = {component.pool: component.window for component in change.after.components}
    for event in change.events_of(seen.CopyBegan):
        for pool, here, _ in event.pages if not event.to_host else ():
            window = windows[pool]
            if window is not None and len(here) * page_size > tail_len(window, page_size):
                counts = {"pages": len(here), "most": tail_len(window, page_size) // page_size}
                yield found(_load_ref(event.job), LoadCode.BRINGS_TOO_MUCH, pool=pool, **counts)


@invariant(When.OP, needs=("copy_jobs",), on=(seen.LoadPlanned,))
def loads_are_reserved_once(change: Transition) -> Evidence:
    """The request for which a load begins reserves exactly the pages that it brings; requests that join reserve none.

    Each load is planned for a request, whose demand exceeds the load because a token is left to compute.
    """
    began = {event.job: event for event in change.events_of(seen.CopyBegan)}
    jobs = {view.id for view in change.before.copy_jobs or ()}
    for event in change.events_of(seen.LoadPlanned):
        load = began.pop(event.job, None)
        brought = {pool: len(here) for pool, here, _ in load.pages} if load is not None else {}
        subject, reserved, demand = request_ref(event.request_id), dict(event.firm), dict(event.demand)
        for pool in dict.fromkeys([*reserved, *brought]):
            brings = brought.get(pool, 0)
            values = {"load": _load_ref(event.job), "pool": pool, "brings": brings}
            if reserved.get(pool, 0) != brings:
                yield found(subject, LoadCode.RESERVED_OTHER_COUNT, **values, reserved=reserved.get(pool, 0))
            if brings and demand.get(pool, 0) <= brings:
                yield found(subject, LoadCode.DEMAND_TOO_SMALL, **values, demand=demand.get(pool, 0))
        jobs.add(event.job)
    for job in sorted(began):
        if not began[job].to_host and job not in jobs:
            yield found(_load_ref(job), LoadCode.LOADED_FOR_NO_REQUEST)


@invariant(When.OP, needs=("nodes", "requests", "copy_jobs"), on=(seen.LoadPlanned,))
def joined_loads_bring_all_missing_pages(change: Transition) -> Evidence:
    """A load that another request joins restores all pages that this request lacks up to its start.

    Otherwise the request computes tokens whose KV the host has.  The load may have begun in the same step.  The pages
    are compared with the tree before the step, so only up to the first event that changes its content.
    """
    before = change.before
    loads = {view.id: [len(units) for units in view.here] for view in before.copy_jobs or () if not view.to_host}
    for event in change.events:
        if isinstance(event, CHANGES_CONTENT):
            break
        if isinstance(event, seen.CopyBegan) and not event.to_host:
            brought = {pool: len(here) for pool, here, _ in event.pages}
            loads[event.job] = [brought.get(component.pool, 0) for component in before.components]
        request = before.request_by_id.get(event.request_id) if isinstance(event, seen.LoadPlanned) else None
        if isinstance(event, seen.LoadPlanned) and request is not None and event.job in loads:
            lacking = _lacking(before, request.namespace, change.reference.tokens_of(request.id)[: event.length])
            for component, lacks, brings in zip(before.components, lacking, loads[event.job], strict=True):
                if lacks > brings:
                    values = {"load": _load_ref(event.job), "pool": component.pool, "brings": brings}
                    yield found(request_ref(request.id), LoadCode.JOINED_TOO_SHORT, **values, lacks=lacks)


@invariant(When.OP, needs=("nodes", "records", "requests", "copy_jobs"), on=(seen.Loaded, seen.CopyEnded))
def loaded_prefixes_are_used(change: Transition) -> Evidence:
    """A request that waited for a load continues at the end of the loaded prefix or later, unless the load has failed.

    The loaded prefix is not evicted before.  If the engine does not report where a request continues, it is the start
    of its next pass, or the end of the prefix that its record shares.
    """
    ended = {event.job for event in change.events_of(seen.CopyEnded) if event.failure is None}
    loads = {view.id: view for view in change.before.copy_jobs or () if view.id in ended}
    passes = change.events_of(seen.Launched)[::-1]
    starts = {request_id: start for event in passes for request_id, start, _ in event.entries}
    starts |= {event.request_id: event.length for event in change.events_of(seen.Loaded)}
    for request in change.before.requests or ():
        view = loads.get(request.awaits)
        receipt = change.before.receipt_by_id.get(view.receipt) if view is not None else None
        path = change.before.path(receipt.node)[::-1] if receipt is not None else []
        key = list(chain.from_iterable(node.key for node in path))
        tokens = change.reference.tokens_of(request.id)[: request.prompt_len + request.num_outputs]
        record = change.after.record_by_request.get(request.id) if request.id not in change.released else None
        start = starts.get(request.id, len(key) if record is None else record.protected_len)
        if start < len(key) < len(tokens) and list(tokens[: len(key)]) == key:
            lengths = {"start": start, "loaded": len(key)}
            yield found(request_ref(request.id), LoadCode.LOADED_BUT_UNUSED, **lengths)


def load_back_threshold_is_known(change: Transition) -> bool:
    """Do the limits name the least length of a load from the host (`load_back_threshold`)?"""
    return change.after.limits.load_back_threshold is not None


@invariant(When.STEP, needs=("nodes", "requests", "copy_jobs"), on=(seen.Admitted,), given=load_back_threshold_is_known)
def host_prefixes_are_loaded(change: Transition) -> Evidence:
    """If copies on the host extend the cached prefix of a request, it is admitted only after they were loaded.

    A load that restores only windowed pages is always made, any other if it saves at least load_back_threshold tokens.
    The check of a step ends at the first event that changes the tree's content.  It also ends when a request may be
    alone while the pages of all requests do not fit, because that one may start without the load.  Source: sglang pull
    27391.
    """
    waiting = {request.id: request for request in change.before.requests or () if request.place == Place.WAITING}
    loading = {event.request_id for event in change.events_of(seen.LoadPlanned)}
    others = [other for other in change.before.requests or () if other.place not in (Place.WAITING, Place.LINKED)]
    fits = has_pages_for_all(change.before)
    is_alone = not others and not change.before.launches
    for event in change.events:
        is_alone = is_alone or isinstance(
            event, (*seen.RECORD_RELEASES, seen.LetGo, seen.Failed, seen.Completed)
        )  # or may be by now
        if isinstance(event, CHANGES_CONTENT) or (is_alone and not fits):
            break
        if isinstance(event, seen.Admitted) and event.request_id in waiting.keys() - loading:
            request = waiting[event.request_id]
            tokens = change.reference.tokens_of(request.id)[: request.prompt_len + request.num_outputs]
            reach = _reach_worth_a_load(change.before, request.namespace, tokens, event.start)
            if reach is not None:
                lengths = {"start": event.start, "cached": reach}
                yield found(request_ref(request.id), LoadCode.COMPUTED_AGAIN, **lengths)


def _load_ref(job: int) -> Ref:
    return Ref(seen.LOAD_KIND, job)


def _lacking(snapshot: Snapshot, namespace: int, tokens: Sequence[int]) -> list[int]:
    """By component, the number of pages that the token behind `tokens` reads and that are not on the device."""
    page_size, pages = snapshot.limits.page_size, list(cached_pages(snapshot, namespace, tokens))
    counts = []
    for index, component in enumerate(snapshot.components):
        window = component.window
        first = 0 if window is None else first_needed_page(len(tokens), window, page_size)
        counts.append(sum(not node.units[index][place] for node, place in pages[first:]))
    return counts


def _reach_worth_a_load(snapshot: Snapshot, namespace: int, tokens: Sequence[int], start: int) -> int | None:
    """The length behind which a request could start after a load from the host; None if a load is not worth it."""
    page_size, least = snapshot.limits.page_size, snapshot.limits.load_back_threshold or 0
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
