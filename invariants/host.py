"""The host tier: what is where, and what is copied when."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from invariants.events import (
    Copied,
    CopyDropped,
    Dropped,
    Freed,
    Removed,
    Stored,
    Taken,
    Tombstoned,
    TransferBegan,
    TransferEnded,
)
from invariants.invariant import invariant, state_invariant
from invariants.transition import Transition, When
from invariants.view import BACKUP_KIND, LOAD_KIND, TREE_KIND, NodeView, Owner, PoolView, Snapshot, TransferView
from invariants.violation import Evidence
from invariants.wording import deed_of, node_name, standing, unit_of


class End(NamedTuple):
    """One end of a transfer in one component: the pool there, its units, and whether they are read or written."""

    pool: str
    units: Sequence[int]
    is_read: bool


@state_invariant(needs=("nodes", "transfers"), reads=("nodes",))
def copies_go_on_from_copies(change: Transition) -> Evidence:
    """The host has all of a node in a component or nothing, and only behind what it has of the nodes before it.

    Windows stand beside whole prefixes only; and on the device, too, what is read whole goes on from a root.
    A copy without what is before it could be matched by nobody.
    """
    after = change.after
    whole = [index for index, component in enumerate(after.components) if component.window is None]
    for node in change.changes.relatives:
        parent, name = after.node_by_id.get(node.parent), node_name(node.id)
        for index, component in enumerate(after.components):
            copies = node.copies[index]
            if copies and (len(copies) != len(node.units[index]) or not all(copies)):
                yield name, f"has the pages {list(copies)} on the host for {len(node.units[index])} of {component.pool}"
        for index in whole:
            pool = after.components[index].pool
            if any(node.copies) and not node.copies[index]:
                yield name, f"has copies on the host, yet none of {pool}"
            if parent is not None and node.copies[index] and not parent.copies[index]:
                yield name, f"has a copy of {pool}, {node_name(parent.id)} before it has none"
            if parent is not None and node.live[index] and not parent.live[index]:
                yield name, f"is live in {pool}, {node_name(parent.id)} before it is not"


@invariant(When.OP, needs=("nodes", "receipts", "transfers"))
def transfers_keep_both_ends(change: Transition) -> Evidence:
    """Until a transfer ends what it reads stays the tree's, locked here and pinned there, and what it writes its own.

    A page that is freed before it was copied is somebody else's by then (sglang pulls 26728 and 28468).
    """
    after, pins = change.after, Counter[tuple[int, int]]()
    for view in after.transfers or ():
        owner = Owner(BACKUP_KIND if view.to_host else LOAD_KIND, view.id)
        receipt = after.receipt_by_id.get(view.receipt)
        if receipt is None or receipt.holder != owner:
            yield str(owner), f"its receipt {view.receipt} is not out"
        for end in _ends(after, view):
            pool = after.pool(end.pool)
            for unit in end.units:
                found = pool.owner_of.get(unit)
                if (found is None or found.kind != TREE_KIND) if end.is_read else found != owner:
                    deed = "read" if end.is_read else "written"
                    yield unit_of(pool, unit), f"{deed} by {owner}, yet {standing(found)}"
        if not view.to_host:
            pins.update((index, unit) for index, units in enumerate(view.there) for unit in units)
    for node in after.nodes or ():
        for index, copies in enumerate(node.copies):
            read = max((pins[index, unit] for unit in copies), default=0)
            if read != node.pins[index]:
                yield (
                    node_name(node.id),
                    f"has {node.pins[index]} pins on its {after.host_pools[index]}, {read} read it",
                )


@invariant(When.OP, needs=("transfers",), on=(Copied,))
def copies_equal_their_source(change: Transition) -> Evidence:
    """When a transfer has ended well, each page holds the same here and there, to the bit."""
    for event in change.events_of(Copied):
        for here, there in event.different:
            yield unit_of(change.after.pool(event.pool), here), f"differs from page {there} on the host, its copy"


def the_host_keeps_up(change: Transition) -> bool:
    """Is nothing but backups begun in this step, each there at its end, and nothing under way before?"""
    return (
        not change.before.transfers
        and not change.after.transfers
        and all(event.to_host for event in change.events_of(TransferBegan))
        and all(event.failure is None for event in change.events_of(TransferEnded))
    )


@invariant(When.STEP, needs=("transfers",), on=(CopyDropped,))
def a_copy_gives_way_to_a_copy(change: Transition) -> Evidence:
    """No copy is given up for a backup that the host has no room for even then, or had room for without it."""
    free = {pool: len(change.before.pool(pool).free) for pool in change.before.host_pools}
    gives, gave, dropped = Counter[str](), Counter[str](), list[int]()  # the next copy that goes, and the last
    for event in change.events:
        if isinstance(event, Taken) and event.pool in free:
            free[event.pool] -= len(event.units)
        elif isinstance(event, Freed) and event.pool in free:
            free[event.pool] += len(event.units)
            gives[event.pool] += len(event.units) if event.owner.kind == TREE_KIND else 0
        elif isinstance(event, CopyDropped):
            dropped.append(event.node)
            gives, gave = Counter(), gives
        elif isinstance(event, TransferBegan) and event.to_host:
            if dropped and all(free[pool] >= count for pool, count in gave.items()):
                yield node_name(dropped[-1]), "its copy was given up, and what came in its place had room without"
            dropped.clear()
    yield from ((node_name(node), "its copy was given up, and none came in its place") for node in dropped)


def copies_come_before_eviction(change: Transition) -> bool:
    """Does it write back, and is nothing amiss with its host in this step?"""
    return change.after.limits.writes_back and the_host_keeps_up(change)


@invariant(When.STEP, needs=("nodes", "transfers"), given=copies_come_before_eviction)
def nothing_is_lost_while_the_host_has_room(change: Transition) -> Evidence:
    """With write-back nothing goes for good for which there is room on the host, if need be for older copies.

    Judged in steps in which nothing was being copied before, and no copy failed, where no copy is under way just then;
    what was copied in the step is not older (sglang pulls 29204 and 34046), and what gave its copy up in the step would
    have to be copied again.
    """
    newer, copied = Counter[str](), set[tuple[str, int]]()
    dropped = {event.node for event in change.events_of(CopyDropped)}
    for began in [event for event in change.events_of(TransferBegan) if event.to_host]:
        newer.update({change.after.host_pool_of[pool]: len(there) for pool, _, there in began.pages})
        copied.update((pool, unit) for pool, here, _ in began.pages for unit in here)
    under_way = set[int]()  # while the host is slow others go, as they do where it never answers
    for event in change.tree_events:
        if isinstance(event, TransferBegan):
            under_way.add(event.transfer)
        elif isinstance(event, TransferEnded):
            under_way.discard(event.transfer)
        if under_way:
            continue
        node = change.before.node_by_id.get(event.node) if isinstance(event, (Removed, Tombstoned)) else None
        is_left_over = isinstance(event, Removed) and node is not None and not all(node.live)  # it goes with a leaf
        if node is not None and isinstance(event, (Removed, Tombstoned)) and not is_left_over:
            lost = _uncopied(change, node, event, copied)
            need = _pages_of_a_backup(change.before, node, dropped)
            if lost and all(change.before.pool(pool).capacity >= count + newer[pool] for pool, count in need.items()):
                yield node_name(node.id), f"{deed_of(event)}, with no copy of its {lost} pages on the host"


@invariant(When.OP, needs=("nodes",))
def what_is_told_to_be_cached_is(change: Transition) -> Evidence:
    """What is told to come into the cache and to leave it is what the cache has more and less, in each pool.

    Whoever routes requests by these events would send them where nothing is.
    """
    page_size, told = change.after.limits.page_size, Counter[str]()
    pools = {False: {one.pool: one.pool for one in change.after.components}, True: change.after.host_pool_of}
    for stored in change.events_of(Stored):
        told[pools[stored.on_host][stored.component]] += len(stored.key) // page_size
    for dropped in change.events_of(Dropped):
        told[pools[dropped.on_host][dropped.component]] -= dropped.length // page_size
    for pool in change.after.pools:
        came = _num_cached(pool) - _num_cached(change.before.pool(pool.name))
        if came != told[pool.name]:
            yield pool.name, f"has {came:+d} cached {pool.unit}s, {told[pool.name]:+d} were told"


def _num_cached(pool: PoolView) -> int:
    return sum([len(holding.units) for holding in pool.holdings if holding.cached])


def _ends(snapshot: Snapshot, view: TransferView) -> Iterator[End]:
    """Both ends of a transfer, by component."""
    for index, component in enumerate(snapshot.components):
        yield End(component.pool, view.here[index], is_read=view.to_host)
        yield End(snapshot.host_pools[index], view.there[index], is_read=not view.to_host)


def _uncopied(change: Transition, node: NodeView, event: Removed | Tombstoned, copied: Set[tuple[str, int]]) -> str:
    """In which pool a node gave something up of which no copy was there, nor was made; empty where there is none."""
    for index, component in enumerate(change.before.components):
        is_meant = isinstance(event, Removed) or component.pool == event.component
        was_copied = any((component.pool, unit) in copied for unit in node.units[index])
        if is_meant and node.live[index] and not node.copies[index] and not was_copied:
            return component.pool
    return ""


def _pages_of_a_backup(snapshot: Snapshot, node: NodeView, dropped: Set[int]) -> dict[str, int]:
    """By pool on the host, the pages that it must have for a copy of a node: with those before it, but for windows
    of nodes whose copies are there."""
    path, page_size = snapshot.path(node.id), snapshot.limits.page_size
    new = [one for one in path if one is node or not any(one.copies) or one.id in dropped]
    return {
        pool: sum(len(one.key) // page_size for one in (path if component.window is None else new))
        for pool, component in zip(snapshot.host_pools, snapshot.components, strict=True)
    }
