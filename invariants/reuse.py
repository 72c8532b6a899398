"""Snapshots that share their equal parts, so that the laws check again only what changed."""

from typing import TypeVar

from swarden.invariants.changes import PARTS
from swarden.invariants.view import FIELDS, Snapshot

PartT = TypeVar("PartT")


def same_or_new(old: PartT, new: PartT) -> PartT:
    """The old value if it equals the new one, so that a later comparison can use identity."""
    return old if old == new else new


def sharing(before: Snapshot, after: Snapshot) -> Snapshot:
    """`after`, which nobody else has, with the parts, pools and nodes of `before` that are equal.

    Neither snapshot may have a list that the engine changes in place.
    """
    parts = {name: same_or_new(getattr(before, name), getattr(after, name)) for name in PARTS}
    if after.nodes is parts["nodes"] is not None:
        known = before.node_by_id
        parts["nodes"] = tuple([same_or_new(known.get(node.id, node), node) for node in after.nodes])
    if after.pools is parts["pools"] and len(before.pools) == len(after.pools):
        parts["pools"] = tuple(map(same_or_new, before.pools, after.pools))
    own = vars(after)
    for derived in own.keys() - FIELDS:
        del own[derived]
    own.update(parts)
    return after
