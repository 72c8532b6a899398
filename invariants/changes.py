"""The parts of a state that differ from an earlier state, which was checked: only these must be checked.

A capture returns the same object for each part that did not change, so a comparison with `is` is enough. A part that is
not proven to be as correct as before is checked again.
"""

from collections.abc import Sequence, Set
from itertools import chain, compress, count, repeat
from operator import attrgetter, is_, is_not

from swarden.invariants.derived import Derived
from swarden.invariants.events import FENCE_KIND, LOAD_KIND, OUTSIDE_KIND, Owner
from swarden.invariants.following import Following, Peers, VersionedMap
from swarden.invariants.view import FENCE, FREE, Holding, NodeView, PeerMap, PoolView, RecordView, Snapshot

PARTS = (
    "pools",
    "peer_maps",
    "nodes",
    "receipts",
    "records",
    "requests",
    "counters",
    "launches",
    "copy_jobs",
    "sessions",
    "cached_blocks",
)
PLACE = slice(NodeView._fields.index("units"))  # of a node: its id, its parent and its tokens
SHAPE = slice(NodeView._fields.index("locks"))  # and its units, and where it is live
BELOW_THE_LENGTHS = slice(RecordView._fields.index("committed_len"))  # of a record: its owner, row and protected_len
ABOVE_THE_LENGTHS = slice(RecordView._fields.index("frontiers"), None)  # its frontiers, pages, table, receipt and node

RELEASED = (FREE, FENCE, None)  # owners of units that have no peer
UNPAIRED = (FREE.kind, FENCE_KIND, OUTSIDE_KIND, LOAD_KIND)  # kinds of owners of a follower's units without a peer

_parts_of = attrgetter(*PARTS)
_NONE: frozenset[str] = frozenset()
_NOWHERE: frozenset[int] = frozenset()


def follow(before: PoolView, after: PoolView) -> None:
    """Pass on the owners in a pool, if its free units follow the former ones and each unit has one owner in both.

    That is so if the units that have left a place are those that came to one, each once.
    """
    if after.moved_since is not None or before.capacity != after.capacity:
        return
    gone, came = list[int](), list[tuple[int, Owner]]()
    if after.free is not before.free:
        if not isinstance(after.free, Following) or after.free.former is not before.free:
            return
        gone += after.free.gone
        came += zip(after.free.came, repeat(FREE))
    if after.fenced != before.fenced:
        gone += [unit for fence in before.fenced for unit in fence.units]
        came += [(unit, FENCE) for fence in after.fenced for unit in fence.units]
    left, new = _differing_holdings(before.holdings, after.holdings)
    for owner, units, *_ in new:
        former = units.former if isinstance(units, Following) else None
        followed = next((held for held in left if held.owner == owner and held.units is former), None)
        if isinstance(units, Following) and followed is not None:
            left = [held for held in left if held is not followed]
            gone += units.gone
            came += zip(units.came, repeat(owner))
        else:
            came += zip(units, repeat(owner))
    gone += chain.from_iterable(held.units for held in left)
    moved = dict(came)
    if len(gone) == len(came) == len(moved) and moved.keys() == {*gone} and before.is_partitioned:
        owner_of = before.owner_of
        if not isinstance(owner_of, VersionedMap):
            owner_of = vars(before)["owner_of"] = VersionedMap(dict(owner_of))
        vars(after).update(owner_of=owner_of.changed(moved), is_partitioned=True, moved_since=(before, moved.keys()))
        vars(before)["moved_since"] = None


def _differing_holdings(before: Sequence[Holding], after: Sequence[Holding]) -> tuple[list[Holding], list[Holding]]:
    """The holdings that are no longer there, and the new ones; each once, if no owner has two with as many locks."""
    if before is after:
        return [], []
    first = next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))
    left = {(held.owner, held.locks): held for held in before[first:]}
    if len(left) < len(before) - first:
        return [*before[first:]], [*after[first:]]
    gone, new = list[Holding](), list[Holding]()
    for held in after[first:]:
        was = left.pop((held.owner, held.locks), None)
        if was is not held:
            new.append(held)
            gone += [was] if was is not None else []
    return [*gone, *left.values()], new


class Changes:
    """The parts that may be wrong after a step or operation: all, unless an earlier state is known to be right."""

    def __init__(self, checked: Snapshot | None, after: Snapshot) -> None:
        self._checked = checked or after
        self._after = after
        # With other limits or parts, the checks of the earlier state were not those of now.
        # Of two nodes with one id, it is unknown which was there before.
        self.checks_all = not (
            checked is not None
            and (after.limits is checked.limits or after.limits == checked.limits)
            and after.components == checked.components
            and checked.missing == after.missing
            and (after.nodes is checked.nodes or len(after.node_by_id) == len(after.nodes or ()))
        )

    @Derived
    def unchanged(self) -> frozenset[str]:
        """The parts that are the same objects as in the checked state."""
        if self.checks_all:
            return _NONE
        return frozenset(compress(PARTS, map(is_, _parts_of(self._checked), _parts_of(self._after))))

    @Derived
    def pools(self) -> Sequence[PoolView]:
        """The pools that differ."""
        before, after = self._checked.pools, self._after.pools
        if self.checks_all or len(before) != len(after):
            return after
        return [pool for pool, checked in zip(after, before, strict=True) if pool is not checked]

    @Derived
    def peer_maps(self) -> Sequence[PeerMap]:
        """The peer maps that are not proven to be right: what differs in them or in their pools may be wrong."""
        maps, checked = self._after.peer_maps or (), self._checked.peer_maps or ()
        if self.checks_all or len(maps) != len(checked):
            return maps
        return [after for before, after in zip(checked, maps, strict=True) if not self._are_paired(before, after)]

    def _moved(self, pool: str) -> Set[int] | None:
        """The units of a pool that are not where they were; None: any may have moved."""
        before, after = self._checked.pool_by_name.get(pool), self._after.pool(pool)
        since = (before, _NOWHERE) if before is after else after.moved_since
        return since[1] if since is not None and since[0] is before else None

    def _are_paired(self, before: PeerMap, after: PeerMap) -> bool:
        """Is a map right because it was, and all that differs in it or has moved in its pools is right?"""
        moved, others = self._moved(after.from_pool), self._moved(after.to_pool)
        if before is after and moved == others == _NOWHERE:
            return True
        peers, was = after.peers, before.peers
        if moved is None or others is None or not isinstance(peers, Peers) or (unit_of := peers.unit_of) is None:
            return False
        if peers is not was and peers.former is not was:
            return False
        changed = () if peers is was else peers.came
        from_owner, to_owner = self._after.pool(after.from_pool).owner_of, self._after.pool(after.to_pool).owner_of
        for unit in {*moved, *changed, *map(unit_of.get, others)}:
            if unit and (peer := peers[unit]):
                owner = from_owner.get(unit)
                if owner in RELEASED or owner != to_owner.get(peer):
                    return False
        unpaired = [unit for unit in {*others, *[was[unit] for unit in changed]} if unit and not unit_of.get(unit)]
        return all((owner := to_owner.get(unit)) is not None and owner.kind in UNPAIRED for unit in unpaired)

    @Derived
    def nodes(self) -> Sequence[NodeView]:
        """The nodes that are new, or differ in any field."""
        nodes = self._after.nodes or ()
        if self.checks_all:
            return nodes
        if nodes is self._checked.nodes:
            return ()
        checked = self._checked.node_by_id
        return [node for node in nodes if checked.get(node.id) is not node]

    @Derived
    def former_nodes(self) -> Sequence[NodeView]:
        """The earlier versions of `nodes`, and the nodes that were removed since."""
        if self.checks_all or self._after.nodes is self._checked.nodes:
            return ()
        ids = {node.id for node in self.nodes} | self._gone
        return [node for node in self._checked.nodes or () if node.id in ids]

    @Derived
    def reshaped(self) -> Sequence[NodeView]:
        """The nodes that are new, or differ in more than their locks and their last use."""
        return self._differing(SHAPE)

    @Derived
    def relatives(self) -> Sequence[NodeView]:
        """The nodes that differ in any field, and those whose parent differs or was removed."""
        return self._with_children(self.nodes)

    @Derived
    def moved_relatives(self) -> Sequence[NodeView]:
        """The nodes that are new or in another place, and those whose parent is such a node or was removed."""
        return self._with_children(self._differing(PLACE))

    @Derived
    def records(self) -> Sequence[RecordView]:
        """The records that are not proven to be as correct as before."""
        records = self._after.records or ()
        if self.checks_all or not records or len(set(self._after.page_sizes)) > 1:
            return records
        checked = {record.owner: record for record in self._checked.records or ()}
        moved, suspect, changed = self._reshaped_or_gone, self._other_receipts, []
        page_size, max_context_len = self._after.page_sizes[0], self._after.limits.max_context_len
        for record in records:
            earlier = checked.get(record.owner)
            if (
                earlier is None
                or record.receipt in suspect
                or not is_same_or_longer(earlier, record, page_size, max_context_len)
                or (
                    moved
                    and not moved.isdisjoint([record.node, *[node.parent for node in self._checked.path(record.node)]])
                )
            ):
                changed.append(record)
        return changed

    @Derived
    def _other_receipts(self) -> set[int]:
        """The ids of receipts that are new, were returned, or differ."""
        before, after = self._checked, self._after
        if before.receipts is after.receipts:
            return set()
        ids = before.receipt_by_id.keys() | after.receipt_by_id.keys()
        return {receipt for receipt in ids if before.receipt_by_id.get(receipt) != after.receipt_by_id.get(receipt)}

    @Derived
    def _gone(self) -> set[int]:
        if self._after.nodes is self._checked.nodes:
            return set()
        return self._checked.node_by_id.keys() - self._after.node_by_id.keys()

    @Derived
    def _reshaped_or_gone(self) -> set[int]:
        """The ids of nodes that differ or were removed; a path without them is unchanged."""
        return {node.id for node in self.reshaped} | self._gone

    def _differing(self, fields: slice) -> Sequence[NodeView]:
        """The nodes that are new, or differ in some of these fields."""
        if self.checks_all or not self.nodes:
            return self.nodes
        checked = self._checked.node_by_id
        return [
            node for node in self.nodes if (earlier := checked.get(node.id)) is None or earlier[fields] != node[fields]
        ]

    def _with_children(self, nodes: Sequence[NodeView]) -> Sequence[NodeView]:
        if self.checks_all:
            return nodes
        changed = {node.id for node in nodes} | self._gone
        if not changed:
            return ()
        return [node for node in self._after.nodes or () if node.id in changed or node.parent in changed]


def is_same_or_longer(earlier: RecordView, record: RecordView, page_size: int, max_context_len: int) -> bool:
    """Does a record differ from a correct one only by more tokens in the same pages?

    Then it is correct, too: its pages, its row, protected_len and frontiers are the same, and the laws demand less of
    them as `committed_len` and `launched_len` grow.
    """
    return (
        earlier.committed_len <= record.committed_len <= record.launched_len
        and earlier.launched_len <= record.launched_len <= record.allocated_len
        and earlier.allocated_len <= record.allocated_len <= min(len(record.units[0]) * page_size, max_context_len)
        and earlier[BELOW_THE_LENGTHS] == record[BELOW_THE_LENGTHS]
        and earlier[ABOVE_THE_LENGTHS] == record[ABOVE_THE_LENGTHS]
    )
