"""The results of completed passes: which are valid, which requests hold KV, and how many units are free."""

from collections.abc import Sequence
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.invariants.kinds import Place
from swarden.invariants.view import Snapshot

PASS_EVENTS = frozenset(
    {
        seen.Admitted,
        seen.Loaded,
        seen.TakenOver,
        seen.Launched,
        seen.Late,
        seen.Failed,
        seen.Completed,
        seen.Verified,
        seen.Discarded,
        seen.Paused,
        seen.Resumed,
        *seen.RECORD_RELEASES,
    }
)  # the types of events from which landings are derived


class Landing(NamedTuple):
    """The result of a completed pass for one request: positions [start, end), the last `accepted` of them drafts.

    It `counts` (is valid) unless the request has ended or released its record since the launch, or the pass failed, or
    a load for the request has ended since.  Such a load has failed, because a pass is launched only behind a load or
    with it. `failed`: it would be valid, but the pass failed.  The result of a request in `LaunchView.delivered` is
    valid even after a retraction or a preemption.
    """

    launch: int
    request_id: int
    start: int
    end: int
    counts: bool
    failed: bool
    accepted: int = 0


def landings(before: Snapshot, events: Sequence[NamedTuple]) -> list[Landing]:
    """The results of the passes that completed in a step, in order."""
    in_flight = {view.launch: view.entries for view in before.launches or ()}
    delivered = {(view.launch, request) for view in before.launches or () for request in view.delivered}
    given_up = {(view.launch, request) for view in before.launches or () for request in view.given_up} - delivered
    failed: set[tuple[int, int]] = set()
    landed: list[Landing] = []
    accepted = {
        (event.launch, event.request_id): event.num_accepted for event in events if isinstance(event, seen.Verified)
    }
    for event in events:
        if isinstance(event, seen.Launched):
            in_flight[event.launch] = event.entries
        elif isinstance(event, seen.RECORD_RELEASES):
            left = {(launch, event.request_id) for launch in in_flight}
            given_up |= left if isinstance(event, seen.Finished) else left - delivered
        elif isinstance(event, seen.Loaded):
            given_up.update((launch, event.request_id) for launch in in_flight)
        elif isinstance(event, seen.Paused) and not event.keeps:
            given_up.update((launch, entry[0]) for launch, entries in in_flight.items() for entry in entries)
        elif isinstance(event, seen.Failed):
            computed = [(event.launch, request) for request, _, _ in in_flight.get(event.launch, ())]
            failed.update(entry for entry in computed if entry not in given_up)
            released = [request for _, request in failed.intersection(computed)]
            given_up.update((launch, request) for launch in in_flight for request in released)
        elif isinstance(event, seen.Completed):
            for request, start, end in in_flight.pop(event.launch, ()):
                result = (event.launch, request)
                more = accepted.get(result, 0)
                counts, has_failed = result not in given_up, result in failed
                landed.append(Landing(event.launch, request, start, end + more, counts, has_failed, more))
    return landed


class KVHolders:
    """The requests that hold KV, and the number of output tokens of each, after each of the PASS_EVENTS.

    Requests that are admitted in the step are left out, and a pause removes none.
    """

    def __init__(self, before: Snapshot, landed: Sequence[Landing]) -> None:
        self.requests = before.request_by_id
        self.outputs = {request.id: request.num_outputs for request in before.requests or ()}
        self.ids = [one.id for one in before.requests or () if one.place not in (Place.WAITING, Place.LINKED)]
        self._landed = landed

    def apply(self, event: NamedTuple) -> None:
        if isinstance(event, seen.RECORD_RELEASES):
            self._remove(event.request_id)
        elif isinstance(event, seen.TakenOver):
            self.ids.append(event.request_id)
            self.outputs[event.request_id] = self.outputs.get(event.request_id, 0) + len(event.tokens)
        elif isinstance(event, (seen.Failed, seen.Completed)):
            for landing in self._landed:
                if landing.launch == event.launch and landing.failed:
                    self._remove(landing.request_id)
                elif landing.launch == event.launch and landing.counts and isinstance(event, seen.Completed):
                    self._add_outputs(landing)

    def _remove(self, request_id: int) -> None:
        self.ids = [holder for holder in self.ids if holder != request_id]

    def _add_outputs(self, landing: Landing) -> None:
        """Count the output tokens of a result: one behind the last known token, and one behind each accepted draft."""
        request = self.requests.get(landing.request_id)
        if request is not None and landing.end - landing.accepted >= request.prompt_len + self.outputs[request.id]:
            self.outputs[request.id] += 1 + landing.accepted


class FreeUnits:
    """The number of free units of each pool, and of those fenced for each pass, after each event."""

    def __init__(self, before: Snapshot) -> None:
        self.free = {pool.name: len(pool.free) for pool in before.pools}
        self.in_flight = {view.launch for view in before.launches or ()}
        self._fenced = [(fence.launch, pool.name, len(fence.units)) for pool in before.pools for fence in pool.fenced]

    def num_fenced(self, pool: str) -> int:
        """Units of `pool` that are free once the passes in flight have completed."""
        return sum(count for _, fenced_pool, count in self._fenced if fenced_pool == pool)

    def apply(self, event: NamedTuple) -> None:
        if isinstance(event, seen.Taken):
            self.free[event.pool] -= len(event.units)
        elif isinstance(event, seen.Freed) and event.after in self.in_flight:
            self._fenced.append((event.after, event.pool, len(event.units)))
        elif isinstance(event, seen.Freed):
            self.free[event.pool] += len(event.units)
        elif isinstance(event, seen.Launched):
            self.in_flight.add(event.launch)
        elif isinstance(event, seen.Completed):
            self.in_flight.discard(event.launch)
            for launch, pool, count in self._fenced:
                self.free[pool] += count if launch <= event.launch else 0
            self._fenced = [fence for fence in self._fenced if fence[0] > event.launch]
