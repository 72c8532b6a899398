"""Rare states of an engine with a pool of recurrent states; see probes.py."""

from collections.abc import Iterator

from swarden.invariants import events as seen
from swarden.invariants.transition import Transition

STATE_PROBES = {
    "evicted_as_a_request_starts_from_a_state": "states were evicted in a step in which a request started from another",
    "state_alone_loaded": "a load restored only the state of a prefix",
    "state_tombstone_on_a_live_node": "a node lost its states and kept its other pages",
    "drafts_accepted_in_part": "a request went on from a state before the last draft, because that draft was rejected",
}


def state_probes_of(change: Transition) -> Iterator[str]:
    """The probes of recurrent states that a transition reaches; an engine without such states reaches none."""
    for index in change.after.stateful or ():
        pool, known = change.after.components[index].pool, change.before.node_by_id
        matched = [event for event in change.events_of(seen.Matched) if event.length]
        tombstoned = [event for event in change.events_of(seen.Tombstoned) if event.component == pool]
        if tombstoned:
            yield "state_tombstone_on_a_live_node"
        removed = [event for event in change.events_of(seen.Removed) if event.node in known]
        if matched and (tombstoned or any(known[event.node].live[index] for event in removed)):
            yield "evicted_as_a_request_starts_from_a_state"
        for began in change.events_of(seen.CopyBegan):
            if not began.to_host and [copied_pool for copied_pool, _, _ in began.pages] == [pool]:
                yield "state_alone_loaded"
        for verified in change.events_of(seen.Verified):
            if 0 < verified.num_accepted < len(verified.tokens) - 1:
                yield "drafts_accepted_in_part"
