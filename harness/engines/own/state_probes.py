"""Rare states of an engine with a pool of recurrent states; see probes.py."""

from collections.abc import Iterator

from invariants import events as seen
from invariants.transition import Transition

STATE_PROBES = {
    "evicted_as_a_request_starts_from_a_state": "states were evicted in a step in which a request started from another",
    "state_alone_loaded": "a load restored only the state of a prefix",
    "state_tombstone_on_a_live_node": "a node lost its states and kept its other pages",
    "drafts_accepted_in_part": "a request went on from a state before the last draft, because that draft was rejected",
}


class StateWatch:
    """Detects the probes of recurrent states; an engine without them reaches none."""

    def look(self, change: Transition) -> Iterator[str]:
        """The probes that a transition reaches."""
        for component in change.after.components:
            if component.has_states:
                yield from self._of_pool(change, component.pool)

    def _of_pool(self, change: Transition, pool: str) -> Iterator[str]:
        matched = [event for event in change.events_of(seen.Matched) if event.length]
        tombstoned = [event for event in change.events_of(seen.Tombstoned) if event.component == pool]
        if tombstoned:
            yield "state_tombstone_on_a_live_node"
        if matched and (tombstoned or change.events_of(seen.Removed)):
            yield "evicted_as_a_request_starts_from_a_state"
        for began in change.events_of(seen.CopyBegan):
            if not began.to_host and [copied_pool for copied_pool, _, _ in began.pages] == [pool]:
                yield "state_alone_loaded"
        for verified in change.events_of(seen.Verified):
            if 0 < verified.num_accepted < len(verified.tokens) - 1:
                yield "drafts_accepted_in_part"
