"""The admissions of a step by a naive planner, from the facts before the step.

A step is predicted only if nothing but windows moved in it before the engine planned its batch, and if no copy from or
to the host, no session's KV and no message of another engine can change the plan.  With more than MOST_WAITING
waiting requests, no step is predicted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple

from swarden.invariants.contracts.demands import Decode, Need, Pager, Prefill
from swarden.invariants.contracts.predictable import before_planning, is_predictable
from swarden.invariants.events import HANDOVER_KIND, Admitted, Preempted, Slid
from swarden.invariants.kinds import Place
from swarden.invariants.limits import LONGEST_MATCH
from swarden.invariants.passes import FreeUnits
from swarden.invariants.prefixes import cached_pages, longest_prefix, reachable_len
from swarden.invariants.transition import Transition
from swarden.invariants.view import NodeView, RequestView, Snapshot
from swarden.invariants.windows import tail_len

MOST_WAITING = 32  # with more waiting requests, a step is not predicted: it would take too long
RESERVE_PAGES = 1  # left free in a windowed pool by the next chunk, unless its request is alone (sglang pull 23174)
NO_LIMIT = 1 << 60  # of the tokens that a step prefills
Tokens = Callable[[int], Sequence[int]]


class Unpredictable(Exception):
    """The facts do not determine the plan."""


class Stretch(NamedTuple):
    """[start, end) of a request, with the pages that are reserved for it."""

    start: int
    end: int
    need: Need


class AdmissionVerdict(NamedTuple):
    """For one request, the stretch that the engine admitted and the stretch that the planner admits; None: it waits."""

    request_id: int
    found: Stretch | None
    expected: Stretch | None
    available: Mapping[str, int]  # pages that the planner had for the request; {} if it got no row


def verdicts_on(change: Transition) -> list[AdmissionVerdict]:
    """The admissions of a step, each with the admission of the naive planner."""
    return verdicts(change.before, change.events, change.reference.tokens_of)


def verdicts(before: Snapshot, events: Sequence[NamedTuple], tokens_of: Tokens) -> list[AdmissionVerdict]:
    """The verdicts in planning order, up to the first difference of engine and planner; [] if it is unpredictable."""
    places = {request.place for request in before.requests or ()}
    admitted = [event for event in events if type(event) is Admitted]
    has_no_row = Place.CHUNKED not in places and not any(pool.free for pool in before.pools if pool.unit == "row")
    if places <= {Place.RUNNING} or (has_no_row and not admitted):
        return []
    moved = before_planning(events)
    is_preempting = any(type(event) is Preempted for event in events)  # which changes what fits
    if is_preempting or not is_predictable(before, events, len(moved)):
        return []
    if has_no_row:  # then nothing can be admitted
        return [AdmissionVerdict(event.request_id, _stretch(event), None, {}) for event in admitted[:1]]
    try:
        return list(_verdicts(Planner(before, moved), admitted, tokens_of))
    except Unpredictable:
        return []


class Rivalry(NamedTuple):
    """The first waiting request, and the running requests of which some must be preempted for it."""

    first: RequestView
    lesser: Sequence[RequestView]
    fits_without: Callable[[Sequence[RequestView]], bool]  # does the first fit without these?


def rivalry(before: Snapshot, events: Sequence[NamedTuple], tokens_of: Tokens) -> Rivalry | None:
    """The rivalry, if the first waiting request fits only in place of running requests of lower priority; else None.

    With a request between chunks no step is predicted: that request continues first.
    """
    if before.limits.preemption_threshold is None:
        return None
    if {request.place for request in before.requests or ()} != {Place.RUNNING, Place.WAITING}:
        return None
    moved = before_planning(events)
    if not is_predictable(before, events, len(moved)):
        return None
    try:
        as_is = Planner(before, moved)
        first = _queue(as_is, tokens_of)[0]
        lesser, tokens = as_is.lesser(first), _input(first, tokens_of)
        if not lesser or as_is.budget <= 0 or as_is.plan_new(first, tokens, first=False) is not None:
            return None
        spared = [node.id for node, _ in cached_pages(before, first.namespace, tokens)]

        def fits_without(others: Sequence[RequestView]) -> bool:
            relieved = Planner(before, moved)
            relieved.release(others, rivals=lesser, spared=spared)
            return relieved.plan_new(first, tokens, first=False) is not None

        return Rivalry(first, lesser, fits_without) if fits_without(lesser) else None
    except Unpredictable:
        return None


class Planner:
    """The free, evictable and reserved pages while a batch is planned, from the state before and the moved windows."""

    def __init__(self, before: Snapshot, moved: Sequence[NamedTuple]) -> None:
        limits = before.limits
        assert before.counters is not None, "counters are needed"
        assert before.counters.exact_ratio is not None, "the ratio is needed"
        self.before = before
        self.pager = Pager(limits.page_size, before.components, limits.state_interval)
        self.ratio = before.counters.exact_ratio
        self.free = _free_after(before, moved) if moved else {pool.name: len(pool.free) for pool in before.pools}
        self.evictable = dict(before.counters.evictable)
        self.reserved = Counter[str]()
        self.estimated = Counter[str]()
        self.locks = Counter[tuple[int, int]]()  # what the step added, by (component, unit); less than 0: removed
        self.slid = {(event.request_id, event.pool): event.frontier for event in moved if isinstance(event, Slid)}
        self.num_rows = sum(len(pool.free) for pool in before.pools if pool.unit == "row")
        self.budget = NO_LIMIT if limits.chunk_len is None else limits.chunk_len
        self._unlock_slid_pages()
        continuing = [one for one in before.requests or () if one.place == Place.RUNNING and self._continues(one)]
        self.budget -= self._num_decodes(continuing)
        for request in continuing:
            self._reserve(self.pager.of_decode(self._decode(request)))

    @property
    def has_states(self) -> bool:
        return any(component.has_states for component in self.before.components)

    @property
    def is_alone(self) -> bool:
        """Is there no running request, no pass in flight and no transfer that could release pages?"""
        transfers = [record for record in self.before.records or () if record.owner.kind == HANDOVER_KIND]
        return (
            not self.before.launches
            and not transfers
            and all(request.place != Place.RUNNING for request in self.before.requests or ())
        )

    def available(self, pool: str) -> int:
        """The free and evictable pages that are not reserved."""
        return self.free[pool] + self.evictable[pool] - self.reserved[pool]

    def plan_chunk(self, request: RequestView, tokens: Sequence[int]) -> Stretch | None:
        """The next stretch of a request between chunks, as far as each pool has pages for it."""
        record = self.before.record_by_request[request.id]
        page_size = self.before.limits.page_size
        spare_len = self.pager.up(record.allocated_len) * page_size - record.allocated_len
        pages = [(component, self.available(component.pool)) for component in self.before.components]
        most = min(
            self.pager.capacity(pool, count - (RESERVE_PAGES if pool.window else 0), spare_len) for pool, count in pages
        )
        if most <= 0 and self.is_alone:
            most = min(self.pager.capacity(component, count, spare_len) for component, count in pages)
        most = min(most, self.budget)
        if most <= 0:
            return None
        prefill = self._prefill(request, record.launched_len)
        end = self.pager.cut(prefill.start, prefill.input_len, min(most, self._branch_len(request, tokens, prefill)))
        return self._take(Stretch(prefill.start, end, self.pager.of_stretch(prefill, end)))

    def plan_new(self, request: RequestView, tokens: Sequence[int], *, first: bool) -> Stretch | None:
        """The first stretch of a waiting request, if the pools have the pages that it demands and those that it locks.

        A request that is alone, and the `first` of the plan, is computed as far as the pages suffice.
        """
        if not self.num_rows or self.budget <= 0:
            return None
        cached = tokens[: self.match_len(request, tokens)]
        prefill, locked = self._prefill(request, len(cached)), self._to_lock(request.namespace, cached)
        budget = min(self.budget, self._branch_len(request, tokens, prefill))
        whole = self.pager.cut(prefill.start, prefill.input_len, budget) - prefill.start
        capacities = {pool.name: pool.capacity for pool in self.before.pools}
        most = min(whole, self.pager.longest_at_once(prefill, capacities))
        end = self.pager.cut(prefill.start, prefill.input_len, most)
        need = self.pager.of_stretch(prefill, end)
        taken = Counter(self.before.components[component].pool for component, _ in locked)
        if any(need.demand[pool] + taken[pool] + self.estimated[pool] > self.available(pool) for pool in need.demand):
            lengths = [
                self.pager.capacity(component, self.available(component.pool) - taken[component.pool], 0)
                for component in self.before.components
            ]
            if not (first and self.is_alone) or min(lengths) <= 0:
                return None
            end = self.pager.cut(prefill.start, prefill.input_len, min(budget, *lengths))
            need = self.pager.of_stretch(prefill._replace(estimated_len=0), end)
        self.locks.update(locked)
        self.evictable = {pool: count - taken[pool] for pool, count in self.evictable.items()}
        self.num_rows -= 1
        return self._take(Stretch(prefill.start, end, need))

    def lesser(self, first: RequestView) -> list[RequestView]:
        """The running requests, unordered, whose priority is so low that they may be preempted for `first`."""
        threshold = self.before.limits.preemption_threshold
        running = [one for one in self.before.requests or () if one.place == Place.RUNNING and self._continues(one)]
        return [one for one in running if threshold is not None and first.priority > one.priority + threshold]

    def release(
        self, preempted: Sequence[RequestView], *, rivals: Sequence[RequestView], spared: Sequence[int]
    ) -> None:
        """Release what the preempted requests hold, and the pages that they may still take.

        Their pages of the tree become evictable where no other request locks the node, but for `spared` nodes.  All
        `rivals` give back their tokens of a mixed batch, because the chunk is planned before the victims.
        """
        page_size, nodes = self.before.limits.page_size, self.before.node_by_id
        self.num_rows += len(preempted)
        self.budget += self._num_decodes(rivals)
        for request in preempted:
            decode, record = self._decode(request), self.before.record_by_request[request.id]
            self._reserve(self.pager.of_decode(decode), times=-1)
            for index, component in enumerate(self.before.components):
                private = record.units[index][decode.kept_from[index] // page_size :]
                self.free[component.pool] += sum(unit != 0 for unit in private)
                for node in self.before.receipt_by_id[record.receipt].covers[index]:
                    if node not in spared and nodes[node].locks[index] == 1:
                        self._unlock(nodes[node], index, nodes[node].units[index])

    def match_len(self, request: RequestView, tokens: Sequence[int]) -> int:
        """The length of the cached prefix of the input; the last token is always computed."""
        page_size = self.before.limits.page_size
        usable = tokens[: (len(tokens) - 1) // page_size * page_size]
        length = longest_prefix(self.before, request.namespace, usable).length
        if self.before.copy_jobs is not None and reachable_len(self.before, request.namespace, usable) != length:
            raise Unpredictable  # a load from the host would extend the prefix
        return length

    def _branch_len(self, request: RequestView, tokens: Sequence[int], prefill: Prefill) -> int:
        """The number of tokens up to the end of the prefix in the tree, where a state is cached; else NO_LIMIT."""
        if not self.has_states:
            return NO_LIMIT
        cached_len = len(list(cached_pages(self.before, request.namespace, tokens))) * self.before.limits.page_size
        return cached_len - prefill.start if cached_len > prefill.start else NO_LIMIT

    def _continues(self, request: RequestView) -> bool:
        """Has a request a token left to compute after the passes in flight, besides its last output token?"""
        launched_len = self.before.record_by_request[request.id].launched_len
        return launched_len + 1 < request.prompt_len + request.max_new_tokens

    def _num_decodes(self, running: Sequence[RequestView]) -> int:
        """The number of requests that decode beside a prefill; with drafts, only requests without a pass in flight."""
        limits, records = self.before.limits, [self.before.record_by_request[request.id] for request in running]
        ready = [record for record in records if not limits.draft_len or record.launched_len == record.committed_len]
        return len(ready) if limits.mixes_batches else 0

    def _decode(self, request: RequestView) -> Decode:
        record = self.before.record_by_request[request.id]
        kept_from = [
            max(self.slid.get((request.id, component.pool), record.frontiers[index]), record.protected_len)
            for index, component in enumerate(self.before.components)
        ]
        estimated_len, lookahead = self._estimated_len(request), self.before.limits.lookahead_len
        return Decode(record.launched_len, record.allocated_len, kept_from, estimated_len, lookahead)

    def _prefill(self, request: RequestView, start: int) -> Prefill:
        rest_len = self._rest_len(request)
        lookahead = self.before.limits.lookahead_len if rest_len > 1 else 0
        input_len = request.prompt_len + request.num_outputs
        return Prefill(start, input_len, rest_len, self._estimated_len(request), lookahead)

    def _rest_len(self, request: RequestView) -> int:
        assert self.before.limits.estimates is not None, "planning needs the estimates"
        return min(request.max_new_tokens - request.num_outputs, self.before.limits.estimates.most_new_len)

    def _estimated_len(self, request: RequestView) -> int:
        """Admission's estimate of the further output tokens of a request."""
        return ceil(self._rest_len(request) * self.ratio)

    def _to_lock(self, namespace: int, cached: Sequence[int]) -> list[tuple[int, int]]:
        """The (component, unit) pairs of a cached prefix that a new lock protects and no other lock does."""
        page_size, wanted = self.before.limits.page_size, list[tuple[int, int]]()
        if not cached:
            return wanted
        pages = list(cached_pages(self.before, namespace, cached))
        for index, component in enumerate(self.before.components):
            window = component.window
            first = 0 if window is None else max(0, len(pages) - tail_len(window, page_size) // page_size)
            for node, place in pages[first:]:
                unit = node.units[index][place]
                if unit and not node.locks[index] + self.locks[index, unit]:
                    wanted.append((index, unit))
        return wanted

    def _unlock_slid_pages(self) -> None:
        """Remove the locks on the pages that slid out of a window."""
        page_size = self.before.limits.page_size
        components = {component.pool: index for index, component in enumerate(self.before.components)}
        for (request_id, pool), frontier in self.slid.items():
            receipt = self.before.receipt_by_id[self.before.record_by_request[request_id].receipt]
            index = components[pool]
            for node in map(self.before.node_by_id.__getitem__, receipt.covers[index]):
                self._unlock(node, index, node.units[index][: max(0, frontier - node.start) // page_size])

    def _unlock(self, node: NodeView, component: int, units: Sequence[int]) -> None:
        """Remove a lock from these units of a node; units without another lock become evictable."""
        for unit in units:
            self.locks[component, unit] -= 1
            if unit and not node.locks[component] + self.locks[component, unit]:
                self.evictable[self.before.components[component].pool] += 1

    def _take(self, stretch: Stretch) -> Stretch:
        self._reserve(stretch.need)
        self.budget -= stretch.end - stretch.start
        return stretch

    def _reserve(self, need: Need, *, times: int = 1) -> None:
        for pool, count in need.firm.items():
            self.reserved[pool] += times * count
            self.estimated[pool] += times * (need.demand[pool] - count)


def _verdicts(planner: Planner, admitted: list[Admitted], tokens_of: Tokens) -> Iterator[AdmissionVerdict]:
    """The verdicts on requests between chunks, then on waiting requests, until one does not fit or is cut."""
    for request, plan in _plans(planner, tokens_of):
        stretch = _stretch(admitted.pop(0)) if admitted and admitted[0].request_id == request.id else None
        available = {pool: planner.available(pool) for pool in planner.evictable}
        expected = plan()
        yield AdmissionVerdict(request.id, stretch, expected, available)
        if stretch != expected or (expected is None and request.place == Place.CHUNKED and planner.is_alone):
            return  # a request that is alone and lacks pages is aborted, and others may be admitted to its pages
        if expected is None or expected.end < request.prompt_len + request.num_outputs:
            break
    for event in admitted[:1]:
        yield AdmissionVerdict(event.request_id, _stretch(event), None, {})


def _plans(planner: Planner, tokens_of: Tokens) -> Iterator[tuple[RequestView, Callable[[], Stretch | None]]]:
    requests = planner.before.requests or ()
    chunked = [request for request in requests if request.place == Place.CHUNKED]
    for request in chunked:
        yield request, partial(planner.plan_chunk, request, _input(request, tokens_of) if planner.has_states else ())
    for index, request in enumerate(_queue(planner, tokens_of)):
        first = not chunked and not index
        yield request, partial(planner.plan_new, request, _input(request, tokens_of), first=first)


def _queue(planner: Planner, tokens_of: Tokens) -> list[RequestView]:
    """The waiting requests in the order in which they are admitted."""
    waiting = [request for request in planner.before.requests or () if request.place == Place.WAITING]
    if len(waiting) > MOST_WAITING:
        raise Unpredictable
    if LONGEST_MATCH in planner.before.limits.waits_by:
        match_lens = {request.id: planner.match_len(request, _input(request, tokens_of)) for request in waiting}
        return sorted(waiting, key=lambda request: (-request.priority, -match_lens[request.id], request.id))
    return sorted(waiting, key=lambda request: (-request.priority, request.id))


def _input(request: RequestView, tokens_of: Tokens) -> Sequence[int]:
    """The input of a waiting request: its prompt and the output so far."""
    length = request.prompt_len + request.num_outputs
    tokens = tokens_of(request.id)[:length]
    if len(tokens) < length:
        raise Unpredictable
    return tokens


def _stretch(event: Admitted) -> Stretch:
    return Stretch(event.start, event.end, Need(dict(event.firm), dict(event.demand)))


def _free_after(before: Snapshot, moved: Sequence[NamedTuple]) -> dict[str, int]:
    free_units = FreeUnits(before)
    for event in moved:
        free_units.apply(event)
    return free_units.free
