"""Which nodes an eviction could have chosen, each time that it chose one."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from invariants.events import Inserted, Locked, Recovered, Removed, Split, Tombstoned
from invariants.view import NodeView, Snapshot
from invariants.windows import tail_len

Victim = Removed | Tombstoned


class Choice(NamedTuple):
    """A victim, and who should have gone before it for the same component.

    `interior` is a node that no branch reads through its window, where the end of some branch reads the
    victim; `older` the least recently used of those that are used less recently and read alike.
    """

    event: Victim
    node: NodeView
    interior: NodeView | None
    older: NodeView | None


def choices(before: Snapshot, events: Sequence[NamedTuple]) -> Iterator[Choice]:
    """Every choice of the step, as long as the tree before it says enough: until something comes into it.

    A tombstone that goes because it lost its last child was not chosen.
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
        elif isinstance(event, (Removed, Tombstoned)):
            node, component = shadow.nodes.get(event.node), components.get(event.component)
            if node is not None and component is not None and not shadow.is_left_over(node):
                yield shadow.choice(event, node, component)
            shadow.give_up(event, component)


class Shadow:
    """The tree before a step, changed by what the step's events tell; made of views alone."""

    def __init__(self, before: Snapshot) -> None:
        self.nodes = dict(before.node_by_id)
        self._components = before.components
        self._page_size = before.limits.page_size
        self._children: dict[int, list[int]] = {}
        for node in self.nodes.values():
            self._children.setdefault(node.parent, []).append(node.id)
        self._touched: set[int] = set()  # locked, or used, since
        self._bereft: set[int] = set()  # lost a child since

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

    def touch(self, node_id: int) -> None:
        node = self.nodes.get(node_id)
        while node is not None:
            self._touched.add(node.id)
            node = self.nodes.get(node.parent)

    def give_up(self, event: Victim, component: int | None) -> None:
        node = self.nodes.get(event.node)
        if node is not None and isinstance(event, Removed):
            del self.nodes[node.id]
            self._children[node.parent].remove(node.id)
            self._bereft.add(node.parent)
        elif node is not None and component is not None:
            live = list(node.live)
            live[component] = False
            self.nodes[node.id] = node._replace(live=live)

    def is_left_over(self, node: NodeView) -> bool:
        """Is it a tombstone without children that had some?"""
        return node.id in self._bereft and not all(node.live) and not self._children.get(node.id)

    def choice(self, event: Victim, node: NodeView, component: int) -> Choice:
        limit, nodes = self._tail_limit(component), self.nodes.values()
        is_in_tail = self._is_in_tail(node, limit)
        interior, older = [], []
        if is_in_tail:
            candidates = self._candidates(nodes, component)
            interior = [other for other in candidates if not self._is_in_tail(other, limit)]
        if self._candidates([node], component):
            candidates = self._candidates([other for other in nodes if other.last_used < node.last_used], component)
            older = [other for other in candidates if self._is_in_tail(other, limit) == is_in_tail]
        return Choice(
            event,
            node,
            min(interior, key=lambda other: other.id, default=None),
            min(older, key=lambda other: (other.last_used, other.id), default=None),
        )

    def _candidates(self, nodes: Iterable[NodeView], component: int) -> list[NodeView]:
        """Nodes that nobody has locked or used, live in a component with a window, leaves in one without."""
        touched = self._touched
        idle = [node for node in nodes if not node.locks[component] and node.live[component] and node.id not in touched]
        if self._components[component].window is None:
            return [node for node in idle if not self._children.get(node.id)]
        return idle

    def _tail_limit(self, component: int) -> int:
        """The tail of a branch ends less than a window, in whole pages, before its end; 0 without a window."""
        window = self._components[component].window
        return 0 if window is None else tail_len(window, self._page_size)

    def _is_in_tail(self, node: NodeView, limit: int) -> bool:
        """Does a node end less than `limit` tokens before the end of some branch?"""
        if limit <= 0:
            return False
        children = [self.nodes[child] for child in self._children.get(node.id, ())]
        return not children or any(self._is_in_tail(child, limit - len(child.key)) for child in children)
