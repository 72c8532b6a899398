"""An eviction frees no more units than are taken.

On a server: Prefixes for which there was room are lost: the hit rate falls, while all answers are right.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, takewhile

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.past import units_of
from swarden.invariants.prefixes import columns_of
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView
from swarden.invariants.violation import Code, Evidence, found, pool_ref

# The demand of these is in no event: what was evicted for them may be taken by nobody.
UNKNOWN_DEMAND = (
    *(seen.Retracted, seen.Preempted, seen.RanOut, seen.GaveWay, seen.Refused, seen.Fired, seen.Rejected),
    *(seen.CacheReset, seen.Flushed, seen.Failed),
)
Unit = tuple[str, int]


class NeededEvictionCode(Code):
    EVICTED_IN_VAIN = "evicted {evicted} units while {free} were free, and {taken} were taken"


@invariant(When.STEP, needs=("Taken", "Freed"), on=(seen.Freed,))
def evictions_serve_takes(change: Transition) -> Evidence:
    """An eviction ends when as many units are free as the step takes; only its last victim may bring more.

    A victim is a node with the tombstones above it, or a block.  The eviction may go on while any pool that it frees is
    short, also of the pages of running requests whose next pass comes later.  Not checked: a step in which a take was
    given up, as what was evicted for it is taken by nobody.
    """
    launched = {entry[0] for event in change.events_of(seen.Launched) for entry in event.entries}
    known = [*(change.before.requests or ()), *(change.after.requests or ())]
    later = {one.id for one in known if one.place == Place.RUNNING and one.id not in launched}
    ahead = len(later) * (1 + change.after.limits.lookahead_len)
    of_tree = {event.pool for event in change.events_of(seen.Freed) if event.owner.kind == seen.TREE_KIND}
    has_spare = any(len(pool.free) > ahead for pool in change.after.pools if pool.name in of_tree)
    lost = _lost_units(change) if has_spare and not change.in_order(*UNKNOWN_DEMAND) else {}
    if not lost:  # or without units to spare no eviction was too large
        return
    moves = [one for one in change.in_order(seen.Taken, seen.Freed) if isinstance(one, (seen.Taken, seen.Freed))]
    free, needs = Counter({pool.name: len(pool.free) for pool in change.before.pools}), Counter[str]()
    for event in change.events_of(seen.Taken):
        needs[event.pool] += len(event.units)
    evicted, start = dict[str, Counter[int]](), free.copy()  # the free units before the evictions of the tree
    for move in (*moves, None):
        if isinstance(move, seen.Freed) and move.owner.kind == seen.TREE_KIND:
            if victims := [lost[move.pool, unit] for unit in move.units if (move.pool, unit) in lost]:
                evicted.setdefault(move.pool, Counter()).update(victims)
        elif evicted:
            spare = [
                start[pool] + of_pool.total() - max(of_pool.values()) >= needs[pool] + ahead
                and pool in change.once(_still_evictable)
                for pool, of_pool in evicted.items()
            ]
            for pool, of_pool in evicted.items() if all(spare) and any(needs[name] for name in evicted) else ():
                counts = {"evicted": of_pool.total(), "free": start[pool], "taken": needs[pool]}
                yield found(pool_ref(pool), NeededEvictionCode.EVICTED_IN_VAIN, **counts)
            evicted = {}
        if isinstance(move, seen.Taken):
            free[move.pool] -= len(move.units)
            needs[move.pool] -= len(move.units)
        elif move is not None and not move.after:
            free[move.pool] += len(move.units)
        if move is not None and move.owner.kind != seen.TREE_KIND:
            start = free.copy()


def _still_evictable(change: Transition) -> set[str]:
    """The pools of which an eviction could have freed more: a cached unit had no reader all the step.

    Of other pools it is not known whether the eviction was given up, because it did not suffice.
    """
    idle = list[set[Unit]]()
    for pools in (change.before.pools, change.after.pools):
        held = [(pool.name, one.units) for pool in pools for one in pool.holdings if one.cached and not one.locks]
        idle.append({(pool, unit) for pool, units in held for unit in units})
    return {pool for pool, _ in idle[0] & idle[1]}


def _lost_units(change: Transition) -> Mapping[Unit, int]:
    """The units of the device that the tree has freed, without pages in their place, each with its victim.

    That is a node with the tombstones above it, which go when it goes; without a tree each unit.
    """
    pools = {component.pool for component in change.after.components}
    of_tree = [event for event in change.events_of(seen.Freed) if event.owner.kind == seen.TREE_KIND]
    freed = {(event.pool, unit): unit for event in of_tree if event.pool in pools for unit in event.units}
    return dict(_of_nodes(change, freed)) if freed and change.before.nodes is not None else freed


def _of_nodes(change: Transition, freed: Mapping[Unit, int]) -> Iterator[tuple[Unit, int]]:
    before, size = change.before, change.before.limits.page_size
    for node in before.nodes or ():
        if not freed.keys().isdisjoint(units_of(node, before.components)):
            path = before.path(node.id)
            columns = columns_of(change.after, node.namespace, [*chain.from_iterable(one.key for one in path[::-1])])
            for component, units, now in zip(before.components, node.units, columns, strict=True):
                victim = _victim(change, path, component.pool)
                for place, unit in enumerate(units, start=node.start // size):
                    if (component.pool, unit) in freed and not any(now[place : place + 1]):
                        yield (component.pool, unit), victim


def _victim(change: Transition, path: Sequence[NodeView], pool: str) -> int:
    """The topmost of the tombstones that go with a node, whose path to the root this is; the node if there is none.

    Some become tombstones of other pools in the same step.  An engine with several pools may not report which; there
    it is each node above that has left the tree.
    """
    if len(change.before.components) > 1 and seen.Tombstoned.__name__ in change.after.missing:
        made = {one.id for one in path} - change.after.node_by_id.keys()
    else:
        made = {event.node for event in change.events_of(seen.Tombstoned) if event.component != pool}
    node, *above = path
    return [node, *takewhile(lambda one: not all(one.live) or one.id in made, above)][-1].id
