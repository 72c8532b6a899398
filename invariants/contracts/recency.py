"""The last use of a node is that of the events, by which the victims of evictions are chosen.

On a server: Prefixes in use are evicted before others, and their prompts are computed again.
"""

from swarden.invariants.events import TREE_KIND, CopyBegan, Freed, Locked, Split, Taken
from swarden.invariants.invariant import invariant
from swarden.invariants.past import idle_units, moved_units, unseen_readers
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, node_ref, unit_ref


class RecencyCode(Code):
    NOT_USED = "last used at {last_used} before and at {now} now, but no request has used it"
    OUTLIVED = "evicted {idle} transitions after its last reader, but {other} has had none for {longer}"
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


def readers_are_seen(change: Transition) -> bool:
    """Does the engine evict first what had no reader for longest, and is each reader before or after the step?"""
    return change.after.limits.evicts_longest_idle and not unseen_readers(change)


@invariant(When.OP, needs=("Taken",), on=(Freed,), given=readers_are_seen)
def longest_idle_units_are_evicted_first(change: Transition) -> Evidence:
    """Of the cached units without a reader, the one that has had none for longest is evicted first.

    The time is the number of transitions since its last reader.  A unit is evicted if the cache frees it and it is
    taken in the same transition; those that an engine drops for another reason are not.
    """
    past, idle, moved = change.reference.past, change.once(idle_units), change.once(moved_units)
    pools = change.after.pool_by_name
    taken = {(event.pool, unit) for event in change.events_of(Taken) for unit in event.units}
    freed = [(one.pool, unit) for one in change.events_of(Freed) if one.owner.kind == TREE_KIND for unit in one.units]
    left = [unit for unit in past.idle if unit in idle and unit not in moved] if freed else []
    for victim in [unit for unit in freed if unit in taken and unit in past.idle]:
        rivals = [unit for unit in left if unit[0] == victim[0] and past.idle[unit] < past.idle[victim]]
        for other in sorted(rivals, key=lambda unit: (past.idle[unit], unit))[:1]:
            ages = {"idle": past.moment + 1 - past.idle[victim], "longer": past.moment + 1 - past.idle[other]}
            subject, rival = (unit_ref(pools[pool], unit) for pool, unit in (victim, other))
            yield found(subject, RecencyCode.OUTLIVED, other=rival, **ages)


def _used(change: Transition) -> list[int]:
    """The nodes whose paths were locked, in order; not those of backups, whose copies begin behind the lock."""
    used: list[int] = []
    for event in change.in_order(Locked, CopyBegan):
        if isinstance(event, Locked):
            used.append(event.node)
        elif isinstance(event, CopyBegan) and event.to_host:
            del used[-1:]
    return used
