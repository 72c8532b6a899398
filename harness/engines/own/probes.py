"""Probes: rare states that a campaign must have been in, by name.

A watch follows one run and notes which probes it has seen; a campaign counts runs by probe.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence

from engine_under_test.units import align_up
from harness.engines.own.pair_probes import PairWatch
from harness.engines.own.talk_probes import TALK_PROBES, TalkWatch
from invariants import events as seen
from invariants.kinds import FinishReason, Place
from invariants.transition import Transition
from invariants.view import Snapshot

SOON = 2  # steps within which a page that was freed is taken again
BY_ITSELF = (FinishReason.STOP, FinishReason.LENGTH)  # how a request ends that nobody ended

Stretch = tuple[int, int, int]  # a request and the positions [start, end) of it that a pass computes


class ProbeWatch:
    """The probes that one run has seen so far, how often each fault fired, and the little to remember for them."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.fired: Counter[str] = Counter()
        self._parked: set[int] = set()
        self._freed: deque[set[tuple[str, int]]] = deque(maxlen=SOON + 1)
        self._admitted: set[Stretch] = set()
        self._in_flight: dict[int, Sequence[Stretch]] = {}
        self._done: set[int] = set()
        self._put_back: set[int] = set()
        self._talks = TalkWatch()
        self._pairs = PairWatch()

    def look(self, change: Transition) -> None:
        """Note every probe of `change` that is not noted yet."""
        self._freed.append(set())
        self._admitted.clear()
        self.seen.update(self._talks.look(change))
        self.seen.update(self._pairs.look(change))
        for event in change.events:
            look_at = LOOKS.get(type(event))
            if look_at is not None:
                look_at(self, change, event)

    def _on_parked(self, change: Transition, event: seen.Parked) -> None:
        self.seen.add("chunk_parked")
        self._parked.add(event.request_id)

    def _on_admitted(self, change: Transition, event: seen.Admitted) -> None:
        self._admitted.add((event.request_id, event.start, event.end))
        if event.request_id in self._parked:
            self.seen.add("parked_chunk_progressed")
            self._parked.discard(event.request_id)

    def _on_retracted(self, change: Transition, event: seen.Retracted) -> None:
        self.seen.add("retracted")
        if any(request.place == Place.CHUNKED for request in change.before.requests or ()):
            self.seen.add("retracted_with_an_unfinished_chunk")
        self._put_back.add(event.request_id)

    def _on_preempted(self, change: Transition, event: seen.Preempted) -> None:
        self.seen.add("preempted")
        self._put_back.add(event.request_id)

    def _on_ran_out(self, change: Transition, event: seen.RanOut) -> None:
        if event.request_id in self._computing():
            self.seen.add("ran_out_with_a_pass_in_flight")

    def _on_recovered(self, change: Transition, event: seen.Recovered) -> None:
        self.seen.add("tombstone_recovered_over_a_locked_node" if event.locked else "tombstone_recovered")

    def _on_matched(self, change: Transition, event: seen.Matched) -> None:
        if event.length < resident_len(change.before, event):
            self.seen.add("match_cut_short_by_a_tombstone")

    def _on_evicted(self, change: Transition, event: seen.Evicted) -> None:
        if any(request.place == Place.CHUNKED for request in change.before.requests or ()):
            self.seen.add("evicted_inside_a_running_prefill")

    def _on_split(self, change: Transition, event: seen.Split) -> None:
        node = change.before.node_by_id.get(event.node)
        if node is not None and any(node.locks):
            self.seen.add("node_split_under_lock")
        copied = {view.receipt for view in change.before.transfers or ()}
        if any(event.node in one.covers[0] for one in change.before.receipts or () if one.id in copied):
            self.seen.add("node_split_while_it_is_copied")

    def _on_slid(self, change: Transition, event: seen.Slid) -> None:
        for component in change.after.components:
            if component.window is not None:
                wider = component.window > change.after.limits.page_size
                self.seen.add("slid_with_window_above_page" if wider else "slid_with_page_at_least_window")

    def _on_transfer_began(self, change: Transition, event: seen.TransferBegan) -> None:
        brought = {pool for pool, _, _ in event.pages}
        whole = {component.pool for component in change.after.components if component.window is None}
        if not event.to_host and whole and whole.isdisjoint(brought):
            self.seen.add("window_alone_loaded")
        if sum(not view.to_host for view in change.after.transfers or ()) > 1:
            self.seen.add("several_loads_under_way")

    def _on_transfer_ended(self, change: Transition, event: seen.TransferEnded) -> None:
        view = next((view for view in change.before.transfers or () if view.id == event.transfer), None)
        if event.failure is not None and view is not None:
            self.seen.add("backup_failed" if view.to_host else "load_failed")

    def _on_copy_dropped(self, change: Transition, event: seen.CopyDropped) -> None:
        if any(not view.to_host for view in change.before.transfers or ()):
            self.seen.add("copy_dropped_while_something_loads")

    def _on_load_planned(self, change: Transition, event: seen.LoadPlanned) -> None:
        if event.transfer and not any(count for _, count in event.firm):
            self.seen.add("load_under_way_joined")
        if event.request_id in self._put_back:
            self.seen.add("put_back_and_loaded_again")

    def _on_finished(self, change: Transition, event: seen.Finished) -> None:
        if event.reason in (FinishReason.ABORT, FinishReason.TIMEOUT):
            place = next((r.place for r in change.before.requests or () if r.id == event.request_id), "unknown")
            self.seen.add(f"{event.reason}_while_{place}")
            if event.reason == FinishReason.ABORT and event.request_id in self._computing():
                self.seen.add("aborted_with_a_pass_in_flight")
        elif event.reason == FinishReason.OUT_OF_MEMORY:
            self.seen.add("ended_out_of_memory")
        elif event.reason == FinishReason.FORWARD_FAILED:
            self.seen.add("request_ended_by_failures")
        elif event.reason in BY_ITSELF:
            self._done.add(event.request_id)

    def _on_rejected(self, change: Transition, event: seen.Rejected) -> None:
        self.seen.add("rejected_at_arrival")

    def _on_launched(self, change: Transition, event: seen.Launched) -> None:
        prefilled = self._admitted.intersection(event.entries)
        if 0 < len(prefilled) < len(event.entries):
            self.seen.add("mixed_batch")
        for request_id, start, _ in prefilled:
            ends = [entry[2] for entries in self._in_flight.values() for entry in entries if entry[0] == request_id]
            if ends:
                self.seen.add("overlapped_chunks" if start in ends else "computed_anew_beside_its_stale_pass")
        page_size = change.after.limits.page_size
        if any(
            record.allocated_len > align_up(record.launched_len, page_size) for record in change.after.records or ()
        ):
            self.seen.add("lookahead_reached_a_further_page")
        self._in_flight[event.launch] = event.entries

    def _on_late(self, change: Transition, event: seen.Late) -> None:
        self.seen.add("a_pass_was_late")

    def _on_failed(self, change: Transition, event: seen.Failed) -> None:
        self.seen.add("a_pass_failed")
        if any(launch > event.launch for launch in self._in_flight):
            self.seen.add("a_pass_failed_with_another_behind_it")

    def _on_completed(self, change: Transition, event: seen.Completed) -> None:
        self._in_flight.pop(event.launch, None)

    def _on_discarded(self, change: Transition, event: seen.Discarded) -> None:
        if event.request_id in self._done:
            self.seen.add("scheduled_once_more_after_the_end")

    def _on_paused(self, change: Transition, event: seen.Paused) -> None:
        if self._in_flight:
            self.seen.add("paused_with_a_pass_in_flight")
        if any(
            request.place == Place.CHUNKED and request.id in self._parked for request in change.before.requests or ()
        ):
            self.seen.add("paused_with_a_parked_chunk")

    def _on_refused(self, change: Transition, event: seen.Refused) -> None:
        if event.want <= event.free and event.pool != change.before.pools[0].name:
            self.seen.add("second_pool_refused")

    def _on_fired(self, change: Transition, event: seen.Fired) -> None:
        self.fired[event.fault] += 1

    def _computing(self) -> set[int]:
        """The requests of which a launched pass computes something."""
        return {request_id for entries in self._in_flight.values() for request_id, _, _ in entries}

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
    seen.Parked: ProbeWatch._on_parked,
    seen.Admitted: ProbeWatch._on_admitted,
    seen.Retracted: ProbeWatch._on_retracted,
    seen.Preempted: ProbeWatch._on_preempted,
    seen.RanOut: ProbeWatch._on_ran_out,
    seen.Recovered: ProbeWatch._on_recovered,
    seen.Matched: ProbeWatch._on_matched,
    seen.TransferBegan: ProbeWatch._on_transfer_began,
    seen.TransferEnded: ProbeWatch._on_transfer_ended,
    seen.CopyDropped: ProbeWatch._on_copy_dropped,
    seen.LoadPlanned: ProbeWatch._on_load_planned,
    seen.Evicted: ProbeWatch._on_evicted,
    seen.Split: ProbeWatch._on_split,
    seen.Slid: ProbeWatch._on_slid,
    seen.Finished: ProbeWatch._on_finished,
    seen.Rejected: ProbeWatch._on_rejected,
    seen.Launched: ProbeWatch._on_launched,
    seen.Late: ProbeWatch._on_late,
    seen.Failed: ProbeWatch._on_failed,
    seen.Completed: ProbeWatch._on_completed,
    seen.Discarded: ProbeWatch._on_discarded,
    seen.Paused: ProbeWatch._on_paused,
    seen.Refused: ProbeWatch._on_refused,
    seen.Fired: ProbeWatch._on_fired,
    seen.Freed: ProbeWatch._on_freed,
    seen.Taken: ProbeWatch._on_taken,
}

# What each probe is; a floor is asked of every one.
ENGINE_PROBES = {
    "chunk_parked": "a chunk did not get its next pages",
    "parked_chunk_progressed": "a parked chunk went on",
    "retracted": "who ran gave back everything for want of pages",
    "retracted_with_an_unfinished_chunk": "the same while a prompt was half computed",
    "preempted": "who ran gave back everything for a more important request",
    "tombstone_recovered": "a tombstone nobody had locked became live again",
    "tombstone_recovered_over_a_locked_node": "a locked tombstone took over the peers of incoming pages",
    "match_cut_short_by_a_tombstone": "the tree held more of a prompt than could be used",
    "evicted_inside_a_running_prefill": "pages were evicted while a prompt was half computed",
    "node_split_under_lock": "a node that somebody had locked was split",
    "slid_with_window_above_page": "a window wider than a page gave up pages",
    "slid_with_page_at_least_window": "a window no wider than a page gave up pages",
    "abort_while_waiting": "a client gave up on a request that had no pages",
    "abort_while_chunked": "a client gave up on a request whose prompt was half computed",
    "abort_while_loading": "a client gave up on a request that waited for the host",
    "abort_while_running": "a client gave up on a request that decoded",
    "aborted_with_a_pass_in_flight": "a client gave up on a request that a launched pass still computed",
    "timeout_while_waiting": "a request without pages waited too long",
    "timeout_while_running": "a request that decoded took too long",
    "ended_out_of_memory": "not one more page could be had for the only request",
    "rejected_at_arrival": "a request that could never run was refused",
    "unit_taken_again_soon": "a page was taken within two steps of its freeing",
    "mixed_batch": "one pass computed prompts and decoded others",
    "overlapped_chunks": "a chunk was launched behind one of the same prompt that was still in flight",
    "scheduled_once_more_after_the_end": "a request had ended when a pass came back that had computed more of it",
    "computed_anew_beside_its_stale_pass": "a request that was put back began again before its old pass came back",
    "ran_out_with_a_pass_in_flight": "promised pages could not be had for who a launched pass still computed",
    "lookahead_reached_a_further_page": "a decode made room on a page that its next token does not need",
    "paused_with_a_parked_chunk": "a pause put back a chunk that was parked",
    "paused_with_a_pass_in_flight": "a pause put back who a launched pass still computed",
    "a_pass_was_late": "a pass was not done when it was asked for",
    "a_pass_failed": "a pass came to nothing",
    "a_pass_failed_with_another_behind_it": "the same with a further pass launched already",
    "request_ended_by_failures": "the passes of a request failed too often",
    "window_alone_loaded": "of a prefix that was on the device the host brought the window alone",
    "several_loads_under_way": "the host brought several prefixes at once",
    "load_under_way_joined": "a request waited for what the host was bringing for another",
    "load_failed": "what was to be loaded did not come",
    "backup_failed": "what was to be backed up was not copied",
    "copy_dropped_while_something_loads": "the host gave up a copy while it brought another",
    "put_back_and_loaded_again": "who had given back everything got it back from the host",
    "node_split_while_it_is_copied": "a node was split while it was copied to the host or from there",
    "second_pool_refused": "the first pool had memory for a take, and another one none behind its free pages",
    **TALK_PROBES,
}
