"""The order of eviction, and the number of units that an eviction must free.

A branch is the path from a root to a leaf.  Its tail are the nodes that its next token reads through the window.  The
pages of a node in a windowed pool are dead, or interior, if the node is in the tail of no branch.

On a server: Prefixes that are needed soon are evicted, and those that are not needed stay: the hit rate falls, or an
eviction frees too little.
"""

from collections.abc import Iterator
from itertools import chain

from swarden.invariants.contracts.shadow import Shadow, choices_in
from swarden.invariants.events import CopyDropped, Demoted, Evicted, Inserted, Locked, Recovered, Removed, Tombstoned
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import reachable_len
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView
from swarden.invariants.violation import Code, Evidence, found, node_ref, pool_ref


class EvictionCode(Code):
    STOPPED_EARLY = "needed {need}, freed {freed}, but {left} could still be evicted"
    WINDOW_BEFORE_DEAD_INTERIOR = "evicted from {pool} although a branch reads it; no branch reads {dead}"
    YOUNGER_BEFORE_OLDER = (
        "evicted from {pool}, last used at {last_used}, but {older} was last used at {older_last_used}"
    )
    BRANCH_LOST_ITS_WINDOW = "no longer matches to its end, but {dead}, which no branch reads, keeps its {pool} pages"


@invariant(When.OP, on=(Evicted,))
def evictions_free_what_is_needed(change: Transition) -> Evidence:
    """An eviction continues until each pool has enough free units or no evictable ones."""
    for event in change.events_of(Evicted):
        freed, left = dict(event.freed), dict(event.left)
        for pool, need in event.need:
            if freed.get(pool, 0) < need and left.get(pool, 0):
                values = {"need": need, "freed": freed.get(pool, 0), "left": left[pool]}
                yield found(pool_ref(pool), EvictionCode.STOPPED_EARLY, **values)


@invariant(When.OP, needs=("nodes", "windowed"), on=(Removed, Demoted, Tombstoned))
def dead_interior_is_evicted_first(change: Transition) -> Evidence:
    """A windowed pool first evicts dead pages: those that no branch reads through its window.

    Without the pages of its window, an idle branch cannot be matched any more (sglang issue 35515).  Checked up to the
    first insertion of the step.
    """
    for choice in change.once(choices_in):
        if choice.interior is not None:
            values = {"pool": choice.event.component, "dead": node_ref(choice.interior.id)}
            yield found(node_ref(choice.node.id), EvictionCode.WINDOW_BEFORE_DEAD_INTERIOR, **values)


@invariant(When.OP, needs=("nodes",), on=(Removed, Demoted, Tombstoned))
def eviction_is_least_recently_used(change: Transition) -> Evidence:
    """Of the nodes that may be evicted, the least recently used is evicted first.

    In a windowed pool, nodes with dead pages are compared only with each other, and so are the others.  Checked up to
    the first insertion of the step, without the nodes that were used in it and, with write-back, those without a copy.
    """
    for choice in change.once(choices_in):
        if choice.older is not None:
            yield found(
                node_ref(choice.node.id),
                EvictionCode.YOUNGER_BEFORE_OLDER,
                pool=choice.event.component,
                last_used=choice.node.last_used,
                older=node_ref(choice.older.id),
                older_last_used=choice.older.last_used,
            )


@invariant(When.OP, needs=("nodes", "windowed"), on=(Removed, Demoted, Tombstoned))
def idle_branches_keep_their_window(change: Transition) -> Evidence:
    """A branch that matched to its end still does after an eviction, if a windowed pool has enough dead pages.

    The prefixes that can be matched before and after the step are compared, unless something was inserted before the
    last eviction.
    """
    for index, component in enumerate(change.after.components):
        victims = _victims(change, index) if component.window is not None else set()
        spared = _dead_interior(change, index) if victims else []
        num_spared = sum(len(node.key) // change.after.limits.page_size for node in spared)
        if spared and num_spared >= _least_short(change, component.pool):
            for branch in _broken_branches(change, victims):
                values = {"pool": component.pool, "dead": node_ref(spared[0].id)}
                yield found(node_ref(branch.id), EvictionCode.BRANCH_LOST_ITS_WINDOW, **values)


def _victims(change: Transition, component: int) -> set[int]:
    """The nodes that lost pages of a windowed component, except those that were in the tail of no branch.

    The result is empty if something was inserted before the last of them lost its pages.
    """
    pool, victims, none = change.after.components[component].pool, set[int](), set[int]()
    for event in reversed(change.tree_events):
        if isinstance(event, (Removed, Demoted, Tombstoned)) and event.component == pool:
            victims.add(event.node)
        elif isinstance(event, (Inserted, Recovered)) and victims:
            return none
    nodes = change.before.node_by_id
    return {id for id in victims if id not in nodes or change.once(tree_before).is_in_tail(nodes[id], component)}


def tree_before(change: Transition) -> Shadow:
    """The tree before the step; the caller must not change it."""
    return Shadow(change.before)


def _least_short(change: Transition, pool: str) -> int:
    """The pages that an eviction would have lacked without those from windows; the least number of all evictions."""
    page_size, of_windows, short = change.after.limits.page_size, 0, list[int]()
    for event in change.tree_events:
        if isinstance(event, (Removed, Demoted, Tombstoned)) and event.component == pool and event.in_tail:
            node = change.before.node_by_id.get(event.node)
            of_windows += len(node.key) // page_size if node else 0
        elif isinstance(event, Evicted) and of_windows:
            short.append(dict(event.need).get(pool, 0) - dict(event.freed).get(pool, 0) + of_windows)
            of_windows = 0
    return min(short, default=0)


def _dead_interior(change: Transition, component: int) -> list[NodeView]:
    """The nodes with dead and unlocked pages both before and after the step."""
    touched = {node.id for lock in change.events_of(Locked) for node in change.after.path(lock.node)}
    gone: list[Removed | Demoted] = [*change.events_of(Removed), *change.events_of(Demoted)]
    touched.update(node.id for event in gone for node in change.before.path(event.node))
    both = set(_dead(change.once(tree_before), component)).intersection(_dead(Shadow(change.after), component))
    return [change.after.node_by_id[node] for node in sorted(both - touched)]


def _dead(tree: Shadow, component: int) -> Iterator[int]:
    """The ids of the nodes that are live, unlocked and in the tail of no branch."""
    for node in tree.nodes.values():
        if node.live[component] and not node.locks[component] and not tree.is_in_tail(node, component):
            yield node.id


def _broken_branches(change: Transition, victims: set[int]) -> Iterator[NodeView]:
    """The leaves of branches through victims that matched completely before the step, and do not after it.

    Copies on the host count as cached.  Branches that lost pages of a component without a window are left out.
    """
    before, after = change.before, change.after
    windowed = {component.pool for component in after.components if component.window is not None}
    gone: list[Removed | Demoted] = [*change.events_of(Removed), *change.events_of(Demoted)]
    lost = {event.node for event in gone if event.component not in windowed}
    lost.update(event.node for event in change.events_of(CopyDropped))
    for leaf in before.nodes or ():
        path = before.path(leaf.id)
        ids = {node.id for node in path}
        if not before.children.get(leaf.id) and ids & victims and not ids & lost:
            key = list(chain.from_iterable(node.key for node in reversed(path)))
            lengths = [reachable_len(state, leaf.namespace, key) for state in (before, after)]
            if lengths[0] == len(key) > lengths[1]:
                yield leaf
