"""The pages of states that a node and a record have.  The laws demand fewer: an engine may drop most of them.

On a server: Recurrent states keep pages that no pass reads, so that fewer requests run; or a state is missing, and its
prefix must be computed again.
"""

from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Code, Evidence, found, node_ref, owner_ref, unit_ref
from swarden.invariants.windows import next_position


class StatePagesCode(Code):
    NODE_LACKS_PAGES = "live in {component}, but lacks some of its pages (0: none): {pages}"
    KEPT_BELOW_FRONTIER = "still has {unit} for position {start}, below its frontier {frontier}"
    LAST_STATE_MISSING = "no {component} page for the state after its last token, at position {position}"


@state_invariant(needs=("nodes", "stateful"), reads=("nodes",))
def live_nodes_hold_all_states(change: Transition) -> Evidence:
    """A node that is live in a component of states has all of its pages there, so that it can be split at any page."""
    for index in change.after.stateful or ():
        for node in change.changes.nodes:
            if node.live[index] and not all(node.units[index]):
                pool = change.after.components[index].pool
                yield found(
                    node_ref(node.id), StatePagesCode.NODE_LACKS_PAGES, component=pool, pages=tuple(node.units[index])
                )


@state_invariant(needs=("records", "stateful"), reads=("records",))
def passed_states_are_freed(change: Transition) -> Evidence:
    """A record has no private page of states below its frontier."""
    after = change.after
    for index in after.stateful or ():
        pool, size = after.pool(after.components[index].pool), after.page_sizes[index]
        for record in change.changes.records:
            first, frontier = record.protected_len // size, record.frontiers[index]
            for place, unit in enumerate(record.units[index][first : frontier // size], start=first):
                if unit:
                    values = {"unit": unit_ref(pool, unit), "start": place * size, "frontier": frontier}
                    yield found(owner_ref(record.owner), StatePagesCode.KEPT_BELOW_FRONTIER, **values)


@state_invariant(needs=("records", "stateful"), reads=("records",))
def records_keep_their_last_state(change: Transition) -> Evidence:
    """A record has the page of the state after its last launched token, from which its next pass or turn goes on.

    A record in transfer has the page of the state after its last transferred token.
    """
    after = change.after
    for index in after.stateful or ():
        pool, size = after.components[index].pool, after.page_sizes[index]
        for record in after.records or ():
            last = next_position(record) - 1
            if last >= 0 and not any(record.units[index][last // size : last // size + 1]):
                yield found(owner_ref(record.owner), StatePagesCode.LAST_STATE_MISSING, component=pool, position=last)
