"""Probes: rare states that a campaign must reach, by name; a watch records those that one run reaches."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import get_type_hints

from swarden.engine_under_test.units import align_up
from swarden.harness.engines.own.pair_probes import PairWatch
from swarden.harness.engines.own.talk_probes import TALK_PROBES, SessionWatch
from swarden.invariants import events as seen
from swarden.invariants.events import FinishReason
from swarden.invariants.kinds import Place
from swarden.invariants.transition import Transition
from swarden.invariants.view import Snapshot

REUSE_TRANSITIONS = 2  # a unit taken within so many transitions of its free counts as taken again soon
COMPLETE = (FinishReason.STOP, FinishReason.LENGTH)  # the finish reasons of a complete output

Stretch = tuple[int, int, int]  # a request and the positions [start, end) of it that a pass computes


class ProbeWatch:
    """The probes that one run has reached, how often each fault fired, and the state needed to detect the probes."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.fired: Counter[str] = Counter()
        self._parked: set[int] = set()
        self._freed: deque[set[tuple[str, int]]] = deque(maxlen=REUSE_TRANSITIONS + 1)
        self._admitted: set[Stretch] = set()
        self._in_flight: dict[int, Sequence[Stretch]] = {}
        self._done: set[int] = set()
        self._requeued: set[int] = set()
        self._sessions = SessionWatch()
        self._pairs = PairWatch()

    def look(self, change: Transition) -> None:
        """Add the probes that `change` reaches."""
        self._freed.append(set())
        self._admitted.clear()
        self.seen.update(self._sessions.look(change))
        self.seen.update(self._pairs.look(change))
        self.seen.update(state_probes_of(change))
        for event in change.events:
            handler = HANDLERS.get(type(event))
            if handler is not None:
                handler(self, change, event)

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
        self._requeued.add(event.request_id)

    def _on_preempted(self, change: Transition, event: seen.Preempted) -> None:
        self.seen.add("preempted")
        self._requeued.add(event.request_id)

    def _on_ran_out(self, change: Transition, event: seen.RanOut) -> None:
        if event.request_id in self._ids_in_flight():
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
        copied = {view.receipt for view in change.before.copy_jobs or ()}
        if any(event.node in receipt.covers[0] for receipt in change.before.receipts or () if receipt.id in copied):
            self.seen.add("node_split_while_it_is_copied")

    def _on_slid(self, change: Transition, event: seen.Slid) -> None:
        for component in change.after.components:
            if component.window is not None:
                wider = component.window > change.after.limits.page_size
                self.seen.add("slid_with_window_above_page" if wider else "slid_with_page_at_least_window")

    def _on_copy_began(self, change: Transition, event: seen.CopyBegan) -> None:
        loaded = {pool for pool, _, _ in event.pages}
        whole = {component.pool for component in change.after.components if component.window is None}
        if not event.to_host and whole and whole.isdisjoint(loaded):
            self.seen.add("window_alone_loaded")
        if sum(not view.to_host for view in change.after.copy_jobs or ()) > 1:
            self.seen.add("several_loads_under_way")

    def _on_copy_ended(self, change: Transition, event: seen.CopyEnded) -> None:
        view = next((view for view in change.before.copy_jobs or () if view.id == event.job), None)
        if event.failure is not None and view is not None:
            self.seen.add("backup_failed" if view.to_host else "load_failed")

    def _on_copy_dropped(self, change: Transition, event: seen.CopyDropped) -> None:
        if any(not view.to_host for view in change.before.copy_jobs or ()):
            self.seen.add("copy_dropped_while_something_loads")

    def _on_load_planned(self, change: Transition, event: seen.LoadPlanned) -> None:
        if event.job and not any(count for _, count in event.firm):
            self.seen.add("load_under_way_joined")
        if event.request_id in self._requeued:
            self.seen.add("put_back_and_loaded_again")

    def _on_finished(self, change: Transition, event: seen.Finished) -> None:
        if event.reason in (FinishReason.ABORT, FinishReason.TIMEOUT):
            place = next((r.place for r in change.before.requests or () if r.id == event.request_id), "unknown")
            self.seen.add(f"{event.reason}_while_{place}")
            if event.reason == FinishReason.ABORT and event.request_id in self._ids_in_flight():
                self.seen.add("aborted_with_a_pass_in_flight")
        elif event.reason == FinishReason.OUT_OF_MEMORY:
            self.seen.add("ended_out_of_memory")
        elif event.reason == FinishReason.FORWARD_FAILED:
            self.seen.add("request_ended_by_failures")
        elif event.reason in COMPLETE:
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

    def _ids_in_flight(self) -> set[int]:
        """The requests with an entry in a pass in flight."""
        return {request_id for entries in self._in_flight.values() for request_id, _, _ in entries}

    def _on_freed(self, change: Transition, event: seen.Freed) -> None:
        self._freed[-1].update((event.pool, unit) for unit in event.units)

    def _on_taken(self, change: Transition, event: seen.Taken) -> None:
        if any((event.pool, unit) in freed for unit in event.units for freed in self._freed):
            self.seen.add("unit_taken_again_soon")


def resident_len(snapshot: Snapshot, event: seen.Matched) -> int:
    """The tokens of a matched key, without its last one, that whole nodes of the tree have, tombstones included."""
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


def state_probes_of(change: Transition) -> Iterator[str]:
    """The probes of recurrent states that a transition reaches; an engine without such states reaches none."""
    for index in change.after.stateful or ():
        pool, nodes = change.after.components[index].pool, change.before.node_by_id
        matched = [event for event in change.events_of(seen.Matched) if event.length]
        tombstoned = [event for event in change.events_of(seen.Tombstoned) if event.component == pool]
        if tombstoned:
            yield "state_tombstone_on_a_live_node"
        removed = [event for event in change.events_of(seen.Removed) if event.node in nodes]
        if matched and (tombstoned or any(nodes[event.node].live[index] for event in removed)):
            yield "evicted_as_a_request_starts_from_a_state"
        for began in change.events_of(seen.CopyBegan):
            if not began.to_host and [copied_pool for copied_pool, _, _ in began.pages] == [pool]:
                yield "state_alone_loaded"
        for verified in change.events_of(seen.Verified):
            if 0 < verified.num_accepted < len(verified.tokens) - 1:
                yield "drafts_accepted_in_part"


# By type of event, the method that takes it.
HANDLERS: dict[type, Callable[..., None]] = {
    get_type_hints(method)["event"]: method for name, method in vars(ProbeWatch).items() if name.startswith("_on_")
}

# The meaning of each probe. A campaign has a floor for each of them.
ENGINE_PROBES = {
    "chunk_parked": "a prefill was parked because its next chunk had no free pages",
    "parked_chunk_progressed": "a parked prefill continued",
    "retracted": "a running request was retracted because free pages ran out",
    "retracted_with_an_unfinished_chunk": "a request was retracted while another prefill was unfinished",
    "preempted": "a running request was preempted by one of higher priority",
    "tombstone_recovered": "an unlocked tombstone became live again",
    "tombstone_recovered_over_a_locked_node": "a locked tombstone received the peers of incoming pages",
    "match_cut_short_by_a_tombstone": "a match ended at a tombstone although the tree held more of the prompt",
    "evicted_inside_a_running_prefill": "pages were evicted while a prefill was unfinished",
    "node_split_under_lock": "a locked node was split",
    "slid_with_window_above_page": "a window larger than a page slid and freed pages",
    "slid_with_page_at_least_window": "a window of at most a page slid and freed pages",
    "abort_while_waiting": "a client aborted a waiting request",
    "abort_while_chunked": "a client aborted a request with an unfinished prefill",
    "abort_while_loading": "a client aborted a request that waited for a load from the host",
    "abort_while_running": "a client aborted a running request",
    "aborted_with_a_pass_in_flight": "a client aborted a request with a pass in flight",
    "timeout_while_waiting": "a waiting request timed out",
    "timeout_while_running": "a running request timed out",
    "ended_out_of_memory": "a request ended because too few pages were free for it alone",
    "rejected_at_arrival": "a request that can never run was rejected at its arrival",
    "unit_taken_again_soon": "a page or a row was taken within two transitions of its free",
    "mixed_batch": "one pass had both prefill and decode entries",
    "overlapped_chunks": "a chunk was launched while the previous chunk of its prompt was in flight",
    "scheduled_once_more_after_the_end": "a pass completed for a request that had finished before",
    "computed_anew_beside_its_stale_pass": "a requeued request restarted its prefill while its old pass was in flight",
    "ran_out_with_a_pass_in_flight": "reserved pages were not available for a request with a pass in flight",
    "lookahead_reached_a_further_page": "a decode allocated a page that only its lookahead tokens need",
    "paused_with_a_parked_chunk": "a pause requeued a parked prefill",
    "paused_with_a_pass_in_flight": "the engine was paused with a pass in flight",
    "a_pass_was_late": "a pass was not complete when its result was collected",
    "a_pass_failed": "a pass failed",
    "a_pass_failed_with_another_behind_it": "a pass failed while a later pass was in flight",
    "request_ended_by_failures": "a request ended because its passes failed too often",
    "window_alone_loaded": "a load restored only the windowed pages of a prefix",
    "several_loads_under_way": "several loads were in flight at once",
    "load_under_way_joined": "a request joined a load in flight of another request",
    "load_failed": "a load from the host failed",
    "backup_failed": "a backup to the host failed",
    "copy_dropped_while_something_loads": "the host tier dropped a copy while a load was in flight",
    "put_back_and_loaded_again": "a requeued request loaded its prefix from the host",
    "node_split_while_it_is_copied": "a node was split while a backup or load of it was in flight",
    "second_pool_refused": "a pool other than the first refused an allocation although it had enough free pages",
    **TALK_PROBES,
    "evicted_as_a_request_starts_from_a_state": "states were evicted in a step in which a request started from another",
    "state_alone_loaded": "a load restored only the state of a prefix",
    "state_tombstone_on_a_live_node": "a node lost its states and kept its other pages",
    "drafts_accepted_in_part": "a request went on from a state before the last draft, because that draft was rejected",
}
