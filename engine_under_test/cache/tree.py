"""The radix tree: shared prefixes, and which of their pages are live, locked and evictable.

The tree decides and keeps its counts; it never touches a pool.  Insertion and eviction return the pages that they
release, and the prefix cache frees them.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from operator import gt, not_
from typing import NamedTuple

from swarden.engine_under_test.cache.lru import Candidates
from swarden.engine_under_test.cache.node import HostSide, Node
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.units import borders, overlap
from swarden.invariants.events import Dropped, Recovered, Rooted, Split, Stored, Uprooted

Pools = tuple[str, ...]


class IncomingPages(NamedTuple):
    """The pages of an insertion, a handle for each, and per component the spans without pages."""

    handles: Sequence[int]
    absent: Sequence[Sequence[range]]

    def has(self, start: int, end: int) -> list[bool]:
        """Per component, are there pages for all of [start, end)?"""
        return [not overlap(spans, start, end) for spans in self.absent]

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Split [start, end) into parts that, in every component, have all their pages or none."""
        return pairwise(borders(chain.from_iterable(self.absent), start, end))


class PeerTakeOver(NamedTuple):
    """A node keeps its handles `kept`, and takes over the peers of `replacing` in the pools `gained`."""

    kept: list[int]
    replacing: Sequence[int]  # the giver must free the rest of them
    gained: Pools
    lacks: Pools  # in which `replacing` has no other pages


@dataclass(slots=True)
class Insertion:
    """The result of an insertion: the incoming pages by their new use, and the pages that they displaced.

    Pages to free are grouped by the pools in which they no longer have pages.
    """

    node: Node
    shared: int  # the first pages, which belonged to the tree before and are skipped
    handles: list[int] = field(default_factory=list)  # the tree's, for the whole key
    adopted: list[int] = field(default_factory=list)  # the tree owns them now
    duplicates: dict[Pools, list[int]] = field(default_factory=lambda: {(): []})  # the giver must free them
    displaced: dict[Pools, list[int]] = field(default_factory=dict)  # replaced; the tree must free them
    taken_over: list[PeerTakeOver] = field(default_factory=list)


class RadixTree:
    """Prefixes by namespace, in nodes whose keys are whole pages.

    Components are in the order of the pools, the anchor first.  Per component, `evictable` counts the live pages in
    nodes that no receipt covers, and `protected` those in nodes that a receipt covers.
    """

    def __init__(self, components: Sequence[Component], *, page_size: int, observer: Observer | None = None) -> None:
        self.components = tuple(components)
        self.page_size = page_size
        self.observer = observer
        self.tail_lens = tuple(component.tail_len for component in components)
        self._longest_tail = max((part.tail_len for part in components if part.leaves_tombstones), default=0)
        self.roots: dict[int, Node] = {}
        self.nowhere = self._root_node(0, 0)  # the node of an empty match
        self.evictable = [0] * len(components)
        self.protected = [0] * len(components)
        self.candidates = Candidates(self.components)
        self._num_nodes = 0
        self._uses = 0

    def root(self, namespace: int) -> Node:
        """The root of a namespace; makes it if there is none."""
        if namespace not in self.roots:
            self._num_nodes += 1
            self.roots[namespace] = self._root_node(self._num_nodes, namespace)
        return self.roots[namespace]

    def walk(self, tokens: Sequence[int], namespace: int) -> Iterator[tuple[Node, int]]:
        """The nodes that hold a prefix of `tokens`, each with the length of the part that it holds, in whole pages."""
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
        self,
        key: Sequence[int],
        handles: Sequence[int],
        *,
        namespace: int,
        protected_len: int,
        absent: Mapping[str, Sequence[range]],
    ) -> Insertion:
        """Publish `key`, whole pages long, held by `handles`.

        The giver shares [0, protected_len) already.  Behind it, it has no pages of a pool in the spans of `absent`.
        All lengths are multiples of the page size.
        """
        assert len(key) == len(handles) * self.page_size, f"{len(key)} tokens on {len(handles)} pages"
        assert protected_len % self.page_size == 0, f"{protected_len} shared tokens, which end inside a page"
        for pool, spans in absent.items():
            for border in chain.from_iterable((span.start, span.stop) for span in spans):
                assert border % self.page_size == 0, f"{pool} span ends at {border}, inside a page"
        incoming = IncomingPages(handles, [absent.get(component.name, ()) for component in self.components])
        node = self.root(namespace)
        result = Insertion(node, shared=protected_len // self.page_size)
        path = []
        for step, length in list(self.walk(key, namespace)):
            node = self.split(step, length) if length < len(step.key) else step
            if node.end > protected_len:
                node, above = self._merge(node, incoming, result)
                path += above
            path.append(node)
        if node.end < len(key):
            path += self._extend(node, key, incoming, result)
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
        assert node.has_copy, f"node {node.id} has no copy on the host"
        assert not node.is_locked, f"node {node.id} has locks {node.locks}"
        for component, live in enumerate(node.live):
            if live:
                self.set_live(node, component, live=False)
        if node.parent is not None:
            self._offer_above(node.parent)

    def drop_copy(self, node: Node, components: Container[int]) -> list[list[int]]:
        """Drop a node's host copy in these components; returns its pages by component.

        A node without pages is then removed from the tree, and so are its ancestors without pages and children.
        """
        dropped = [pages if index in components else [] for index, pages in enumerate(node.host.pages)]
        for index, pages in enumerate(dropped):
            if pages:
                self.set_copy(node, index, [])
        above = node.parent
        self._prune(node)
        if above is not None and above.in_tree:
            self.candidates.offer(above)
        return dropped

    def _prune(self, node: Node) -> None:
        while node.in_tree and node.is_leaf and not (node.is_on_device or node.is_locked or node.has_copy):
            assert node.parent is not None, f"node {node.id} is not in the tree"
            above = node.parent
            self.remove(node)
            node = above

    def remove(self, leaf: Node) -> None:
        """Remove an unlocked leaf from the tree."""
        assert leaf.is_leaf, f"node {leaf.id} has {len(leaf.children)} children"
        assert not leaf.is_locked, f"node {leaf.id} has locks {leaf.locks}"
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
        return tuple(min(end, tail_len) for tail_len in self.tail_lens)

    def lacking(self, has: Iterable[bool]) -> Pools:
        """The pools of the components for which `has` is false."""
        return tuple(component.name for component, has_pages in zip(self.components, has, strict=True) if not has_pages)

    def _merge(self, node: Node, incoming: IncomingPages, result: Insertion) -> tuple[Node, list[Node]]:
        """Merge the incoming pages of [node.start, node.end) into a node that holds these tokens.

        In each component in which the node has no pages:

            no span overlaps the range      |node gets the incoming pages|
            a span covers a part            |none        |gets them      |   split at its border
            a span covers all               |none                        |

        Returns the lowest node of the range and the nodes split off above it.
        """
        above = []
        lacking = [spans for spans, live in zip(incoming.absent, node.live, strict=True) if not live]
        for border in borders(chain.from_iterable(lacking), node.start, node.end)[1:-1]:
            above.append(self.split(node, border - node.start))
        for part in (*above, node):
            given = incoming.has(part.start, part.end)
            gained = [is_given and not live for is_given, live in zip(given, part.live, strict=True)]
            if any(gained):
                self._recover(part, incoming, given, gained, result)
            else:
                self._return_duplicates(part, incoming, result)
        return node, above

    def _recover(
        self, node: Node, incoming: IncomingPages, given: Sequence[bool], gained: Sequence[bool], result: Insertion
    ) -> None:
        """Add the components `gained` to a node from incoming pages, which have those `given`; whole pages if possible.

        Only the peers can be taken over if the node has another component that the incoming pages lack, or if it is
        locked: freeing pages that a running request has locked would be a use after free (sglang pull 29352).
        """
        handles = list(incoming.handles[node.start // self.page_size : node.end // self.page_size])
        is_restored = not node.is_on_device and node.has_copy
        keeps = node.is_on_device and (node.is_locked or any(map(gt, node.live, given)))
        if keeps:
            gains = self.lacking(map(not_, gained))
            for begin, stop in incoming.parts(node.start, node.end):
                part = slice((begin - node.start) // self.page_size, (stop - node.start) // self.page_size)
                lacks = self.lacking(map(gt, incoming.has(begin, stop), gained))
                result.taken_over.append(PeerTakeOver(node.handles[part], handles[part], gains, lacks))
        else:
            if node.is_on_device:
                result.displaced.setdefault(self.lacking(node.live), []).extend(node.handles)
            result.adopted += handles
            node.handles = handles
        for index in compress(range(len(gained)), gained):
            self.set_live(node, index, live=True)
            if self.observer and not is_restored:
                self.observer.notice(Recovered(node.id, self.components[index].name, keeps))

    def _return_duplicates(self, node: Node, incoming: IncomingPages, result: Insertion) -> None:
        """Return incoming duplicates, which the giver must free."""
        for begin, stop in incoming.parts(max(node.start, result.shared * self.page_size), node.end):
            lacks = self.lacking(incoming.has(begin, stop))
            handles = incoming.handles[begin // self.page_size : stop // self.page_size]
            result.duplicates.setdefault(lacks, []).extend(handles)

    def _extend(self, parent: Node, key: Sequence[int], incoming: IncomingPages, result: Insertion) -> list[Node]:
        """Add nodes for tokens that the tree lacks; in each component: |dead|live|dead ...|live|live tail|."""
        start, end = parent.end, len(key)
        cuts = {start, end}
        for spans, tail_len in zip(incoming.absent, self.tail_lens, strict=True):
            own = borders(spans, start, end)
            first_live = next((begin for begin in own[:-1] if not overlap(spans, begin, begin + 1)), end)
            cuts.update(own, [max(first_live, end - tail_len)])
        added = []
        for begin, stop in pairwise(sorted(cuts)):
            handles = list(incoming.handles[begin // self.page_size : stop // self.page_size])
            parent = self._new_node(parent, begin, list(key[begin:stop]), handles)
            if self.observer:
                self.observer.notice(Rooted(parent.id, _parent_id(parent), parent.namespace, parent.key))
            for index, is_given in enumerate(incoming.has(begin, stop)):
                if is_given:
                    self.set_live(parent, index, live=True)
            result.adopted += handles
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
            parent = _parent_id(node)
            self.observer.notice(Stored(node.id, parent, node.namespace, node.start, node.key, name, on_host))
        else:
            self.observer.notice(Dropped(node.id, len(node.key), name, on_host))

    def _page_key(self, node: Node) -> tuple[int, ...]:
        return tuple(node.key[: self.page_size])

    def _offer_above(self, node: Node) -> None:
        """Offer the nodes near the end of a removed branch again; their kind of candidate may have changed."""
        reach = node.end - self._longest_tail
        step: Node | None = node
        while step is not None and step.in_tree and step.end >= reach:
            self.candidates.offer(step)
            step = step.parent


def _parent_id(node: Node) -> int:
    """The parent's id, 0 if that is a root."""
    return node.parent.id if node.parent is not None and node.parent.in_tree else 0
