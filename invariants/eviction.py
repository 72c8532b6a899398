"""What an eviction may take, in which order, and when it may end."""

from collections.abc import Iterator
from itertools import chain

from invariants.events import CopyDropped, Demoted, Evicted, Freed, Inserted, Locked, Recovered, Removed, Tombstoned
from invariants.invariant import invariant
from invariants.prefixes import reachable_len
from invariants.shadow import Shadow, choices_in
from invariants.transition import Transition, When
from invariants.view import TREE_KIND, NodeView, Snapshot
from invariants.violation import Evidence
from invariants.wording import deed_of, node_name


@invariant(When.OP, on=(Evicted,))
def evictions_meet_their_need(change: Transition) -> Evidence:
    """An eviction goes on until enough has come free in every pool, or nothing that may go is left in it."""
    freed: dict[str, int] = {}
    for event in change.tree_events:
        if isinstance(event, Freed) and event.owner.kind == TREE_KIND:
            freed[event.pool] = freed.get(event.pool, 0) + len(event.units)
        elif isinstance(event, Evicted):
            said, left = dict(event.freed), dict(event.left)
            for pool, need in event.need:
                if said.get(pool, 0) < need and left.get(pool, 0):
                    yield pool, f"needed {need}, freed {said.get(pool, 0)}, yet {left[pool]} could still be evicted"
            for pool, count in said.items():
                if count > freed.get(pool, 0):
                    yield pool, f"said to have freed {count}, yet the tree gave back {freed.get(pool, 0)}"
            freed = {}


@invariant(When.OP, needs=("nodes", "windowed"), on=(Removed, Demoted, Tombstoned))
def eviction_takes_the_dead_interior_first(change: Transition) -> Evidence:
    """A windowed pool first gives up what no branch reads through its window any more.

    Taking the window of an idle branch while others are dead costs that branch its cache (sglang issue 35515).
    """
    for choice in change.once(choices_in):
        if choice.interior is not None:
            detail = f"the end of a branch reads it, and {node_name(choice.interior.id)} is read by none"
            yield node_name(choice.node.id), f"{deed_of(choice.event)}, yet {detail}"


@invariant(When.OP, needs=("nodes",), on=(Removed, Demoted, Tombstoned))
def eviction_is_least_recently_used(change: Transition) -> Evidence:
    """Of the nodes that may go, the least recently used goes first."""
    for choice in change.once(choices_in):
        if choice.older is not None:
            older = f"{node_name(choice.older.id)} is used last at {choice.older.last_used}"
            detail = f"{older}, before {choice.node.last_used}"
            yield node_name(choice.node.id), f"{deed_of(choice.event)}, yet {detail}"


@invariant(When.OP, needs=("nodes", "windowed"), on=(Removed, Demoted, Tombstoned))
def idle_branches_keep_their_window(change: Transition) -> Evidence:
    """A branch that matched to its end still does after others were evicted, while a window has pages that none reads.

    Judged by what can be matched before and after, as long as nothing came into the tree before the last eviction.
    Where such pages would not have been enough a window had to go, and may have been more than enough without them.
    """
    for index, component in enumerate(change.after.components):
        victims = _victims(change, component.pool) if component.window is not None else set()
        spared = _dead_interior(change, index) if victims else []
        num_spared = sum(len(node.key) // change.after.limits.page_size for node in spared)
        if spared and num_spared >= _least_short(change, component.pool):
            for branch in _broken_branches(change, victims):
                detail = f"{node_name(spared[0].id)}, which none reads, keeps its {component.pool} pages"
                yield node_name(branch.id), f"does not match to its end any more, yet {detail}"


def _victims(change: Transition, pool: str) -> set[int]:
    """The nodes that gave up pages of one pool; none where something came into the tree before the last of them."""
    victims, found = set[int](), set[int]()
    for event in reversed(change.tree_events):
        if isinstance(event, (Removed, Demoted, Tombstoned)) and event.component == pool:
            victims.add(event.node)
        elif isinstance(event, (Inserted, Recovered)) and victims:
            return found
    return victims


def _least_short(change: Transition, pool: str) -> int:
    """How many pages of a pool an eviction that took windows would have lacked without them; the fewest of any."""
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
    """The nodes that had pages which no branch reads and nobody had locked, before the step and after it."""
    touched = {node.id for lock in change.events_of(Locked) for node in change.after.path(lock.node)}
    gone: list[Removed | Demoted] = [*change.events_of(Removed), *change.events_of(Demoted)]
    touched.update(node.id for event in gone for node in change.before.path(event.node))
    both = set.intersection(*({node.id for node in _dead(one, component)} for one in (change.before, change.after)))
    return [change.after.node_by_id[one] for one in sorted(both - touched)]


def _dead(snapshot: Snapshot, component: int) -> Iterator[NodeView]:
    """The nodes that are live, unlocked and in the tail of no branch."""
    shadow = Shadow(snapshot)
    for node in snapshot.nodes or ():
        if node.live[component] and not node.locks[component] and not shadow.is_in_tail(node, component):
            yield node


def _broken_branches(change: Transition, victims: set[int]) -> Iterator[NodeView]:
    """The ends of branches through victims which matched whole before the step, and do not after it, nor with the host.

    What went for want of room where the whole prefix is read is another matter.
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
            found = [reachable_len(one, leaf.namespace, key) for one in (before, after)]
            if found[0] == len(key) > found[1]:
                yield leaf
