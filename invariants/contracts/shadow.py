"""The nodes that an eviction could have chosen, for each node that it chose."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from swarden.invariants.events import CopyDropped, Demoted, Inserted, Locked, Recovered, Removed, Split, Tombstoned
from swarden.invariants.transition import Transition
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.windows import tail_len

Victim = Removed | Demoted | Tombstoned


class Choice(NamedTuple):
    """A victim, and the nodes that should have been evicted before it for the same component.

    The tail of a branch are the nodes that its next token reads through the window; the other nodes are interior.
    `interior` is the least recently used interior node, if the victim is in a tail.  `older` is the least recently used
    node of the victim's kind (tail or interior), if used before the victim.
    """

    event: Victim
    node: NodeView
    interior: NodeView | None
    older: NodeView | None


def choices_in(change: Transition) -> list[Choice]:
    return list(choices(change.before, change.tree_events))


def choices(before: Snapshot, events: Sequence[NamedTuple]) -> Iterator[Choice]:
    """The choices of the step up to the first insertion; the tree before the step does not determine later ones.

    A tombstone that is removed because it lost its last child was not chosen.
    """
    shadow = Shadow(before)
    components = {component.pool: index for index, component in enumerate(before.components)}
    for event in events:
        if isinstance(event, (Inserted, Recovered)):
            return
        if isinstance(event, Split):
            shadow.split(event)
        elif isinstance(event, Locked):
            shadow.touch(event.node)
        elif isinstance(event, (Removed, Demoted, Tombstoned)):
            node, component = shadow.nodes.get(event.node), components.get(event.component)
            if node is not None and component is not None and not shadow.is_childless_tombstone(node):
                yield shadow.choice(event, node, component)
            shadow.evict(event, component)
        elif isinstance(event, CopyDropped):
            shadow.drop_copy(event)


class Queues(NamedTuple):
    """The nodes that one component may evict, as heaps of (last use, id)."""

    tails: list[tuple[int, int]]
    interior: list[tuple[int, int]]


class Shadow:
    """The tree before a step, as views, changed by its events; stale entries of a queue are dropped at its head."""

    def __init__(self, before: Snapshot) -> None:
        self.nodes = dict(before.node_by_id)
        self._components = before.components
        self._writes_back = before.limits.writes_back
        self._page_size = before.limits.page_size
        self._children: dict[int, list[int]] = {}
        for node in self.nodes.values():
            self._children.setdefault(node.parent, []).append(node.id)
        self._touched: set[int] = set()  # locked or used in the step
        self._lost_child: set[int] = set()  # lost a child in the step
        self._queues: dict[int, Queues] = {}  # by component, from its first eviction on

    def split(self, event: Split) -> None:
        node = self.nodes.get(event.node)
        if node is not None:
            pages = event.length // self._page_size
            self.nodes[event.upper] = node._replace(
                id=event.upper, key=node.key[: event.length], units=tuple(units[:pages] for units in node.units)
            )
            self.nodes[event.node] = node._replace(
                parent=event.upper,
                start=node.start + event.length,
                key=node.key[event.length :],
                units=tuple(units[pages:] for units in node.units),
            )
            siblings = self._children[node.parent]
            siblings[siblings.index(event.node)] = event.upper
            self._children[event.upper] = [event.node]
            if event.node in self._touched:
                self._touched.add(event.upper)
            self._offer(event.upper)
            self._offer(event.node)

    def touch(self, node_id: int) -> None:
        node = self.nodes.get(node_id)
        while node is not None:
            self._touched.add(node.id)
            node = self.nodes.get(node.parent)

    def evict(self, event: Victim, component: int | None) -> None:
        node = self.nodes.get(event.node)
        if node is not None and isinstance(event, Removed):
            self._take_out(node)
        elif node is not None and isinstance(event, Demoted):
            self.nodes[node.id] = node._replace(live=[False] * len(node.live))
            self._offer_above(node)
        elif node is not None and component is not None:
            live = list(node.live)
            live[component] = False
            self.nodes[node.id] = node._replace(live=live)

    def drop_copy(self, event: CopyDropped) -> None:
        """Drop a copy; nodes left without live pages, copies and children are removed, upward from the node."""
        node = self.nodes.get(event.node)
        if node is not None:
            kept = [
                () if component.pool in event.pools else copies
                for component, copies in zip(self._components, node.copies, strict=True)
            ]
            node = self.nodes[node.id] = node._replace(copies=tuple(kept))
        while node is not None and not (any(node.live) or any(node.copies) or self._children.get(node.id)):
            self._take_out(node)
            node = self.nodes.get(node.parent)

    def is_childless_tombstone(self, node: NodeView) -> bool:
        """Is a node a tombstone that has lost all its children in the step?"""
        return node.id in self._lost_child and not all(node.live) and not self._children.get(node.id)

    def is_in_tail(self, node: NodeView, component: int) -> bool:
        """Is a node in the tail of some branch?"""
        return self._ends_within(node, self._tail_limit(component))

    def choice(self, event: Victim, node: NodeView, component: int) -> Choice:
        """The choice of a victim.  Costs O(nodes) for the first choice of a component, then O(log nodes)."""
        queues = self._queues.get(component) or self._queued(component)
        is_in_tail = self.is_in_tail(node, component)
        interior = self._first(queues, component, is_in_tail=False)
        same_kind = self._first(queues, component, is_in_tail=True) if is_in_tail else interior
        has_older = (
            same_kind is not None and same_kind.last_used < node.last_used and self._is_evictable(node, component)
        )
        return Choice(event, node, interior if is_in_tail else None, same_kind if has_older else None)

    def _take_out(self, node: NodeView) -> None:
        del self.nodes[node.id]
        self._children[node.parent].remove(node.id)
        self._lost_child.add(node.parent)
        self._offer_above(node)

    def _queued(self, component: int) -> Queues:
        queues = self._queues[component] = Queues([], [])
        limit = self._tail_limit(component)
        for node in self.nodes.values():
            if not node.locks[component] and self._is_evictable(node, component):
                queue = queues.tails if self._ends_within(node, limit) else queues.interior
                queue.append((node.last_used, node.id))
        heapify(queues.tails)
        heapify(queues.interior)
        return queues

    def _first(self, queues: Queues, component: int, *, is_in_tail: bool) -> NodeView | None:
        """The least recently used evictable node in a tail, or in the interior."""
        queue = queues.tails if is_in_tail else queues.interior
        while queue:
            node = self.nodes.get(queue[0][1])
            if (
                node is not None
                and self._is_evictable(node, component)
                and self.is_in_tail(node, component) == is_in_tail
            ):
                return node
            heappop(queue)
        return None

    def _offer(self, node_id: int) -> None:
        """Queue a node that is new, or may have moved between tail and interior."""
        node = self.nodes[node_id]
        for component, queues in self._queues.items():
            if self._is_evictable(node, component):
                queue = queues.tails if self.is_in_tail(node, component) else queues.interior
                heappush(queue, (node.last_used, node_id))

    def _offer_above(self, gone: NodeView) -> None:
        """Queue the ancestors of a removed node: its parent may be a leaf now, and tails may have moved up."""
        reach = max(map(self._tail_limit, self._queues), default=0)
        above = self.nodes.get(gone.parent)
        while above is not None and (above.id == gone.parent or gone.start - above.end < reach):
            self._offer(above.id)
            above = self.nodes.get(above.parent)

    def _is_evictable(self, node: NodeView, component: int) -> bool:
        """Is a node live, unlocked and unused in the step, and, in a component without a window, a leaf?

        With write-back a node without a copy does not count: the engine may skip it.
        """
        if node.locks[component] or not node.live[component] or node.id in self._touched:
            return False
        if self._writes_back and any(live and not copy for live, copy in zip(node.live, node.copies, strict=True)):
            return False
        children = map(self.nodes.__getitem__, self._children.get(node.id, ()))
        return self._components[component].window is not None or not any(child.live[component] for child in children)

    def _tail_limit(self, component: int) -> int:
        """The length of the tail of a branch in tokens: a window in whole pages; 0 without a window."""
        window = self._components[component].window
        return 0 if window is None else tail_len(window, self._page_size)

    def _ends_within(self, node: NodeView, limit: int) -> bool:
        """Does some branch through a node end less than `limit` tokens behind it?"""
        if limit <= 0:
            return False
        children = self._children.get(node.id)
        if not children:
            return True
        for child in map(self.nodes.__getitem__, children):
            left = limit - len(child.key)
            if left > 0 and self._ends_within(child, left):
                return True
        return False
