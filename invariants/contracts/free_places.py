"""No row stays free while a request that fits waits.

On a server: Memory and rows are idle while clients wait.
"""

from swarden.invariants.events import LOAD_KIND, Failed, Launched, LoadPlanned, Parked, Preempted, RanOut, Retracted
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RequestView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref

SHORTAGES = (Parked, RanOut, Retracted, Preempted, Failed)  # after one of these, free pages may be too few
SPARE_PAGES = 2  # of each pool: a stretch may start inside a page, and sglang keeps a page (PrefillBudget.reserve)


class FreePlaceCode(Code):
    PLACE_LEFT_EMPTY = "waits, but it fits, and only {taken} of at most {places} requests are admitted"


@invariant(When.OP, needs=("requests", "records"), on=(Launched,))
def waiting_requests_take_free_places(change: Transition) -> Evidence:
    """No request waits while a further one may run and the pools have the pages of all requests at their longest.

    A further request may run if a row is free and fewer than max_running_requests hold KV.  Checked if each pass of the
    step has tokens to spare of chunk_len, no request is between chunks, no pass failed, no load is
    in progress, and no request was parked, retracted, preempted or out of pages.  With states, a request may wait for
    the state of a prompt with the same first tokens that is computed in the step (vllm 0.33.0,
    v1/core/single_type_kv_cache_manager.py:1712), and others behind it.
    """
    if not all(pool.free for pool in change.before.pools if pool.unit == "row") or not has_pages_for_all(change.before):
        return
    waiting = [request for request in change.before.requests or () if request.place == Place.WAITING]
    still = [request for request in waiting if _waits_still(change, request)]
    if change.after.stateful is not None:
        computed = {entry[0] for event in change.events_of(Launched) for entry in event.entries}
        begun = [change.reference.tokens_of(request_id)[:1] for request_id in computed]
        still = [] if any(change.reference.tokens_of(request.id)[:1] in begun for request in still) else still
    if still and _has_tokens_to_spare(change) and _has_a_free_place(change):
        running = [request for request in change.before.requests or () if request.place != Place.WAITING]
        taken, places = len(running) + len(waiting) - len(still), change.after.limits.max_running_requests
        yield found(request_ref(still[0].id), FreePlaceCode.PLACE_LEFT_EMPTY, taken=taken, places=places)


def has_pages_for_all(before: Snapshot) -> bool:
    """Has each pool as many free pages as all requests still need at their longest, also for states after drafts?"""
    page_size, num_pages, states = before.limits.page_size, 0, 0 if before.stateful is None else before.limits.draft_len
    most = max([len(before.pool(component.pool).free) for component in before.components], default=0)
    for request in before.requests or ():
        if num_pages > most:
            return False
        longest = request.prompt_len + request.max_new_tokens + before.limits.lookahead_len
        held = before.record_by_request[request.id].allocated_len if request.id in before.record_by_request else 0
        num_pages += SPARE_PAGES - min(0, held - longest) // page_size - (-before.limits.lookahead_len // page_size)
        num_pages += states
    shares: dict[str, int] = {}
    for component in before.components:
        shares[component.pool] = shares.get(component.pool, 0) + num_pages
    return all(len(before.pool(pool).free) >= count for pool, count in shares.items())


def _waits_still(change: Transition, request: RequestView) -> bool:
    later = change.after.request_by_id.get(request.id)
    return later is not None and later.place == Place.WAITING and request.id not in change.admitted


def _has_tokens_to_spare(change: Transition) -> bool:
    """Do the passes of the step stay below chunk_len, with no request between chunks and no shortage of memory?

    With states a prompt begins with a whole page (vllm 0.33.0, v1/core/sched/scheduler.py:1388).  Drafts count, also of
    a request that begins: a loaded prompt waits for a pass with tokens for all of them (there, line 1326).
    """
    before, holdings = change.before, [holding for pool in change.before.pools for holding in pool.holdings]
    has_load = before.is_loading or any(holding.owner.kind == LOAD_KIND for holding in holdings)
    has_chunk = any(request.place == Place.CHUNKED for request in change.after.requests or ())
    if has_load or has_chunk or any(change.events_of(kind) for kind in SHORTAGES):
        return False
    limits, passes = change.after.limits, change.events_of(Launched)
    size = limits.page_size if limits.chunks_count_pages else 1
    least = limits.draft_len + (1 if before.stateful is None else limits.page_size)
    computed = [
        sum(-((start - end) // size) * size + limits.draft_len for _, start, end in event.entries) for event in passes
    ]
    return limits.chunk_len is None or all(count + least <= limits.chunk_len for count in computed)


def _has_a_free_place(change: Transition) -> bool:
    """Do the requests that started in the step leave a row, and a place among max_running_requests, free?"""
    before, held = change.before, change.before.record_by_request
    started = {entry[0] for event in change.events_of(Launched) for entry in event.entries} | change.admitted
    started |= {event.request_id for event in change.events_of(LoadPlanned)}
    num_new = sum(request.id in started and request.id not in held for request in before.requests or ())
    rows = [len(pool.free) for pool in before.pools if pool.unit == "row"]
    return all(num_new < count for count in [*rows, before.limits.max_running_requests - len(held)])
