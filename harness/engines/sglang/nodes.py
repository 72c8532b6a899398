"""What a release keeps in the nodes of its prefix tree, and in the locks on them.

A windowed lock covers the nodes from its own up to the one with its mark, a uuid (`swa_uuid_for_lock`).  A node has at
most one recurrent state, that after its last token, and a lock covers that of its own node only.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import is_, methodcaller
from typing import Any, NamedTuple

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangPart
from swarden.harness.engines.sglang.requests import held
from swarden.harness.engines.sglang.states import STATE_POOL
from swarden.invariants.events import TREE_KIND, Owner
from swarden.invariants.view import ComponentView, Holding, NodeView


class TreeCounters(NamedTuple):
    """The tree's counters of the tokens, or states, of one pool."""

    evictable: Callable[[Any], Any]
    protected: Callable[[Any], Any]
    is_of_tokens: bool = True

    def evictable_units(self, tree: Any, page_size: int) -> int:
        return int(self.evictable(tree)) // (page_size if self.is_of_tokens else 1)

    def protected_units(self, tree: Any, page_size: int) -> int:
        return int(self.protected(tree)) // (page_size if self.is_of_tokens else 1)


COUNTERS: Mapping[str, TreeCounters] = {
    "full": TreeCounters(methodcaller("full_evictable_size"), methodcaller("full_protected_size")),
    "swa": TreeCounters(methodcaller("swa_evictable_size"), methodcaller("swa_protected_size")),
    STATE_POOL: TreeCounters(methodcaller("mamba_evictable_size"), methodcaller("mamba_protected_size"), False),
}
COUNTERS_OF_ONE_POOL: Mapping[str, TreeCounters] = {
    "full": TreeCounters(methodcaller("evictable_size"), methodcaller("protected_size"))
}


class NodeSlots(NamedTuple):
    """A node's slots in each pool of KV (0 for none), and per component whether it is live and how many locks it has.

    `state` is the slot of its recurrent state, if it has any; None without a pool of states.
    """

    slots: tuple[Sequence[int], ...]
    live: tuple[bool, ...]
    locks: tuple[int, ...]
    state: Sequence[int] | None = None


class CapturedNode(NamedTuple):
    """A visited node: the facts that were read, its view, and its holding in each pool (None: no page there)."""

    facts: tuple[Any, ...]
    view: NodeView
    holdings: Sequence[Holding | None]


class TreeWalk:
    """Views of all nodes, numbered in the order in which they are first seen; unchanged ones are reused."""

    def __init__(
        self, nodes: "SwaNodes", page_size: int, namespace_of: Callable[[str | None], int], host: SglangPart
    ) -> None:
        self._nodes, self._page_size, self._namespace_of, self._host = nodes, page_size, namespace_of, host
        self._last_node, self.is_audit = 0, True  # in an audit a walk reads also the nodes with the same marks
        self._known: dict[int, CapturedNode] = {}  # the nodes of the newest walk, by id
        self._found: list[CapturedNode] = []  # the same, each after its parent
        self._marks: dict[Any, Sequence[Any]] = {}  # of the root and the nodes, by the objects of the release

    def locks(self, root: Any, pools: Sequence[str]) -> dict[tuple[Any, str], int]:
        """The number of locks on each node, by pool; `pools` are those of the device."""
        counts, nodes = dict[tuple[Any, str], int](), [root]
        for above in nodes:
            for node in above.children.values() if above is not None else ():
                nodes.append(node)
                pins = zip(self._host.host_pools, self._host.copies(node)[1], strict=True)
                of_node = dict((*zip(pools, self._nodes.locks(node), strict=True), *pins))
                counts |= {(node, pool): count for pool, count in of_node.items()}
        return counts

    def walk(self, root: Any, mapping: Sequence[int]) -> list[CapturedNode]:
        """Every node, each after its parent; the last list if right. `mapping`: the windowed slot of each slot."""
        found, stack = list[CapturedNode](), [(0, 0, root)] if root is not None else []
        is_audit, self.is_audit = self.is_audit or bool(self._host.host_pools), False
        marks_of, before = self._nodes.marks, self._marks
        now = dict(zip(before, map(marks_of, before), strict=True))
        if not is_audit and root in now and are_same(*[[*chain.from_iterable(one.values())] for one in (now, before)]):
            return self._found
        self._marks = {} if root is None else {root: marks_of(root)}
        while stack:
            parent, start, above = stack.pop()
            for node in above.children.values():
                number = getattr(node, "swarden_id", 0)
                if not number:
                    self._last_node = number = node.swarden_id = self._last_node + 1
                known, marks = self._known.get(number), now.get(node) or marks_of(node)
                self._marks[node] = marks
                is_same = are_same(marks, before.get(node, ()))
                if known is None or is_audit or not is_same or known.facts[:3:2] != (parent, start):
                    key = list(node.key.token_ids)[: len(node.key)]
                    parts, copies = self._nodes.parts(node, mapping), self._host.copies(node)
                    facts = (parent, node.key.extra_key, start, key, parts, copies)
                    known = known if known is not None and known.facts == facts else self._new(number, facts)
                found.append(known)
                stack.append((number, known.view.end, node))
        self._known, self._found = {known.view.id: known for known in found}, found
        return found

    def _new(self, number: int, facts: tuple[Any, ...]) -> CapturedNode:
        parent, extra_key, start, key, (slots, live, locks, state), (copies, pins) = facts
        page = self._page_size
        units = tuple([[slot // page for slot in of_pool[::page]] for of_pool in slots])
        if state is not None:
            units = (*units, [*[0] * (len(key) // page - len(state)), *state])
        namespace, owner, holdings = self._namespace_of(extra_key), Owner(TREE_KIND, number), list[Holding | None]()
        for pages, count in zip(units, locks, strict=True):
            live_units = [unit for unit in pages if unit]
            holdings.append(Holding(owner, live_units, cached=True, locks=count) if live_units else None)
        view = NodeView(number, parent, namespace, start, key, units, live, locks, 0, copies, pins)
        return CapturedNode(facts, view, holdings)


class SwaNodes:
    """The nodes and locks of SWARadixCache."""

    counters = COUNTERS

    def __init__(self, release: SglangRelease) -> None:
        self._swa = getattr(release.code("ComponentType"), "SWA", None)

    def parts(self, node: Any, mapping: Sequence[int]) -> NodeSlots:
        slots, live = node.value.tolist(), (True, not node.swa_tombstone)
        return NodeSlots((slots, [mapping[slot] for slot in slots]), live, self.locks(node))

    def marks(self, node: Any) -> Sequence[Any]:
        """Objects of a node one of which is replaced whenever a fact of it or a child changes."""
        return (object(),)

    def locks(self, node: Any) -> tuple[int, ...]:
        return node.full_lock_ref, node.swa_lock_ref

    def state(self, node: Any) -> Sequence[int]:
        return ()

    def covers_state(self, node: Any, locker: Any) -> bool:
        return False

    def frontier(self, req: Any) -> int:
        return _frontier_in(req, self._swa)

    def last_node(self, req: Any, tree: Any) -> Any:
        return req.last_node

    def lock(self, req: Any, node: Any, tree: Any) -> tuple[Any, Any, bool]:
        """The locked node, the mark of its windowed lock, and whether that lock is held."""
        mark = self.mark_of(getattr(req, "lock_receipt", req))
        return node, mark, not getattr(req, "swa_prefix_lock_released", False)

    def mark_of(self, lock: Any) -> Any:
        return _mark_in(lock, self._swa)

    def passed_over(self, node: Any, lock: Any) -> tuple[bool, bool]:
        return False, False

    def mark(self, node: Any) -> Any:
        return node.swa_uuid


class RadixNodes(SwaNodes):
    """The nodes and locks of RadixCache and HiRadixCache; a node whose KV is on the host alone has no value."""

    counters = COUNTERS_OF_ONE_POOL

    def parts(self, node: Any, mapping: Sequence[int]) -> NodeSlots:
        is_live = node.value is not None
        return NodeSlots((node.value.tolist() if is_live else [0] * len(node.key),), (is_live,), self.locks(node))

    def locks(self, node: Any) -> tuple[int, ...]:
        return (node.lock_ref,)

    def frontier(self, req: Any) -> int:
        return 0

    def lock(self, req: Any, node: Any, tree: Any) -> tuple[Any, Any, bool]:
        return node, None, True

    def mark(self, node: Any) -> Any:
        return None


class MambaNodes(RadixNodes):
    """The nodes and locks of MambaRadixCache, which has recurrent states in place of a window."""

    counters = COUNTERS

    def parts(self, node: Any, mapping: Sequence[int]) -> NodeSlots:
        state = self.state(node)
        return NodeSlots((node.value.tolist(),), (True, bool(state)), self.locks(node), state)

    def locks(self, node: Any) -> tuple[int, ...]:
        return node.full_lock_ref, node.mamba_lock_ref

    def state(self, node: Any) -> Sequence[int]:
        return () if node.mamba_value is None else node.mamba_value.tolist()

    def covers_state(self, node: Any, locker: Any) -> bool:
        """A lock covers the state that its node had then; the state stays, so it is the one that it has now."""
        return node.mamba_value is not None


class UnifiedNodes(SwaNodes):
    """The nodes and locks of UnifiedRadixCache; newer releases name a node by its id, and a lock has a receipt."""

    def __init__(self, release: SglangRelease, *, has_window: bool, has_states: bool) -> None:
        components = release.code("ComponentType")
        self._full, self._swa, self._state = components.FULL, components.SWA, components.MAMBA
        self._of_kv = (self._full, self._swa) if has_window else (self._full,)
        self._has_states = has_states
        self._kinds = (*self._of_kv, self._state) if has_states else self._of_kv

    def parts(self, node: Any, mapping: Sequence[int]) -> NodeSlots:
        data, none = [node.component_data[kind] for kind in self._kinds], [0] * len(node.key)
        of_kv = [one.value for one in data[: len(self._of_kv)]]
        slots = tuple([none if value is None else value.tolist() for value in of_kv])
        live = tuple([one.value is not None for one in data])
        return NodeSlots(slots, live, self.locks(node), self.state(node) if self._has_states else None)

    def marks(self, node: Any) -> Sequence[Any]:
        marks = [node.key, *node.children.values()]
        for kind in self._kinds:
            data = node.component_data[kind]
            marks += (data.value, data.lock_ref)
        return marks

    def locks(self, node: Any) -> tuple[int, ...]:
        return tuple([node.component_data[kind].lock_ref for kind in self._kinds])

    def state(self, node: Any) -> Sequence[int]:
        """The slot of its recurrent state, if it has any."""
        value = node.component_data[self._state].value
        return () if value is None else value.tolist()

    def covers_state(self, node: Any, locker: Any) -> bool:
        """Does the lock of a request or of a copy cover the state of its node?

        From 0.5.20 on a receipt covers a node without a state, too, and names the components that it leaves out.
        """
        lock = getattr(locker, "lock", None)
        receipt = getattr(locker, "lock_receipt", locker) if lock is None else lock.receipt
        left_out = getattr(receipt, "skipped_lock_components", None)
        if left_out is not None:
            return self._state not in left_out
        passed_over = getattr(receipt, "skip_lock_node_ids", {}).get(self._state, ())
        return node.component_data[self._state].value is not None and node.id not in passed_over

    def last_node(self, req: Any, tree: Any) -> Any:
        node = getattr(req, "last_node", None)
        return tree.tree_core.node_by_id(node) if isinstance(node, int) else node

    def lock(self, req: Any, node: Any, tree: Any) -> tuple[Any, Any, bool]:
        lock = getattr(req, "lock", None)
        if lock is None:
            return super().lock(req, node, tree)
        node = tree.tree_core.node_by_id(lock.node) if isinstance(lock.node, int) else lock.node
        return node, self.mark_of(lock.receipt), not lock.swa_released

    def passed_over(self, node: Any, lock: Any) -> tuple[bool, bool]:
        """Does the unlock of a lock pass over a node, in each pool?

        Up to SGLang 0.5.17 a lock skips nodes without pages, and its unlock skips these nodes and all other tombstones.
        """
        skipped = getattr(lock, "skip_lock_node_ids", None)
        if skipped is None:
            return False, False
        is_tombstone = node.component_data[self._swa].value is None
        return node.id in skipped.get(self._full, ()), is_tombstone or node.id in skipped.get(self._swa, ())

    def mark(self, node: Any) -> Any:
        return getattr(node.component_data[self._swa], "metadata", {}).get("uuid")


def nodes_of(release: SglangRelease, components: Sequence[ComponentView], tree: Any) -> SwaNodes:
    has_states = any(component.has_states for component in components)
    has_window = len(components) - has_states > 1
    if release.is_unified(tree):
        return UnifiedNodes(release, has_window=has_window, has_states=has_states)
    return (SwaNodes if has_window else MambaNodes if has_states else RadixNodes)(release)


def are_same(marks: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(marks) == len(others) and all(map(is_, marks, others))


def _frontier_in(req: Any, windowed: Any) -> int:
    """How far windowed KV was freed: from 0.5.21 on a number for each component of the tree."""
    kv: Any = getattr(req, "kv", None)
    if hasattr(kv, "get_evicted_seqlen"):
        return int(kv.get_evicted_seqlen(windowed))
    return int(held(req, "swa_evicted_seqlen"))


def _mark_in(lock: Any, windowed: Any) -> Any:
    """The mark of a windowed lock, which is in a receipt, or in the request itself (before 0.5.20)."""
    if hasattr(lock, "component_lock_uuids"):
        return lock.component_lock_uuids.get(windowed)
    return getattr(lock, "swa_uuid_for_lock", None)
