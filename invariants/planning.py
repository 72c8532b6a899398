"""Who would be admitted in a step, and with what, if a naive planner did it from the facts before the step.

Judged is what can be told from outside: a step in which nothing but windows moved before the planning.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from math import ceil
from typing import NamedTuple

from invariants.demands import Ask, Grower, Need, Pager
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
from invariants.limits import LONGEST_MATCH
from invariants.passes import Stock
from invariants.prefixes import cached_pages, longest_prefix, reachable_len
from invariants.transition import Transition
from invariants.view import HANDOVER_KIND, RequestView, Snapshot
from invariants.windows import tail_len

MOST_WAITING = 32  # who are looked at in a step
RESERVE_PAGES = 1  # that the next chunk leaves in a windowed pool, unless its request is alone (sglang pull 23174)
CHUNKED, RUNNING, WAITING, LOADING = "chunked", "running", "waiting", "loading"
SLID = "slid"  # why a window gave pages up
NO_LIMIT = 1 << 60  # of the tokens that a step prefills
BY_PLANNING = (Matched, Admitted, Parked, Taken, Tombstoned, Removed, Evicted, Launched)
BY_RESULTS = (Written, Read, Compared, Completed, Late, Failed)

Tokens = Callable[[int], Sequence[int]]


class Vague(Exception):
    """The facts do not tell what would be planned."""


BETWEEN_ENGINES = frozenset({Invited, LetGo})  # what comes from another engine before the planning of a step begins


class Stretch(NamedTuple):
    """[start, end) of a request, with what is promised for it."""

    start: int
    end: int
    need: Need


class Verdict(NamedTuple):
    """What was admitted of a request whose turn it was, and what a naive planner admits; None: it has to wait."""

    request_id: int
    found: Stretch | None
    foretold: Stretch | None


def verdicts_on(change: Transition) -> list[Verdict]:
    """What was admitted, beside what a naive planner admits; an engine of which too little is known has none."""
    return verdicts(change.before, change.events, change.reference.tokens_of)


def verdicts(before: Snapshot, events: Sequence[NamedTuple], tokens_of: Tokens) -> list[Verdict]:
    """In order of their turns, up to the first in whom the engine and the planner differ; [] where nothing is told."""
    found: list[Verdict] = []
    if all(request.place == RUNNING for request in before.requests or ()) or BETWEEN_ENGINES & {*map(type, events)}:
        return found
    moved = _before_planning(events)
    rest = events[len(moved) :]
    if _begins_with_planning(before, rest):
        try:
            found.extend(_turns(Planner(before, moved), rest, tokens_of))
        except Vague:
            return []
    return found


class Rivalry(NamedTuple):
    """Who waits first, and who runs, one of whom must give way to it."""

    first: int
    lesser: Sequence[int]


def rivalry(before: Snapshot, events: Sequence[NamedTuple], tokens_of: Tokens) -> Rivalry | None:
    """The rivalry in which a row, and nothing else, is lacking to the first who waits; None where none is told."""
    if before.limits.preemption_threshold is None or any(pool.free for pool in before.pools if pool.unit == "row"):
        return None
    if {request.place for request in before.requests or ()} != {RUNNING, WAITING}:
        return None  # who has begun goes on first
    moved = _before_planning(events)
    if BETWEEN_ENGINES & {*map(type, events)} or not _begins_with_planning(before, events[len(moved) :]):
        return None
    try:
        planner = Planner(before, moved)
        first = _queue(planner, tokens_of)[0]
        lesser = planner.must_yield(first, _input(first, tokens_of))
    except Vague:
        return None
    return Rivalry(first.id, lesser) if lesser else None


class Planner:
    """What is free, evictable and promised while a batch is planned, by the facts before it and what moved since."""

    def __init__(self, before: Snapshot, moved: Sequence[NamedTuple]) -> None:
        limits = before.limits
        assert before.claims is not None, "claims are needed"
        if before.claims.exact_ratio is None or before.transfers or _some_load(before) or _some_keep(before):
            raise Vague
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
        going_on = [one for one in before.requests or () if one.place == RUNNING and self._goes_on(one)]
        self.budget -= self._num_decodes(going_on)
        for one in going_on:
            self._promise(self.pager.of_growth(self._grower(one)))

    @property
    def is_alone(self) -> bool:
        """Does nothing run that could give anything back?"""
        going = [one for one in self.before.records or () if one.owner.kind == HANDOVER_KIND]
        return (
            not self.before.launches and not going and all(one.place != RUNNING for one in self.before.requests or ())
        )

    def room(self, pool: str) -> int:
        return self.free[pool] + self.evictable[pool] - self.promised[pool]

    def plan_chunk(self, request: RequestView) -> Stretch | None:
        """The next stretch of a request that has begun, as far as each pool has room for it."""
        record = self.before.record_by_request[request.id]
        page_size = self.before.limits.page_size
        begun = self.pager.up(record.allocated_len) * page_size - record.allocated_len
        rooms = [
            (self.room(pool) * page_size + begun, window is not None) for pool, window, _ in self.before.components
        ]
        most = min(room - (RESERVE_PAGES * page_size if windowed else 0) for room, windowed in rooms)
        if most <= 0 and self.is_alone:
            most = min(room for room, _ in rooms)
        most = min(most, self.budget)
        if most <= 0:
            return None
        ask = self._ask(request, record.launched_len)
        end = self.pager.cut(ask.start, ask.input_len, most)
        return self._take(Stretch(ask.start, end, self.pager.of_stretch(ask, end)))

    def plan_new(self, request: RequestView, tokens: Sequence[int], *, first: bool) -> Stretch | None:
        """The first stretch of a request that waits, if all that it may come to need is there, with what it locks.

        Who is alone goes on without, as far as there is room.
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
        if any(need.demand[pool] + taken[pool] + self.foreseen[pool] > self.room(pool) for pool in need.demand):
            pages = min(self.room(pool) - taken[pool] for pool in need.demand)
            if not (first and self.is_alone) or pages <= 0:
                return None
            end = self.pager.cut(ask.start, ask.input_len, min(self.budget, pages * self.before.limits.page_size))
            need = self.pager.of_stretch(ask._replace(foreseen=0), end)
        self.locks.update(locked)
        self.evictable = {pool: count - taken[pool] for pool, count in self.evictable.items()}
        self.num_rows -= 1
        return self._take(Stretch(ask.start, end, need))

    def must_yield(self, first: RequestView, tokens: Sequence[int]) -> list[int]:
        """Who runs and is so much less important than the first who waits that one of them owes it a row.

        Nobody, where it has a row, or lacks more than that.
        """
        threshold = self.before.limits.preemption_threshold
        running = [one for one in self.before.requests or () if one.place == RUNNING and self._goes_on(one)]
        lesser = [one for one in running if threshold is not None and first.priority > one.priority + threshold]
        if self.num_rows or self.budget <= 0 or not lesser:
            return []
        self.num_rows = 1
        self.budget += self._num_decodes(lesser)  # their tokens of the pass are the first one's then
        return [one.id for one in lesser] if self.plan_new(first, tokens, first=False) is not None else []

    def match_len(self, request: RequestView, tokens: Sequence[int]) -> int:
        """How much of its input is cached; the last token is computed in any case."""
        page_size = self.before.limits.page_size
        usable = tokens[: (len(tokens) - 1) // page_size * page_size]
        length = longest_prefix(self.before, request.namespace, usable).length
        if self.before.transfers is not None and reachable_len(self.before, request.namespace, usable) != length:
            raise Vague  # what a load would bring
        return length

    def _goes_on(self, request: RequestView) -> bool:
        """Has it a token to compute that no pass in flight computes, and that is not its last?"""
        launched_len = self.before.record_by_request[request.id].launched_len
        return launched_len + 1 < request.prompt_len + request.max_new_tokens

    def _num_decodes(self, running: Sequence[RequestView]) -> int:
        """Of those who run beside a prefill: with drafts, whoever waits for a result does not."""
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
        assert self.before.limits.estimates is not None, "asked of an engine that does not tell of them"
        return min(request.max_new_tokens - request.num_outputs, self.before.limits.estimates.most_new_len)

    def _foreseen(self, request: RequestView) -> int:
        """The share of its output tokens that is counted on."""
        return ceil(self._rest_len(request) * self.ratio)

    def _to_lock(self, namespace: int, cached: Sequence[int]) -> list[tuple[int, int]]:
        """What a lock on a cached prefix protects of what nobody has locked, by component and unit."""
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
        """A window that slid has given up its lock on what lies before it."""
        for request_id, frontier in self.slid.items():
            receipt = self.before.receipt_by_id[self.before.record_by_request[request_id].receipt]
            for index, (pool, window, _) in enumerate(self.before.components):
                for node in map(self.before.node_by_id.__getitem__, receipt.covers[index] if window else ()):
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
    return any(request.place == LOADING for request in before.requests or ())


def _turns(planner: Planner, events: Sequence[NamedTuple], tokens_of: Tokens) -> Iterator[Verdict]:
    """Who has begun and is not done with its input, then who waits, until one does not fit or is cut."""
    admitted = [event for event in events if isinstance(event, Admitted)]
    for request, plan in _in_turn(planner, tokens_of):
        found = _stretch(admitted.pop(0)) if admitted and admitted[0].request_id == request.id else None
        foretold = plan()
        yield Verdict(request.id, found, foretold)
        if found != foretold or (foretold is None and request.place == CHUNKED and planner.is_alone):
            return  # who is alone and cannot go on is ended, which gives back what others may be admitted to
        if foretold is None or foretold.end < request.prompt_len + request.num_outputs:
            break
    for event in admitted[:1]:
        yield Verdict(event.request_id, _stretch(event), None)


def _in_turn(planner: Planner, tokens_of: Tokens) -> Iterator[tuple[RequestView, Callable[[], Stretch | None]]]:
    requests = planner.before.requests or ()
    begun = [request for request in requests if request.place == CHUNKED]
    for request in begun:
        yield request, partial(planner.plan_chunk, request)
    for index, request in enumerate(_queue(planner, tokens_of)):
        first = not begun and not index
        yield request, partial(planner.plan_new, request, _input(request, tokens_of), first=first)


def _queue(planner: Planner, tokens_of: Tokens) -> list[RequestView]:
    """Who waits, in order of their turns."""
    waiting = [request for request in planner.before.requests or () if request.place == WAITING]
    if len(waiting) > MOST_WAITING:
        raise Vague
    if LONGEST_MATCH in planner.before.limits.waits_by:
        known = {one.id: planner.match_len(one, _input(one, tokens_of)) for one in waiting}
        return sorted(waiting, key=lambda one: (-one.priority, -known[one.id], one.id))
    return sorted(waiting, key=lambda one: (-one.priority, one.id))


def _input(request: RequestView, tokens_of: Tokens) -> Sequence[int]:
    """What a request that waits has to compute, or to find."""
    length = request.prompt_len + request.num_outputs
    tokens = tokens_of(request.id)[:length]
    if len(tokens) < length:
        raise Vague
    return tokens


def _stretch(event: Admitted) -> Stretch:
    return Stretch(event.start, event.end, Need(dict(event.firm), dict(event.demand)))


def _before_planning(events: Sequence[NamedTuple]) -> list[NamedTuple]:
    """Up to the last window that moves; a fault before it is one of a look at what another engine has sent."""
    moved = list(takewhile(lambda event: isinstance(event, Fired) or _moves_a_window(event), events))
    while moved and isinstance(moved[-1], Fired):
        moved.pop()
    return moved


def _moves_a_window(event: NamedTuple) -> bool:
    return isinstance(event, (Slid, Split, Paired)) or (isinstance(event, Freed) and event.cause == SLID)


def _some_keep(snapshot: Snapshot) -> bool:
    """Has a session KV that its turn may go on from, and that others may get?"""
    return any(session.kept_len for session in snapshot.sessions or ())


def _begins_with_planning(before: Snapshot, events: Sequence[NamedTuple]) -> bool:
    """Was a batch planned, and nothing done before that but what moved the windows?

    Where somebody may be preempted, results may have been waited for before the planning.
    A fault alone tells of neither.
    """
    if before.is_paused or len(before.launches or ()) >= before.limits.most_launches:
        return False
    first = next((event for event in events if not isinstance(event, Fired)), None)
    if first is None or isinstance(first, BY_PLANNING):
        return True
    return before.limits.preemption_threshold is None and isinstance(first, BY_RESULTS)


def _free_after(before: Snapshot, moved: Sequence[NamedTuple]) -> dict[str, int]:
    stock = Stock(before)
    for event in moved:
        stock.hear(event)
    return stock.free
