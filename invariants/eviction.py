"""What an eviction may take, in which order, and when it may end."""

from invariants.base import Evidence, Transition, When, invariant
from invariants.events import Evicted, Freed, Removed, Slid, Split, Tombstoned, Unlocked
from invariants.shadow import Victim
from invariants.view import TREE_KIND, ReceiptView, Snapshot
from invariants.wording import node_name


@invariant(When.OP, covers=("EVICT-EFFECT",), on=(Evicted,))
def evictions_meet_their_need(change: Transition) -> Evidence:
    """An eviction goes on until enough has come free in every pool, or nothing that may go is left in it."""
    freed: dict[str, int] = {}
    for event in change.tree_events:
        if isinstance(event, Freed) and event.owner.kind == TREE_KIND:
            freed[event.pool] = freed.get(event.pool, 0) + len(event.units)
        elif isinstance(event, Evicted):
            said, left = dict(event.freed), dict(event.left)
            for pool, need in event.need:
                if said.get(pool, 0) < need and left.get(pool, 0):
                    yield pool, f"needed {need}, freed {said.get(pool, 0)}, yet {left[pool]} could still be evicted"
            for pool, count in said.items():
                if count > freed.get(pool, 0):
                    yield pool, f"said to have freed {count}, yet the tree gave back {freed.get(pool, 0)}"
            freed = {}


@invariant(
    When.OP, covers=("EVICT-EFFECT", "LOCK-RECEIPT", "NO-UAF"), needs=("nodes", "receipts"), on=(Removed, Tombstoned)
)
def eviction_spares_locked_nodes(change: Transition) -> Evidence:
    """Nothing leaves the tree while a receipt covers it.

    A lock counts as long as its receipt was not returned; in a window, as long as its holder did not slide.
    """
    returned: set[int] = set()
    slid: set[int] = set()
    origin: dict[int, int] = {}
    for event in change.tree_events:
        if isinstance(event, Unlocked):
            returned.add(event.receipt)
        elif isinstance(event, Slid):
            slid.add(event.request_id)
        elif isinstance(event, Split):
            origin[event.upper] = origin.get(event.node, event.node)
        elif isinstance(event, (Removed, Tombstoned)):
            node = origin.get(event.node, event.node)
            for receipt in change.before.receipts or () if node in change.before.covered else ():
                if receipt.id not in returned and _covers(change.before, receipt, node, event, slid):
                    yield node_name(event.node), f"{_deed(event)}, yet {receipt.holder} has it locked"


@invariant(When.OP, covers=("EVICT-EFFECT", "LISTS"), needs=("nodes", "windowed"), on=(Removed, Tombstoned))
def eviction_takes_the_dead_interior_first(change: Transition) -> Evidence:
    """A windowed pool first gives up what no branch reads through its window any more.

    Taking the window of an idle branch while others are dead costs that branch its cache (sglang issue 35515).
    """
    for choice in change.choices:
        if choice.interior is not None:
            detail = f"the end of a branch reads it, and {node_name(choice.interior.id)} is read by none"
            yield node_name(choice.node.id), f"{_deed(choice.event)}, yet {detail}"


@invariant(When.OP, covers=("EVICT-EFFECT", "LISTS"), needs=("nodes",), on=(Removed, Tombstoned))
def eviction_is_least_recently_used(change: Transition) -> Evidence:
    """Of the nodes that may go, the least recently used goes first."""
    for choice in change.choices:
        if choice.older is not None:
            older = f"{node_name(choice.older.id)} is used last at {choice.older.last_used}"
            detail = f"{older}, before {choice.node.last_used}"
            yield node_name(choice.node.id), f"{_deed(choice.event)}, yet {detail}"


def _deed(event: Victim) -> str:
    return f"removed for {event.component}" if isinstance(event, Removed) else f"gave up its {event.component} pages"


def _covers(before: Snapshot, receipt: ReceiptView, node: int, victim: Victim, slid: set[int]) -> bool:
    """Does a receipt cover what a victim gives up: all of it, or its pages of one component?"""
    return any(
        node in receipt.covers[index] and not (component.window is not None and receipt.holder.id in slid)
        for index, component in enumerate(before.components)
        if isinstance(victim, Removed) or component.pool == victim.component
    )
