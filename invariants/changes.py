"""What of a state is not what was judged before it: only there can something have come to be wrong.

A capture hands in the very same object for whatever did not change, so "the same" is `is` here, and
costs nothing to find out.  Whatever is not proven to be as right as before is judged again, and where
nothing was judged before, everything is.
"""

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter, is_

from invariants.derived import Derived
from invariants.view import NodeView, PeerMap, PoolView, RecordView, Snapshot

PARTS = ("pools", "peer_maps", "nodes", "receipts", "records", "requests", "claims")
SHAPE = slice(NodeView._fields.index("locks"))  # all of a node but who locks it and when it was used

_parts_of = attrgetter(*PARTS)
_NONE: frozenset[str] = frozenset()


class Changes:
    """What may be wrong after a step or operation; everything, unless the state before is known to be right."""

    def __init__(self, before: Snapshot, after: Snapshot, *, before_is_right: bool) -> None:
        self._before = before
        self._after = after
        # A claim that did not apply before, or stood for other limits, was not judged by what it is now.
        self._judges_all = not (
            before_is_right
            and before.limits == after.limits
            and before.components == after.components
            and before.missing == after.missing
        )

    @Derived
    def unchanged(self) -> frozenset[str]:
        """The parts that are the very objects that were judged."""
        if self._judges_all:
            return _NONE
        return frozenset(compress(PARTS, map(is_, _parts_of(self._before), _parts_of(self._after))))

    @Derived
    def pools(self) -> Sequence[PoolView]:
        """The pools in which anything is different."""
        before, after = self._before.pools, self._after.pools
        if self._judges_all or len(before) != len(after):
            return after
        return [pool for pool, judged in zip(after, before, strict=True) if pool is not judged]

    @Derived
    def peer_maps(self) -> Sequence[PeerMap]:
        """The peer maps that are different, or lead from or to a pool in which anything is."""
        maps = self._after.peer_maps or ()
        if self._judges_all:
            return maps
        judged, changed = self._before.peer_maps or (), {pool.name for pool in self.pools}
        return [
            one
            for index, one in enumerate(maps)
            if one.from_pool in changed or one.to_pool in changed or index >= len(judged) or judged[index] is not one
        ]

    @Derived
    def nodes(self) -> Sequence[NodeView]:
        """The nodes that are new, or different in anything."""
        nodes = self._after.nodes or ()
        if self._judges_all:
            return nodes
        if nodes is self._before.nodes:
            return ()
        judged = self._before.node_by_id
        return [node for node in nodes if judged.get(node.id) is not node]

    @Derived
    def reshaped(self) -> Sequence[NodeView]:
        """The nodes that are new, or different in more than their locks and their last use."""
        if self._judges_all:
            return self.nodes
        judged = self._before.node_by_id
        return [
            node
            for node in self.nodes
            if (earlier := judged.get(node.id)) is None or earlier[SHAPE] != node[SHAPE]
        ]

    @Derived
    def relatives(self) -> Sequence[NodeView]:
        """The nodes that are different, and those whose parent is, or has gone."""
        return self._with_children(self.nodes)

    @Derived
    def reshaped_relatives(self) -> Sequence[NodeView]:
        """The nodes that are reshaped, and those whose parent is, or has gone."""
        return self._with_children(self.reshaped)

    @Derived
    def records(self) -> Sequence[RecordView]:
        """The records of which it is not plain that all is as right as before."""
        records = self._after.records or ()
        if self._judges_all:
            return records
        judged = {record.owner: record for record in self._before.records or ()}
        limits, moved = self._after.limits, self._moved
        held = None if "receipts" in self.unchanged else (self._before.receipt_by_id, self._after.receipt_by_id)
        return [
            record
            for record in records
            if (earlier := judged.get(record.owner)) is None
            or not goes_on(earlier, record, limits.page_size, limits.max_context_len)
            or (held and held[0].get(record.receipt) is not held[1].get(record.receipt))
            or (moved and any(node.id in moved for node in self._before.path(record.node)))
        ]

    @Derived
    def _gone(self) -> set[int]:
        if self._after.nodes is self._before.nodes:
            return set()
        return self._before.node_by_id.keys() - self._after.node_by_id.keys()

    @Derived
    def _moved(self) -> set[int]:
        """The ids of nodes that are reshaped or have gone: a path without one of them is what it was."""
        return {node.id for node in self.reshaped} | self._gone

    def _with_children(self, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        if self._judges_all:
            return nodes
        changed = {node.id for node in nodes} | self._gone
        if not changed:
            return ()
        return [node for node in self._after.nodes or () if node.id in changed or node.parent in changed]


def goes_on(earlier: RecordView, record: RecordView, page_size: int, max_context_len: int) -> bool:
    """Is a record what it was when it was right, or further on in pages that it had already?

    Then it is right still, as far as it goes by itself: its pages, their row and all that divides them
    are the same, and what is asked of them only gets less as `committed_len` grows.
    """
    return (
        earlier.committed_len <= record.committed_len <= record.allocated_len
        and earlier.allocated_len <= record.allocated_len <= len(record.units[0]) * page_size
        and record.allocated_len <= max_context_len
        and earlier.frontier == record.frontier
        and earlier.protected_len == record.protected_len
        and earlier.receipt == record.receipt
        and earlier.node == record.node
        and earlier.units == record.units
        and earlier.table == record.table
    )
