"""The admissions of a step as a naive planner would make them from the facts before the step.

Only a step in which nothing but windows moved before the planning is foretold.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from math import ceil
from operator import sub
from typing import NamedTuple

from invariants.contracts.demands import Ask, Grower, Need, Pager
from invariants.events import (
    Admitted,
    Compared,
    Completed,
    Evicted,
    Failed,
    Fired,
    Freed,
    Invited,
    Late,
    Launched,
    LetGo,
    Matched,
    Paired,
    Parked,
    Read,
    Removed,
    Slid,
    Split,
    Taken,
    Tombstoned,
    Written,
)
from invariants.kinds import FreeCause, Place
from invariants.limits import LONGEST_MATCH
from invariants.passes import FreeUnits
from invariants.prefixes import cached_pages, longest_prefix, reachable_len
from invariants.transition import Transition
from invariants.view import HANDOVER_KIND, RequestView, Snapshot
from invariants.windows import tail_len

MOST_WAITING = 32  # requests that are planned for in a step
RESERVE_PAGES = 1  # the next chunk leaves so many in a windowed pool unless its request is alone (sglang pull 23174)
NO_LIMIT = 1 << 60  # of the tokens that a step prefills
BY_PLANNING = (Matched, Admitted, Parked, Taken, Tombstoned, Removed, Evicted, Launched)
BY_RESULTS = (Written, Read, Compared, Completed, Late, Failed)

Tokens = Callable[[int], Sequence[int]]


class Unforeseeable(Exception):
    """The facts do not determine the plan."""


BETWEEN_ENGINES = frozenset({Invited, LetGo})  # messages of another engine, before the planning of a step begins


class Stretch(NamedTuple):
    """[start, end) of a request, with the pages that are reserved for it."""

    start: int
    end: int
    need: Need


class Verdict(NamedTuple):
    """The stretch that was admitted of the next request, and the one that a naive planner admits; None: it waits."""

    request_id: int
    found: Stretch | None
    foretold: Stretch | None


def verdicts_on(change: Transition) -> list[Verdict]:
    """The admissions of a step beside those of a naive planner."""
    return verdicts(change.before, change.events, change.reference.tokens_of)


def verdicts(before: Snapshot, events: Sequence[NamedTuple], tokens_of: Tokens) -> list[Verdict]:
    """In the order of planning, up to the first in which engine and planner differ; [] where no plan is determined."""
    found: list[Verdict] = []
    if all(request.place == Place.RUNNING for request in before.requests or ()) or BETWEEN_ENGINES & {
        *map(type, events)
    }:
        return found
    moved = _before_planning(events)
    rest = events[len(moved) :]
    if _begins_with_planning(before, rest):
        try:
            found.extend(_turns(Planner(before, moved), rest, tokens_of))
        except Unforeseeable:
            return []
    return found


class Rivalry(NamedTuple):
    """The first waiting request, and the running ones of which one must be preempted for it."""

    first: int
    lesser: Sequence[int]


def rivalry(before: Snapshot, events: Sequence[NamedTuple], tokens_of: Tokens) -> Rivalry | None:
    """The rivalry for a row where the first waiting request lacks a row and nothing else; None where there is none."""
    if before.limits.preemption_threshold is None or any(pool.free for pool in before.pools if pool.unit == "row"):
        return None
    if {request.place for request in before.requests or ()} != {Place.RUNNING, Place.WAITING}:
        return None  # a request that has begun goes on first
    moved = _before_planning(events)
    if BETWEEN_ENGINES & {*map(type, events)} or not _begins_with_planning(before, events[len(moved) :]):
        return None
    try:
        planner = Planner(before, moved)
        first = _queue(planner, tokens_of)[0]
        lesser = planner.must_yield(first, _input(first, tokens_of))
    except Unforeseeable:
        return None
    return Rivalry(first.id, lesser) if lesser else None


class Planner:
    """The free, evictable and reserved pages while a batch is planned, by the facts before and the moves since."""

    def __init__(self, before: Snapshot, moved: Sequence[NamedTuple]) -> None:
        limits = before.limits
        assert before.claims is not None, "claims are needed"
        if before.claims.exact_ratio is None or before.transfers or _some_load(before) or _some_keep(before):
            raise Unforeseeable
        self.before = before
        self.pager = Pager(limits.page_size, before.components)
        self.ratio = before.claims.exact_ratio
        self.free = _free_after(before, moved)
        self.evictable = dict(before.claims.evictable)
        self.promised = Counter[str]()
        self.foreseen = Counter[str]()
        self.locks = Counter[tuple[int, int]]()  # beside those before: by component and unit
        self.slid = {event.request_id: event.frontier for event in moved if isinstance(event, Slid)}
        self.num_rows = sum(len(pool.free) for pool in before.pools if pool.unit == "row")
        self.budget = NO_LIMIT if limits.chunk_len is None else limits.chunk_len
        self._unlock_what_slid()
        going_on = [one for one in before.requests or () if one.place == Place.RUNNING and self._goes_on(one)]
        self.budget -= self._num_decodes(going_on)
        for one in going_on:
            self._promise(self.pager.of_growth(self._grower(one)))

    @property
    def is_alone(self) -> bool:
        """Does no request run, no pass and no transfer, that could give pages back?"""
        going = [one for one in self.before.records or () if one.owner.kind == HANDOVER_KIND]
        return (
            not self.before.launches
            and not going
            and all(one.place != Place.RUNNING for one in self.before.requests or ())
        )

    def available(self, pool: str) -> int:
        return self.free[pool] + self.evictable[pool] - self.promised[pool]

    def plan_chunk(self, request: RequestView) -> Stretch | None:
        """The next stretch of a request that has begun, as far as each pool has pages for it."""
        record = self.before.record_by_request[request.id]
        page_size = self.before.limits.page_size
        begun = self.pager.up(record.allocated_len) * page_size - record.allocated_len
        lengths = [self.available(component.pool) * page_size + begun for component in self.before.components]
        reserves = [RESERVE_PAGES * page_size if component.window else 0 for component in self.before.components]
        most = min(map(sub, lengths, reserves))
        if most <= 0 and self.is_alone:
            most = min(lengths)
        most = min(most, self.budget)
        if most <= 0:
            return None
        ask = self._ask(request, record.launched_len)
        end = self.pager.cut(ask.start, ask.input_len, most)
        return self._take(Stretch(ask.start, end, self.pager.of_stretch(ask, end)))

    def plan_new(self, request: RequestView, tokens: Sequence[int], *, first: bool) -> Stretch | None:
        """The first stretch of a waiting request, if the pools have all pages that it may need and those that it locks.

        A request that is alone goes on as far as the pages suffice.
        """
        if not self.num_rows or self.budget <= 0:
            return None
        cached = tokens[: self.match_len(request, tokens)]
        ask, locked = self._ask(request, len(cached)), self._to_lock(request.namespace, cached)
        whole = self.pager.cut(ask.start, ask.input_len, self.budget) - ask.start
        capacities = {pool.name: pool.capacity for pool in self.before.pools}
        most = min(whole, self.pager.longest_at_once(ask, capacities))
        end = self.pager.cut(ask.start, ask.input_len, most)
        need = self.pager.of_stretch(ask, end)
        taken = Counter(self.before.components[component].pool for component, _ in locked)
        if any(need.demand[pool] + taken[pool] + self.foreseen[pool] > self.available(pool) for pool in need.demand):
            pages = min(self.available(pool) - taken[pool] for pool in need.demand)
            if not (first and self.is_alone) or pages <= 0:
                return None
            end = self.pager.cut(ask.start, ask.input_len, min(self.budget, pages * self.before.limits.page_size))
            need = self.pager.of_stretch(ask._replace(foreseen=0), end)
        self.locks.update(locked)
        self.evictable = {pool: count - taken[pool] for pool, count in self.evictable.items()}
        self.num_rows -= 1
        return self._take(Stretch(ask.start, end, need))

    def must_yield(self, first: RequestView, tokens: Sequence[int]) -> list[int]:
        """The running requests whose priority is so much lower that one of them owes its row to the first waiting one.

        None, where that has a row, or lacks more than a row.
        """
        threshold = self.before.limits.preemption_threshold
        running = [one for one in self.before.requests or () if one.place == Place.RUNNING and self._goes_on(one)]
        lesser = [one for one in running if threshold is not None and first.priority > one.priority + threshold]
        if self.num_rows or self.budget <= 0 or not lesser:
            return []
        self.num_rows = 1
        self.budget += self._num_decodes(lesser)  # their tokens of the pass go to the first one
        return [one.id for one in lesser] if self.plan_new(first, tokens, first=False) is not None else []

    def match_len(self, request: RequestView, tokens: Sequence[int]) -> int:
        """The length of the cached prefix of its input; the last token is computed in any case."""
        page_size = self.before.limits.page_size
        usable = tokens[: (len(tokens) - 1) // page_size * page_size]
        length = longest_prefix(self.before, request.namespace, usable).length
        if self.before.transfers is not None and reachable_len(self.before, request.namespace, usable) != length:
            raise Unforeseeable  # a load would bring more
        return length

    def _goes_on(self, request: RequestView) -> bool:
        """Has a request a token to compute that no pass in flight computes, and that is not its last?"""
        launched_len = self.before.record_by_request[request.id].launched_len
        return launched_len + 1 < request.prompt_len + request.max_new_tokens

    def _num_decodes(self, running: Sequence[RequestView]) -> int:
        """The running requests that decode beside a prefill; with drafts, one that waits for a result does not."""
        limits, records = self.before.limits, [self.before.record_by_request[one.id] for one in running]
        known = [one for one in records if not limits.draft_len or one.launched_len == one.committed_len]
        return len(known) if limits.mixes_batches else 0

    def _grower(self, request: RequestView) -> Grower:
        record = self.before.record_by_request[request.id]
        kept_from = max(self.slid.get(request.id, record.frontier), record.protected_len)
        foreseen, lookahead = self._foreseen(request), self.before.limits.lookahead_len
        return Grower(record.launched_len, record.allocated_len, kept_from, foreseen, lookahead)

    def _ask(self, request: RequestView, start: int) -> Ask:
        rest_len = self._rest_len(request)
        lookahead = self.before.limits.lookahead_len if rest_len > 1 else 0
        input_len = request.prompt_len + request.num_outputs
        return Ask(start, input_len, rest_len, self._foreseen(request), lookahead)

    def _rest_len(self, request: RequestView) -> int:
        assert self.before.limits.estimates is not None, "planning needs the estimates"
        return min(request.max_new_tokens - request.num_outputs, self.before.limits.estimates.most_new_len)

    def _foreseen(self, request: RequestView) -> int:
        """The output tokens of a request that admission counts on."""
        return ceil(self._rest_len(request) * self.ratio)

    def _to_lock(self, namespace: int, cached: Sequence[int]) -> list[tuple[int, int]]:
        """The units that a lock on a cached prefix protects and no other lock does, with their component."""
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

    def _unlock_what_slid(self) -> None:
        """A window that slid has given up its lock on the pages before it."""
        for request_id, frontier in self.slid.items():
            receipt = self.before.receipt_by_id[self.before.record_by_request[request_id].receipt]
            for index, component in enumerate(self.before.components):
                pool, is_windowed = component.pool, component.window is not None
                for node in map(self.before.node_by_id.__getitem__, receipt.covers[index] if is_windowed else ()):
                    for unit in node.units[index][: max(0, frontier - node.start) // self.before.limits.page_size]:
                        self.locks[index, unit] -= 1
                        if unit and not node.locks[index] + self.locks[index, unit]:
                            self.evictable[pool] += 1

    def _take(self, stretch: Stretch) -> Stretch:
        self._promise(stretch.need)
        self.budget -= stretch.end - stretch.start
        return stretch

    def _promise(self, need: Need) -> None:
        for pool, count in need.firm.items():
            self.promised[pool] += count
            self.foreseen[pool] += need.demand[pool] - count


def _some_load(before: Snapshot) -> bool:
    return any(request.place == Place.LOADING for request in before.requests or ())


def _turns(planner: Planner, events: Sequence[NamedTuple], tokens_of: Tokens) -> Iterator[Verdict]:
    """The requests between chunks, then the waiting ones, until one does not fit or is cut."""
    admitted = [event for event in events if isinstance(event, Admitted)]
    for request, plan in _in_turn(planner, tokens_of):
        found = _stretch(admitted.pop(0)) if admitted and admitted[0].request_id == request.id else None
        foretold = plan()
        yield Verdict(request.id, found, foretold)
        if found != foretold or (foretold is None and request.place == Place.CHUNKED and planner.is_alone):
            return  # a request that is alone and cannot go on is aborted, and others may be admitted to its pages
        if foretold is None or foretold.end < request.prompt_len + request.num_outputs:
            break
    for event in admitted[:1]:
        yield Verdict(event.request_id, _stretch(event), None)


def _in_turn(planner: Planner, tokens_of: Tokens) -> Iterator[tuple[RequestView, Callable[[], Stretch | None]]]:
    requests = planner.before.requests or ()
    begun = [request for request in requests if request.place == Place.CHUNKED]
    for request in begun:
        yield request, partial(planner.plan_chunk, request)
    for index, request in enumerate(_queue(planner, tokens_of)):
        first = not begun and not index
        yield request, partial(planner.plan_new, request, _input(request, tokens_of), first=first)


def _queue(planner: Planner, tokens_of: Tokens) -> list[RequestView]:
    """The waiting requests in the order in which they are admitted."""
    waiting = [request for request in planner.before.requests or () if request.place == Place.WAITING]
    if len(waiting) > MOST_WAITING:
        raise Unforeseeable
    if LONGEST_MATCH in planner.before.limits.waits_by:
        known = {one.id: planner.match_len(one, _input(one, tokens_of)) for one in waiting}
        return sorted(waiting, key=lambda one: (-one.priority, -known[one.id], one.id))
    return sorted(waiting, key=lambda one: (-one.priority, one.id))


def _input(request: RequestView, tokens_of: Tokens) -> Sequence[int]:
    """The input of a waiting request: its prompt and the output so far."""
    length = request.prompt_len + request.num_outputs
    tokens = tokens_of(request.id)[:length]
    if len(tokens) < length:
        raise Unforeseeable
    return tokens


def _stretch(event: Admitted) -> Stretch:
    return Stretch(event.start, event.end, Need(dict(event.firm), dict(event.demand)))


def _before_planning(events: Sequence[NamedTuple]) -> list[NamedTuple]:
    """The events up to the last window that moves; a fault among them is one of the link to another engine."""
    moved = list(takewhile(lambda event: isinstance(event, Fired) or _moves_a_window(event), events))
    while moved and isinstance(moved[-1], Fired):
        moved.pop()
    return moved


def _moves_a_window(event: NamedTuple) -> bool:
    return isinstance(event, (Slid, Split, Paired)) or (isinstance(event, Freed) and event.cause == FreeCause.SLID)


def _some_keep(snapshot: Snapshot) -> bool:
    """Does a session keep KV from which its turn may go on, and which other requests may get?"""
    return any(session.kept_len for session in snapshot.sessions or ())


def _begins_with_planning(before: Snapshot, events: Sequence[NamedTuple]) -> bool:
    """Was a batch planned, and nothing done before that but windows moved?

    Where requests may be preempted, the engine may have waited for results before the planning.
    A fault alone proves neither.
    """
    if before.is_paused or len(before.launches or ()) >= before.limits.most_launches:
        return False
    first = next((event for event in events if not isinstance(event, Fired)), None)
    if first is None or isinstance(first, BY_PLANNING):
        return True
    return before.limits.preemption_threshold is None and isinstance(first, BY_RESULTS)


def _free_after(before: Snapshot, moved: Sequence[NamedTuple]) -> dict[str, int]:
    free_units = FreeUnits(before)
    for event in moved:
        free_units.apply(event)
    return free_units.free
