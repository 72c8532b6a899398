"""Rare states of recurrent states; see probes.py."""

from collections.abc import Iterator

from invariants import events as seen
from invariants.prefixes import columns_of
from invariants.transition import Transition

STATE_PROBES = {
    "evicted_as_a_request_starts_from_a_state": "states were evicted in a step in which a request started from another",
    "started_from_a_state_in_a_backup": "a request started from a cached state that a backup was reading",
    "state_alone_loaded": "a load restored only the state of a prefix",
    "state_tombstone_on_a_live_node": "a node lost its states and kept its other pages",
    "drafts_accepted_in_part": "a request went on from a state before the last draft, because that draft was rejected",
    "turn_went_back_to_a_state": "a turn continued before the end of what its session kept, from an earlier state",
}


class StateWatch:
    """Detects the probes of recurrent states; an engine without them reaches none."""

    def look(self, change: Transition) -> Iterator[str]:
        """The probes that a transition reaches."""
        for index, component in enumerate(change.after.components):
            if component.has_states:
                yield from self._of_pool(change, index, component.pool)

    def _of_pool(self, change: Transition, index: int, pool: str) -> Iterator[str]:
        matched = [event for event in change.events_of(seen.Matched) if event.length]
        tombstoned = [event for event in change.events_of(seen.Tombstoned) if event.component == pool]
        if tombstoned:
            yield "state_tombstone_on_a_live_node"
        if matched and (tombstoned or change.events_of(seen.Removed)):
            yield "evicted_as_a_request_starts_from_a_state"
        copied = {unit for job in change.before.copy_jobs or () if job.to_host for unit in job.here[index]}
        for event in matched if copied else ():
            place = event.length // change.before.page_sizes[index] - 1
            units = columns_of(change.before, event.namespace, event.key)[index]
            if units[place : place + 1] and units[place] in copied:
                yield "started_from_a_state_in_a_backup"
        for began in change.events_of(seen.CopyBegan):
            if not began.to_host and [copied_pool for copied_pool, _, _ in began.pages] == [pool]:
                yield "state_alone_loaded"
        for verified in change.events_of(seen.Verified):
            if 0 < verified.num_accepted < len(verified.tokens) - 1:
                yield "drafts_accepted_in_part"
        for lent in change.events_of(seen.Lent):
            session = change.before.session_by_id.get(lent.session)
            if session is not None and lent.length < session.kept_len:
                yield "turn_went_back_to_a_state"
