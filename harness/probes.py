"""Probes: rare states that a campaign must have been in, by name.

A watch follows one run and notes which probes it has seen; a campaign counts runs by probe.
"""

from collections import deque
from collections.abc import Callable

from invariants import events as seen
from invariants.base import Transition
from invariants.view import Snapshot

SOON = 2  # steps within which a page that was freed is taken again


class Watch:
    """The probes that one run has seen so far, and the little that it must remember for them."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._parked: set[int] = set()
        self._freed: deque[set[tuple[str, int]]] = deque(maxlen=SOON + 1)

    def look(self, change: Transition) -> None:
        """Note every probe of `change` that is not noted yet."""
        self._freed.append(set())
        for event in change.events:
            look_at = LOOKS.get(type(event))
            if look_at is not None:
                look_at(self, change, event)

    def _on_parked(self, change: Transition, event: seen.Parked) -> None:
        self.seen.add("chunk_parked")
        self._parked.add(event.request_id)

    def _on_admitted(self, change: Transition, event: seen.Admitted) -> None:
        if event.request_id in self._parked:
            self.seen.add("parked_chunk_progressed")
            self._parked.discard(event.request_id)

    def _on_retracted(self, change: Transition, event: seen.Retracted) -> None:
        self.seen.add("retracted")
        if any(request.place == "chunked" for request in change.before.requests or ()):
            self.seen.add("retracted_with_an_unfinished_chunk")

    def _on_recovered(self, change: Transition, event: seen.Recovered) -> None:
        self.seen.add("tombstone_recovered_over_a_locked_node" if event.locked else "tombstone_recovered")

    def _on_matched(self, change: Transition, event: seen.Matched) -> None:
        if event.length < resident_len(change.before, event):
            self.seen.add("match_cut_short_by_a_tombstone")

    def _on_evicted(self, change: Transition, event: seen.Evicted) -> None:
        if any(request.place == "chunked" for request in change.before.requests or ()):
            self.seen.add("evicted_inside_a_running_prefill")

    def _on_split(self, change: Transition, event: seen.Split) -> None:
        node = change.before.node_by_id.get(event.node)
        if node is not None and any(node.locks):
            self.seen.add("node_split_under_lock")

    def _on_slid(self, change: Transition, event: seen.Slid) -> None:
        for component in change.after.components:
            if component.window is not None:
                wider = component.window > change.after.limits.page_size
                self.seen.add("slid_with_window_above_page" if wider else "slid_with_page_at_least_window")

    def _on_finished(self, change: Transition, event: seen.Finished) -> None:
        if event.reason in ("abort", "timeout"):
            place = next((r.place for r in change.before.requests or () if r.id == event.request_id), "unknown")
            self.seen.add(f"{event.reason}_while_{place}")
        elif event.reason.startswith("out of memory"):
            self.seen.add("ended_out_of_memory")

    def _on_rejected(self, change: Transition, event: seen.Rejected) -> None:
        self.seen.add("rejected_at_arrival")

    def _on_freed(self, change: Transition, event: seen.Freed) -> None:
        self._freed[-1].update((event.pool, unit) for unit in event.units)

    def _on_taken(self, change: Transition, event: seen.Taken) -> None:
        if any((event.pool, unit) in freed for unit in event.units for freed in self._freed):
            self.seen.add("unit_taken_again_soon")


def resident_len(snapshot: Snapshot, event: seen.Matched) -> int:
    """Tokens of a matched key that the tree holds in its nodes, live or not."""
    usable, position, parent = len(event.key) - 1, 0, 0
    while True:
        for node in snapshot.children.get(parent, ()):
            length = len(node.key)
            if node.namespace == event.namespace and tuple(event.key[position : position + length]) == tuple(node.key):
                break
        else:
            return position
        if position + length > usable:
            return position
        position, parent = position + length, node.id


LOOKS: dict[type, Callable[..., None]] = {
    seen.Parked: Watch._on_parked,
    seen.Admitted: Watch._on_admitted,
    seen.Retracted: Watch._on_retracted,
    seen.Recovered: Watch._on_recovered,
    seen.Matched: Watch._on_matched,
    seen.Evicted: Watch._on_evicted,
    seen.Split: Watch._on_split,
    seen.Slid: Watch._on_slid,
    seen.Finished: Watch._on_finished,
    seen.Rejected: Watch._on_rejected,
    seen.Freed: Watch._on_freed,
    seen.Taken: Watch._on_taken,
}

ENGINE_PROBES = (
    "chunk_parked",
    "parked_chunk_progressed",
    "retracted",
    "retracted_with_an_unfinished_chunk",
    "tombstone_recovered",
    "tombstone_recovered_over_a_locked_node",
    "match_cut_short_by_a_tombstone",
    "evicted_inside_a_running_prefill",
    "node_split_under_lock",
    "slid_with_window_above_page",
    "slid_with_page_at_least_window",
    "abort_while_waiting",
    "abort_while_chunked",
    "abort_while_running",
    "timeout_while_waiting",
    "timeout_while_running",
    "ended_out_of_memory",
    "rejected_at_arrival",
    "unit_taken_again_soon",
)
