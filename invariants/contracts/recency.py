"""The last use of a node is that of the events, by which the victims of evictions are chosen.

On a server: Prefixes in use are evicted before others, and their prompts are computed again.
"""

from collections.abc import Iterator, Mapping

from swarden.invariants.events import TREE_KIND, CopyBegan, Freed, Locked, Split, Taken
from swarden.invariants.invariant import invariant
from swarden.invariants.past import idle_units, moved_units, units_of, unseen_readers
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, node_ref, unit_ref


class RecencyCode(Code):
    NOT_USED = "last used at {last_used} before and at {now} now, but no request has used it"
    OUTLIVED = "evicted {idle} transitions after its last reader, but {other} has had none for {longer}"
    USED_LATER = "evicted {idle} transitions after its last use, but no request can have used {other} for {longer}"
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

    In a prefix tree every unit that the cache frees counts as evicted.  Its last use is the last transition in which a
    request inserted it or began with it.  It is compared with leaves whose first page no request has had since.
    """
    past, idle, moved = change.reference.past, change.once(idle_units), change.once(moved_units)
    pools, has_tree = change.after.pool_by_name, change.after.nodes is not None
    since = past.used if has_tree else past.idle
    taken = {(event.pool, unit) for event in change.events_of(Taken) for unit in event.units}
    freed = [(one.pool, unit) for one in change.events_of(Freed) if one.owner.kind == TREE_KIND for unit in one.units]
    victims = [unit for unit in freed if unit in since and (has_tree or unit in taken)]
    newest = max([since[unit] for unit in victims], default=0)
    left = {unit: quiet for unit, quiet in past.idle.items() if quiet < newest and unit in idle and unit not in moved}
    left = dict(_leaf_units(change, left)) if has_tree and left else left
    for victim in victims:
        rivals = [unit for unit in left if unit[0] == victim[0] and left[unit] < since[victim]]
        for other in sorted(rivals, key=lambda unit: (left[unit], unit))[:1]:
            ages = {"idle": past.moment + 1 - since[victim], "longer": past.moment + 1 - left[other]}
            subject, rival = (unit_ref(pools[pool], unit) for pool, unit in (victim, other))
            yield found(subject, RecencyCode.USED_LATER if has_tree else RecencyCode.OUTLIVED, other=rival, **ages)


def _leaf_units(change: Transition, idle: Mapping[tuple[str, int], int]) -> Iterator[tuple[tuple[str, int], int]]:
    """Those of these units whose node is a leaf on the device, each with the last transition in which it may be used.

    A node may be used while the engine has a request with its first page, waiting or not.
    """
    reference, asked, before = change.reference, change.reference.past.asked, change.before.node_by_id
    states = (change.before, change.after)
    inner = {node.parent for state in states for node in state.nodes or () if any(node.live)}  # of nodes on the device
    forgotten = asked.keys() - reference.expectations.keys()
    for node in change.after.nodes or ():
        is_leaf = node.id not in inner and node.id in before and before[node.id].start == node.start
        left = [unit for unit in units_of(node, change.after.components) if unit in idle] if is_leaf else []
        if left:
            page = slice(node.start, node.start + change.after.limits.page_size)
            first = list(node.key[: page.stop - page.start])
            users = [request_id for request_id in asked if list(reference.tokens_of(request_id)[page]) == first]
            last = max([asked[request_id] for request_id in (*users, *forgotten)], default=0)
            yield from ((unit, max(idle[unit], last)) for unit in left)


def _used(change: Transition) -> list[int]:
    """The nodes whose paths were locked, in order; not those of backups, whose copies begin behind the lock."""
    used: list[int] = []
    for event in change.in_order(Locked, CopyBegan):
        if isinstance(event, Locked):
            used.append(event.node)
        elif isinstance(event, CopyBegan) and event.to_host:
            del used[-1:]
    return used
