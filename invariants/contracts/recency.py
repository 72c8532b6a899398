"""The last use of a node is that of the events, by which the victims of evictions are chosen.

On a server: Prefixes in use are evicted before others, and their prompts are computed again.
"""

from swarden.invariants.events import CopyBegan, Locked, Split
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, node_ref


class RecencyCode(Code):
    NOT_USED = "last used at {last_used} before and at {now} now, but no request has used it"
    USED_UNNOTICED = "was used, but its last use is {last_used}, before {want}"


def uses_are_known(change: Transition) -> bool:
    """Are all nodes that were locked in the step in the tree before or after it?"""
    return all(
        not node or node in change.before.node_by_id or node in change.after.node_by_id for node in change.once(_used)
    )


@invariant(When.OP, needs=("nodes", "Locked", "Split", "CopyBegan"), given=uses_are_known)
def last_uses_follow_locks(change: Transition) -> Evidence:
    """A request or a load that locks a path marks its nodes as used, in the order of the locks; nothing else does.

    A backup locks a node without using it.  Both parts of a node that is split keep its last use.
    """
    before, after, used = change.before.node_by_id, change.after.node_by_id, change.once(_used)
    last: dict[int, int] = {}  # by node, the place of its last lock in the order
    for place, node_id in enumerate(used):
        last |= {node.id: place for node in (*change.before.path(node_id), *change.after.path(node_id))}
    split = {event.upper: event.node for event in reversed(change.events_of(Split))}
    for node in change.changes.nodes:
        earlier = before.get(split.get(node.id, node.id)) if node.id not in last else None
        if earlier is not None and earlier.last_used != node.last_used:
            values = {"last_used": earlier.last_used, "now": node.last_used}
            yield found(node_ref(node.id), RecencyCode.NOT_USED, **values)
    newest = max([node.last_used for node in before.values()], default=0) if used else 0
    for place in range(len(used)):
        path = [after[node_id] for node_id, at in last.items() if at == place and node_id in after]
        newest = max([newest + 1, *[node.last_used for node in path]]) if path else newest
        for node in path:
            if node.last_used < newest:
                yield found(node_ref(node.id), RecencyCode.USED_UNNOTICED, last_used=node.last_used, want=newest)


def _used(change: Transition) -> list[int]:
    """The nodes whose paths were locked, in order; not those of backups, whose copies begin behind the lock."""
    used: list[int] = []
    for event in change.in_order(Locked, CopyBegan):
        if isinstance(event, Locked):
            used.append(event.node)
        elif isinstance(event, CopyBegan) and event.to_host:
            del used[-1:]
    return used
