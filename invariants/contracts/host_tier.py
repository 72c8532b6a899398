"""The copies that the host tier makes, keeps and drops.

On a server: The host has copies that cannot be used, or lacks those that it should have: prompts are computed again.
"""

from collections import Counter
from collections.abc import Set

import swarden.invariants.events as seen
from swarden.invariants.invariant import invariant, state_invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.violation import Code, Evidence, found, node_ref


class HostTierCode(Code):
    NO_COPY_OF_PREFIX = "the host has a copy of {component}, but none of its parent {parent}"
    WINDOW_COPIED_ALONE = "the host has a copy, but none of {component}"
    LIVE_BEHIND_A_TOMBSTONE = "live in {component}, but its parent {parent} is not"
    DROPPED_NEEDLESSLY = "its copy was dropped, but the backup had enough free pages without it"
    NOT_REPLACED = "its copy was dropped, but no backup followed"
    REMOVED_UNCOPIED = "removed to free {short} pages, but the host has no copy of its {uncopied} pages"
    TOMBSTONED_UNCOPIED = "lost its {short} pages, but the host has no copy of its {uncopied} pages"


@state_invariant(needs=("nodes", "copy_jobs"), reads=("nodes",))
def host_copies_follow_their_prefix(change: Transition) -> Evidence:
    """The host has a copy of a node only if its parent has one, and of windowed pages only with the unwindowed ones.

    On the device, too, a node is live in a component without a window only if its parent is.
    """
    after = change.after
    whole = [index for index, component in enumerate(after.components) if component.window is None]
    for node in change.changes.relatives:
        parent, subject = after.node_by_id.get(node.parent), node_ref(node.id)
        for index in whole:
            component = after.components[index].pool
            if any(node.copies) and not node.copies[index]:
                yield found(subject, HostTierCode.WINDOW_COPIED_ALONE, component=component)
            if parent is not None and node.copies[index] and not parent.copies[index]:
                above = node_ref(parent.id)
                yield found(subject, HostTierCode.NO_COPY_OF_PREFIX, component=component, parent=above)
            if parent is not None and node.live[index] and not parent.live[index]:
                above = node_ref(parent.id)
                yield found(subject, HostTierCode.LIVE_BEHIND_A_TOMBSTONE, component=component, parent=above)


def host_is_idle_and_healthy(change: Transition) -> bool:
    """Are all copies of this step successful backups that begin and end in it?"""
    return (
        not change.before.copy_jobs
        and not change.after.copy_jobs
        and all(event.to_host for event in change.events_of(seen.CopyBegan))
        and all(event.failure is None for event in change.events_of(seen.CopyEnded))
    )


@invariant(When.STEP, needs=("copy_jobs",), on=(seen.CopyDropped,))
def dropped_copies_are_replaced(change: Transition) -> Evidence:
    """A host copy is dropped only for a backup that needs its units.

    A backup must follow in the same step.  Whether it needed the units is judged for the last drop before it only.
    """
    free = {pool: len(change.before.pool(pool).free) for pool in change.before.host_pools}
    freed, freed_by_last = Counter[str](), Counter[str]()  # since the last drop; by it (its frees come before it)
    dropped = list[int]()
    for event in change.events:
        if isinstance(event, seen.Taken) and event.pool in free:
            free[event.pool] -= len(event.units)
        elif isinstance(event, seen.Freed) and event.pool in free:
            free[event.pool] += len(event.units)
            freed[event.pool] += len(event.units) if event.owner.kind == seen.TREE_KIND else 0
        elif isinstance(event, seen.CopyDropped):
            dropped.append(event.node)
            freed, freed_by_last = Counter(), freed
        elif isinstance(event, seen.CopyBegan) and event.to_host:
            if dropped and all(free[pool] >= count for pool, count in freed_by_last.items()):
                yield found(node_ref(dropped[-1]), HostTierCode.DROPPED_NEEDLESSLY)
            dropped.clear()
    yield from (found(node_ref(node), HostTierCode.NOT_REPLACED) for node in dropped)


def writes_back_and_is_healthy(change: Transition) -> bool:
    """Does the engine write back, and are all copies of this step successful backups that begin and end in it?"""
    return change.after.limits.writes_back and host_is_idle_and_healthy(change)


@invariant(When.STEP, needs=("nodes", "copy_jobs"), given=writes_back_and_is_healthy)
def evicted_nodes_are_written_back(change: Transition) -> Evidence:
    """With write-back a node is evicted without a copy only if the host pools are too small for that copy.

    Too small: the pages of the node and its ancestors do not fit beside the copies made in this step (sglang pulls
    29204 and 34046).  An ancestor needs windowed pages only if it has no copy, or its copy was dropped in this step.
    Not checked: steps with a load, a failed copy, or a copy in progress before or after; evictions during a copy;
    nodes created in the step; removed nodes that were tombstones.
    """
    newer, copied = Counter[str](), set[tuple[str, int]]()
    dropped = {event.node for event in change.events_of(seen.CopyDropped)}
    for began in [event for event in change.events_of(seen.CopyBegan) if event.to_host]:
        newer.update({change.after.host_pool_of[pool]: len(there) for pool, _, there in began.pages})
        copied.update((pool, unit) for pool, here, _ in began.pages for unit in here)
    in_progress = set[int]()  # with a slow host, other nodes are evicted meanwhile
    for event in change.tree_events:
        if isinstance(event, seen.CopyBegan):
            in_progress.add(event.job)
        elif isinstance(event, seen.CopyEnded):
            in_progress.discard(event.job)
        if in_progress:
            continue
        node = change.before.node_by_id.get(event.node) if isinstance(event, (seen.Removed, seen.Tombstoned)) else None
        is_childless_tombstone = isinstance(event, seen.Removed) and node is not None and not all(node.live)
        if node is not None and isinstance(event, (seen.Removed, seen.Tombstoned)) and not is_childless_tombstone:
            lost = _uncopied(change, node, event, copied)
            need = _pages_of_a_backup(change.before, node, dropped)
            if lost and all(change.before.pool(pool).capacity >= count + newer[pool] for pool, count in need.items()):
                is_removed = isinstance(event, seen.Removed)
                code = HostTierCode.REMOVED_UNCOPIED if is_removed else HostTierCode.TOMBSTONED_UNCOPIED
                yield found(node_ref(node.id), code, short=event.component, uncopied=lost)


def _uncopied(
    change: Transition, node: NodeView, event: seen.Removed | seen.Tombstoned, copied: Set[tuple[str, int]]
) -> str:
    """The pool of which a node lost pages without a copy; empty if there is none."""
    for index, component in enumerate(change.before.components):
        is_lost = isinstance(event, seen.Removed) or component.pool == event.component
        was_copied = any((component.pool, unit) in copied for unit in node.units[index])
        if is_lost and node.live[index] and not node.copies[index] and not was_copied:
            return component.pool
    return ""


def _pages_of_a_backup(snapshot: Snapshot, node: NodeView, dropped: Set[int]) -> dict[str, int]:
    """By host pool, the pages for copies of a node and its ancestors; of windowed pages, only those of new copies."""
    path, page_size = snapshot.path(node.id), snapshot.limits.page_size
    new = [above for above in path if above is node or not any(above.copies) or above.id in dropped]
    return {
        pool: sum(len(above.key) // page_size for above in (path if component.window is None else new))
        for pool, component in zip(snapshot.host_pools, snapshot.components, strict=True)
    }
