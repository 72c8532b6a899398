"""Which nodes an eviction could have chosen, each time that it chose one."""

from collections.abc import Iterator
from typing import NamedTuple

from invariants.base import Transition
from invariants.events import Inserted, Locked, Recovered, Removed, Split, Tombstoned
from invariants.view import NodeView, Snapshot
from invariants.windows import tail_len

Victim = Removed | Tombstoned


class Choice(NamedTuple):
    """A victim and who else could have gone for the same component.

    `tail` are the ids of those that the end of some branch reads through its window.
    """

    event: Victim
    component: int
    node: NodeView
    candidates: list[NodeView]
    tail: frozenset[int]


def choices(change: Transition) -> Iterator[Choice]:
    """Every choice of the step, as long as the tree before it says enough: until something comes into it.

    A tombstone that goes because it lost its last child was not chosen.
    """
    shadow = Shadow(change.before)
    components = {component.pool: index for index, component in enumerate(change.before.components)}
    for event in change.events:
        if isinstance(event, (Inserted, Recovered)):
            return
        if isinstance(event, Split):
            shadow.split(event)
        elif isinstance(event, Locked):
            shadow.touch(event.node)
        elif isinstance(event, (Removed, Tombstoned)):
            node, component = shadow.nodes.get(event.node), components.get(event.component)
            if node is not None and component is not None and not shadow.is_left_over(node):
                yield Choice(event, component, node, shadow.candidates(component), shadow.tail(component))
            shadow.give_up(event, component)


class Shadow:
    """The tree before a step, changed by what the step's events tell; made of views alone."""

    def __init__(self, before: Snapshot) -> None:
        self.nodes = dict(before.node_by_id)
        self._components = before.components
        self._page_size = before.limits.page_size
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
            self._bereft.add(node.parent)
        elif node is not None and component is not None:
            live = list(node.live)
            live[component] = False
            self.nodes[node.id] = node._replace(live=live)

    def is_left_over(self, node: NodeView) -> bool:
        """Is it a tombstone without children that had some?"""
        return node.id in self._bereft and not all(node.live) and node.id not in self._parents()

    def candidates(self, component: int) -> list[NodeView]:
        """Nodes that nobody has locked or used, live in a component with a window, leaves in one without."""
        parents = self._parents() if self._components[component].window is None else frozenset()
        return [
            node
            for node in self.nodes.values()
            if node.live[component]
            and not node.locks[component]
            and node.id not in self._touched
            and node.id not in parents
        ]

    def tail(self, component: int) -> frozenset[int]:
        """The nodes that end less than a window, in whole pages, before the end of some branch."""
        window = self._components[component].window
        if window is None:
            return frozenset()
        distance: dict[int, int] = {}  # from the end of a node to the nearest end of a branch below
        for node in sorted(self.nodes.values(), key=lambda node: -node.start):
            below = distance.setdefault(node.id, 0) + len(node.key)
            distance[node.parent] = min(distance.get(node.parent, below), below)
        limit = tail_len(window, self._page_size)
        return frozenset(node for node in self.nodes if distance[node] < limit)

    def _parents(self) -> frozenset[int]:
        return frozenset(node.parent for node in self.nodes.values())
