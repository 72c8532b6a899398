"""The radix tree: shared prefixes, and which of their pages are live, locked and evictable.

The tree decides and keeps its counts; it never touches a pool.  Insertion and eviction return the pages that they
release, and the prefix cache frees them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from engine_under_test.cache.lru import Candidates
from engine_under_test.cache.node import Component, HostSide, Node, ends_within
from engine_under_test.cache.window import tail_len
from engine_under_test.events import Dropped, Recovered, Split, Stored, Uprooted
from engine_under_test.ports import Observer


@dataclass(slots=True)
class Insertion:
    """The result of an insertion: the incoming pages by their new use, and the pages that they displaced.

    `handles` are the tree's, for the whole key.  The first `shared` pages belonged to the tree before and are skipped.
    The tree owns the `adopted` pages now, and must free its own `displaced` ones, which they replace.  The giver must
    free `duplicates` (live) and `dead_duplicates` (their windowed pages are freed already).  For each pair of `kept`
    and `replacing` a locked node keeps its handle and takes over the peers of the giver's handle; the giver must free
    the rest of that handle.
    """

    node: Node
    shared: int
    handles: list[int] = field(default_factory=list)
    adopted: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    dead_duplicates: list[int] = field(default_factory=list)
    displaced: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    replacing: list[int] = field(default_factory=list)


class RadixTree:
    """Prefixes by namespace, in nodes whose keys are whole pages.

    Components are in the order of the pools, the anchor first.  Per component, `evictable` counts the live pages in
    nodes that no receipt covers, and `protected` those in nodes that a receipt covers.
    """

    def __init__(self, components: Sequence[Component], *, page_size: int, observer: Observer | None = None) -> None:
        self.components = tuple(components)
        self.page_size = page_size
        self.observer = observer
        windows = [component.window for component in components]
        # The index of the windowed component, and the tokens that must be live in it at the end of a match.
        self.windowed = next((index for index, window in enumerate(windows) if window is not None), None)
        self.tail_len = max(tail_len(window=window, page_size=page_size) if window else 0 for window in windows)
        self.roots: dict[int, Node] = {}
        self.nowhere = self._root_node(0, 0)  # the node of an empty match
        self.evictable = [0] * len(components)
        self.protected = [0] * len(components)
        self.candidates = Candidates(self.windowed)
        self._num_nodes = 0
        self._uses = 0

    def root(self, namespace: int) -> Node:
        """The root of a namespace; makes it if there is none."""
        if namespace not in self.roots:
            self._num_nodes += 1
            self.roots[namespace] = self._root_node(self._num_nodes, namespace)
        return self.roots[namespace]

    def walk(self, tokens: Sequence[int], namespace: int) -> Iterator[tuple[Node, int]]:
        """The nodes that hold a prefix of `tokens`, each with the length that it has in common, in whole pages."""
        node = self.roots.get(namespace)
        position = 0
        while node is not None:
            node = node.children.get(tuple(tokens[position : position + self.page_size]))
            if node is None:
                return
            length = node.common_len(tokens, page_size=self.page_size)
            yield node, length
            if length < len(node.key):
                return
            position += length

    def touch(self, path: Sequence[Node]) -> None:
        """Mark all nodes of `path` as used now, with one time."""
        self._uses += 1
        for node in path:
            node.last_used = self._uses
            self.candidates.offer(node)

    def split(self, node: Node, length: int) -> Node:
        """Put a new node with the first `length` tokens above `node`, with the same live components and lock counts."""
        assert 0 < length < len(node.key), f"node {node.id}: split at {length} of {len(node.key)}"
        assert length % self.page_size == 0, f"node {node.id}: split at {length}, inside a page"
        assert node.parent is not None, f"node {node.id}: a root is never split"
        pages = length // self.page_size
        upper = self._new_node(node.parent, node.start, node.key[:length], node.handles[:pages])
        upper.live, upper.locks, upper.last_used = list(node.live), list(node.locks), node.last_used
        upper.host = node.host.split(pages)
        node.key, node.handles = node.key[length:], node.handles[pages:]
        node.start, node.parent = upper.end, upper
        upper.children[self._page_key(node)] = node
        self.candidates.offer(upper)
        self.candidates.offer(node)
        if self.observer:
            self.observer.notice(Split(node.id, upper.id, length))
        return upper

    def insert(
        self, key: Sequence[int], handles: Sequence[int], *, namespace: int, protected_len: int, frontier: int
    ) -> Insertion:
        """Publish `key`, whole pages long, held by `handles`.

        The giver shares [0, protected_len) already.  Its windowed pages in [protected_len, frontier) are freed.
        Both lengths are multiples of the page size.
        """
        assert len(key) == len(handles) * self.page_size, f"{len(key)} tokens on {len(handles)} pages"
        assert frontier % self.page_size == 0, f"frontier {frontier} inside a page"
        node = self.root(namespace)
        result = Insertion(node, shared=protected_len // self.page_size)
        path = []
        for step, length in list(self.walk(key, namespace)):
            node = self.split(step, length) if length < len(step.key) else step
            if node.end > protected_len:
                node, above = self._merge(node, handles, frontier, result)
                path += above
            path.append(node)
        if node.end < len(key):
            path += self._extend(node, key, handles, frontier, result)
        result.node = path[-1]
        result.handles = [handle for step in path for handle in step.handles]
        self.touch(path)
        return result

    def set_live(self, node: Node, component: int, *, live: bool) -> None:
        """Record that a node gained or lost its pages of a component; count them as protected or evictable."""
        node.live[component] = live
        counts = self.protected if node.locks[component] else self.evictable
        counts[component] += node.num_pages if live else -node.num_pages
        if self.observer:
            self._report_presence(node, component, is_present=live, on_host=False)

    def set_copy(self, node: Node, component: int, pages: list[int]) -> None:
        """Record the host `pages` of a node; an empty list means no copy."""
        node.host.pages[component] = pages
        if self.observer:
            self._report_presence(node, component, is_present=bool(pages), on_host=True)

    def demote(self, node: Node) -> None:
        """Release the device pages of an unlocked node that has a copy on the host."""
        assert node.host.pages[0], f"node {node.id} has no copy on the host"
        assert not any(node.locks), f"node {node.id} has locks {node.locks}"
        for component, live in enumerate(node.live):
            if live:
                self.set_live(node, component, live=False)
        if node.parent is not None:
            self._offer_above(node.parent)

    def drop_copy(self, node: Node, component: int) -> list[list[int]]:
        """Drop a node's host copy: for component 0 all of it, else only that component; returns pages by component.

        A node without pages is then removed from the tree, and so are its ancestors without pages and children.
        """
        dropped = [pages if not component or index == component else [] for index, pages in enumerate(node.host.pages)]
        for index, pages in enumerate(dropped):
            if pages:
                self.set_copy(node, index, [])
        above = node.parent
        self._prune(node)
        if above is not None and above.in_tree:
            self.candidates.offer(above)
        return dropped

    def _prune(self, node: Node) -> None:
        while node.in_tree and node.is_leaf and not any(node.live) and not any(node.locks) and not node.host.pages[0]:
            assert node.parent is not None, f"node {node.id} is not in the tree"
            above = node.parent
            self.remove(node)
            node = above

    def remove(self, leaf: Node) -> None:
        """Remove an unlocked leaf from the tree."""
        assert leaf.is_leaf, f"node {leaf.id} has {len(leaf.children)} children"
        assert not any(leaf.locks), f"node {leaf.id} has locks {leaf.locks}"
        assert leaf.parent is not None, f"node {leaf.id} is not in the tree"
        for component, live in enumerate(leaf.live):
            if live:
                self.set_live(leaf, component, live=False)
        parent, leaf.parent = leaf.parent, None
        del parent.children[self._page_key(leaf)]
        if not parent.children and not parent.in_tree:
            del self.roots[parent.namespace]
        self._offer_above(parent)
        if self.observer:
            self.observer.notice(Uprooted(leaf.id))

    def covered_lens(self, end: int) -> tuple[int, ...]:
        """How many tokens before `end` a reader of a prefix that ends there needs, by component."""
        return tuple(end if one.window is None else min(end, self.tail_len) for one in self.components)

    def is_tail(self, node: Node) -> bool:
        """Would a match to the end of some branch read this node through its window?"""
        return ends_within(node, self.tail_len)

    def _merge(self, node: Node, handles: Sequence[int], frontier: int, result: Insertion) -> tuple[Node, list[Node]]:
        """Merge the incoming pages of [node.start, node.end) into a node that holds these tokens.

            node live                          all incoming are duplicates
            node on the host only              |full pages restored  |all restored   |   split at the frontier
            tombstone, frontier at or before   |node recovers                |
            tombstone, frontier inside         |stays dead |node recovers    |   split at the frontier
            tombstone, frontier at or behind   |stays dead, incoming are dead duplicates|

        Returns the lowest node of the range and the nodes split off above it.
        """
        windowed = self.windowed
        above: list[Node] = []
        if windowed != 0 and not node.live[0]:
            return self._restore(node, handles, frontier, result)
        if windowed is not None and not node.live[windowed] and node.start < frontier < node.end:
            upper = self.split(node, frontier - node.start)
            self._return_duplicates(upper, handles, frontier, result)
            above.append(upper)
        if windowed is None or node.live[windowed] or frontier >= node.end:
            self._return_duplicates(node, handles, frontier, result)
        else:
            self._recover(node, handles, result)
        return node, above

    def _restore(self, node: Node, handles: Sequence[int], frontier: int, result: Insertion) -> tuple[Node, list[Node]]:
        """Restore a node that is on the host only from incoming pages; windowed pages before the frontier are dead."""
        above = []
        if self.windowed is not None and node.start < frontier < node.end:
            above.append(self.split(node, frontier - node.start))
        for one in (*above, node):
            one.handles = list(handles[one.start // self.page_size : one.end // self.page_size])
            result.adopted += one.handles
            for index, component in enumerate(self.components):
                if component.window is None or one.start >= frontier:
                    self.set_live(one, index, live=True)
        return node, above

    def _return_duplicates(self, node: Node, handles: Sequence[int], frontier: int, result: Insertion) -> None:
        """Return incoming duplicates, which the giver must free; those below the frontier are dead."""
        first, end = max(node.start // self.page_size, result.shared), node.end // self.page_size
        border = min(max(frontier // self.page_size, first), end)
        result.dead_duplicates += handles[first:border]
        result.duplicates += handles[border:end]

    def _recover(self, node: Node, handles: Sequence[int], result: Insertion) -> None:
        """Recover a tombstone from live pages: from whole ones, or from the peers only if the node is locked.

        Freeing the pages of a node that a running request has locked would be a use after free
        (sglang pull 29352).
        """
        assert self.windowed is not None, f"node {node.id}: nothing to recover without a window"
        incoming = list(handles[node.start // self.page_size : node.end // self.page_size])
        locked = self.windowed != 0 and node.locks[0] > 0
        if locked:
            result.kept += node.handles
            result.replacing += incoming
        else:
            result.displaced += node.handles
            result.adopted += incoming
            node.handles = incoming
        self.set_live(node, self.windowed, live=True)
        if self.observer:
            self.observer.notice(Recovered(node.id, self.components[self.windowed].name, locked))

    def _extend(
        self, parent: Node, key: Sequence[int], handles: Sequence[int], frontier: int, result: Insertion
    ) -> list[Node]:
        """Add nodes for tokens that the tree lacks: |dead, up to the frontier|live|live tail|."""
        start, end = parent.end, len(key)
        live_from = end if self.windowed is None else min(max(start, frontier), end)
        borders = [start, end]
        if self.windowed is not None:
            borders += [live_from, max(live_from, end - self.tail_len)]
        borders = sorted(set(borders))
        added = []
        for begin, stop in pairwise(borders):
            pages = list(handles[begin // self.page_size : stop // self.page_size])
            parent = self._new_node(parent, begin, list(key[begin:stop]), pages)
            for index, component in enumerate(self.components):
                if component.window is None or begin >= live_from:
                    self.set_live(parent, index, live=True)
            result.adopted += pages
            added.append(parent)
        return added

    def _new_node(self, parent: Node, start: int, key: list[int], handles: list[int]) -> Node:
        width = len(self.components)
        self._num_nodes += 1
        nothing = HostSide.of_nothing(width)
        node = Node(
            self._num_nodes, parent.namespace, parent, start, key, handles, [False] * width, [0] * width, nothing
        )
        parent.children[self._page_key(node)] = node
        return node

    def _root_node(self, number: int, namespace: int) -> Node:
        width = len(self.components)
        nothing = HostSide.of_nothing(width)
        return Node(number, namespace, None, 0, [], [], [True] * width, [0] * width, nothing)

    def _report_presence(self, node: Node, component: int, *, is_present: bool, on_host: bool) -> None:
        assert self.observer, "no observer"
        name = self.components[component].name
        if is_present:
            parent = node.parent.id if node.parent is not None and node.parent.in_tree else 0
            self.observer.notice(Stored(node.id, parent, node.namespace, node.start, node.key, name, on_host))
        else:
            self.observer.notice(Dropped(node.id, len(node.key), name, on_host))

    def _page_key(self, node: Node) -> tuple[int, ...]:
        return tuple(node.key[: self.page_size])

    def _offer_above(self, node: Node) -> None:
        """Offer the nodes near the end of a removed branch again; their kind of candidate may have changed."""
        reach = node.end - self.tail_len
        step: Node | None = node
        while step is not None and step.in_tree and step.end >= reach:
            self.candidates.offer(step)
            step = step.parent
