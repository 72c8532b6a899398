"""The fate of the passes that were in flight, and whether their results count."""

from collections.abc import Sequence
from typing import NamedTuple

from invariants.events import (
    LEAVINGS,
    Admitted,
    Completed,
    Discarded,
    Failed,
    Finished,
    Freed,
    Late,
    Launched,
    Loaded,
    Paused,
    Resumed,
    Taken,
    TakenOver,
    Verified,
)
from invariants.kinds import Place
from invariants.view import Snapshot

OF_PASSES = frozenset(
    {Admitted, Loaded, TakenOver, Launched, Late, Failed, Completed, Verified, Discarded, Paused, Resumed, *LEAVINGS}
)  # the types of events from which landings are derived


class Landing(NamedTuple):
    """The result of a completed pass for one request: positions [start, end).

    Drafts belong to it as far as they were accepted: the last `accepted` positions.
    It `counts` unless the request has ended or given up its record since the launch, or the pass failed; `failed`
    says that it would have counted otherwise.  Of a request that the engine said to be `delivered`, it counts after a
    retraction or a preemption, too.
    """

    launch: int
    request_id: int
    start: int
    end: int
    counts: bool
    failed: bool
    accepted: int = 0


def landings(before: Snapshot, events: Sequence[NamedTuple]) -> list[Landing]:
    """The results that landed in a step, in order; of passes that were in flight before it, or launched in it."""
    in_flight = {view.launch: view.entries for view in before.launches or ()}
    delivered = {(view.launch, request) for view in before.launches or () for request in view.delivered}
    given_up = {(view.launch, request) for view in before.launches or () for request in view.given_up} - delivered
    failed: set[tuple[int, int]] = set()
    found: list[Landing] = []
    accepted = {(event.launch, event.request_id): event.num_accepted for event in events if isinstance(event, Verified)}
    for event in events:
        if isinstance(event, Launched):
            in_flight[event.launch] = event.entries
        elif isinstance(event, LEAVINGS):
            left = {(launch, event.request_id) for launch in in_flight}
            given_up |= left if isinstance(event, Finished) else left - delivered
        elif isinstance(event, Paused):
            given_up.update((launch, entry[0]) for launch, entries in in_flight.items() for entry in entries)
        elif isinstance(event, Failed):
            whose = [(event.launch, request) for request, _, _ in in_flight.get(event.launch, ())]
            failed.update(one for one in whose if one not in given_up)
            put_back = [request for _, request in failed.intersection(whose)]
            given_up.update((launch, request) for launch in in_flight for request in put_back)
        elif isinstance(event, Completed):
            for request, start, end in in_flight.pop(event.launch, ()):
                whom = (event.launch, request)
                more = accepted.get(whom, 0)
                counts, has_failed = whom not in given_up, whom in failed
                found.append(Landing(event.launch, request, start, end + more, counts, has_failed, more))
    return found


class Standing:
    """The requests that hold KV, and how many output tokens each has, event by event of those that tell of passes."""

    def __init__(self, before: Snapshot, landed: Sequence[Landing]) -> None:
        self.requests = before.request_by_id
        self.outputs = {request.id: request.num_outputs for request in before.requests or ()}
        self.holders = [one.id for one in before.requests or () if one.place not in (Place.WAITING, Place.LINKED)]
        self._landed = landed

    def hear(self, event: NamedTuple) -> None:
        if isinstance(event, LEAVINGS):
            self._leave(event.request_id)
        elif isinstance(event, TakenOver):
            self.holders.append(event.request_id)
            self.outputs[event.request_id] = self.outputs.get(event.request_id, 0) + len(event.tokens)
        elif isinstance(event, (Failed, Completed)):
            for landing in self._landed:
                if landing.launch == event.launch and landing.failed:
                    self._leave(landing.request_id)
                elif landing.launch == event.launch and landing.counts and isinstance(event, Completed):
                    self._land(landing)

    def _leave(self, request_id: int) -> None:
        self.holders = [holder for holder in self.holders if holder != request_id]

    def _land(self, landing: Landing) -> None:
        """A pass that computes the last token that is known samples the next one, and one behind each good draft."""
        request = self.requests.get(landing.request_id)
        if request is not None and landing.end - landing.accepted >= request.prompt_len + self.outputs[request.id]:
            self.outputs[request.id] += 1 + landing.accepted


class Stock:
    """How many units of each pool are free, and how many wait for which pass, event by event."""

    def __init__(self, before: Snapshot) -> None:
        self.free = {pool.name: len(pool.free) for pool in before.pools}
        self.in_flight = {view.launch for view in before.launches or ()}
        self._fenced = [(fence.launch, pool.name, len(fence.units)) for pool in before.pools for fence in pool.fenced]

    def waiting(self, pool: str) -> int:
        """Units of `pool` that are free once the passes in flight have completed."""
        return sum(count for _, fenced_pool, count in self._fenced if fenced_pool == pool)

    def hear(self, event: NamedTuple) -> None:
        if isinstance(event, Taken):
            self.free[event.pool] -= len(event.units)
        elif isinstance(event, Freed) and event.after in self.in_flight:
            self._fenced.append((event.after, event.pool, len(event.units)))
        elif isinstance(event, Freed):
            self.free[event.pool] += len(event.units)
        elif isinstance(event, Launched):
            self.in_flight.add(event.launch)
        elif isinstance(event, Completed):
            self.in_flight.discard(event.launch)
            for launch, pool, count in self._fenced:
                self.free[pool] += count if launch <= event.launch else 0
            self._fenced = [fence for fence in self._fenced if fence[0] > event.launch]
