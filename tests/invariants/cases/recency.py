"""Nodes whose last use is not that of the events."""

from dataclasses import replace

from swarden.invariants.contracts.recency import (
    RecencyCode,
    last_uses_follow_locks,
    longest_idle_units_are_evicted_first,
)
from swarden.invariants.events import CopyBegan, Freed, Locked, Split, Taken
from swarden.invariants.reference import Past, Reference
from swarden.invariants.view import Holding, PoolView
from swarden.invariants.violation import Ref, found, node_ref
from tests.invariants.builders import AFTER, OTHER_PROMPT, R1, TREE, broken, healthy, idle, reference

# n1 ── n2 were last used at 3, n3 at 1.
N1, N2, N3 = AFTER.nodes or ()


def step(*events, n1=3, n2=3, n3=1, upper=None):
    """The last uses after a step with these events; n9 is the upper part of n3."""
    nodes = [N1._replace(last_used=n1), N2._replace(last_used=n2), N3._replace(last_used=n3)]
    if upper is not None:
        nodes[2] = nodes[2]._replace(parent=9, start=4, key=N3.key[4:], units=((6,), (4,)))
        nodes.append(N3._replace(id=9, key=N3.key[:4], units=((5,), (3,)), last_used=upper))
    return idle(*events, after=replace(AFTER, nodes=tuple(nodes)))


def unnoticed(node, last_used, want):
    return found(node_ref(node), RecencyCode.USED_UNNOTICED, last_used=last_used, want=want)


def evicted(unit, *, is_taken=True, left=(1, 2), since=(4, 6, 6)):
    """Units 1, 2 and 3 have had no reader since these transitions; one is evicted, the others are left."""
    events = [Freed("full", (unit,), TREE, "evicted", 0), *[Taken("full", (unit,), R1)] * is_taken]
    pool = PoolView("full", "page", 9, (), (), [Holding(TREE, left, True)])
    pools = (pool, *[one for one in AFTER.pools if one.name != "full"])
    limits = AFTER.limits._replace(evicts_longest_idle=True)
    past = Past(idle=dict(zip((("full", 1), ("full", 2), ("full", 3)), since, strict=True)), moment=9)
    before = replace(AFTER, nodes=None)
    change = idle(*events, before=before, after=replace(before, pools=pools, limits=limits))
    return replace(change, reference=Reference(past=past))


def evicted_leaf(*, used=6, asked=(), nodes=AFTER.nodes):
    """Unit 9 of a leaf is evicted, n3 is left; request 9 is one of the past with the first tokens of n3."""
    change, known = evicted(9, is_taken=False, left=(5, 6)), reference(21)
    known.past = Past(
        idle={("full", 5): 4, ("full", 6): 4}, used={("full", 9): used}, asked=dict.fromkeys((1, 9), 2), moment=9
    )
    known.past.asked |= dict(asked)
    known.submitted(9, namespace=0, prompt=(*OTHER_PROMPT, 7))
    before, after = [replace(state, nodes=nodes, requests=()) for state in (change.before, change.after)]
    return replace(change, before=before, after=after, reference=known)


OUTLIVED = found(Ref("page", 3, "full"), RecencyCode.OUTLIVED, other=Ref("page", 1, "full"), idle=4, longer=6)
BELOW = N3._replace(id=8, parent=3, start=8, units=((1, 2), (1, 2)))
SPLIT, BACKUP = Split(3, 9, 4), CopyBegan(1, True, ())

CASES = [
    healthy(last_uses_follow_locks, step(), "not-used"),
    healthy(last_uses_follow_locks, step(Locked(5, 2), n1=4, n2=4), "path-used"),
    healthy(last_uses_follow_locks, step(Locked(5, 2), Locked(6, 3), n1=4, n2=4, n3=5), "two-paths-used"),
    healthy(last_uses_follow_locks, step(Locked(5, 2), BACKUP), "backup"),
    healthy(last_uses_follow_locks, step(Locked(5, 0)), "nothing-matched"),
    healthy(last_uses_follow_locks, step(SPLIT, upper=1), "split"),
    healthy(last_uses_follow_locks, step(SPLIT, Locked(5, 9), upper=4), "upper-part-used"),
    broken(last_uses_follow_locks, "unnoticed", step(Locked(5, 3)), unnoticed(3, 1, 4)),
    broken(last_uses_follow_locks, "above", step(Locked(5, 2), n2=4), unnoticed(1, 3, 4)),
    broken(
        last_uses_follow_locks, "other-order", step(Locked(5, 2), Locked(6, 3), n1=5, n2=5, n3=4), unnoticed(3, 4, 6)
    ),
    broken(
        last_uses_follow_locks,
        "backup-counts",
        step(Locked(5, 2), BACKUP, n2=4),
        found(node_ref(2), RecencyCode.NOT_USED, last_used=3, now=4),
    ),
    broken(
        last_uses_follow_locks,
        "upper-part-is-never-used",
        step(SPLIT, upper=0),
        found(node_ref(9), RecencyCode.NOT_USED, last_used=1, now=0),
    ),
    healthy(longest_idle_units_are_evicted_first, evicted(1, left=(2, 3)), "longest-idle"),
    healthy(longest_idle_units_are_evicted_first, evicted(3, left=(2,)), "idle-as-long"),
    healthy(longest_idle_units_are_evicted_first, evicted(3, is_taken=False), "dropped"),
    broken(longest_idle_units_are_evicted_first, "outlived", evicted(3), OUTLIVED),
    healthy(longest_idle_units_are_evicted_first, evicted_leaf(used=4), "leaf-used-as-late"),
    healthy(longest_idle_units_are_evicted_first, evicted_leaf(asked={9: 6}), "leaf-that-a-request-may-have-matched"),
    healthy(longest_idle_units_are_evicted_first, evicted_leaf(asked={5: 6}), "request-of-which-nothing-is-known"),
    healthy(longest_idle_units_are_evicted_first, evicted_leaf(nodes=(N1, N2, N3, BELOW)), "no-leaf"),
    broken(
        longest_idle_units_are_evicted_first,
        "leaf-outlived",
        evicted_leaf(asked={1: 8}),
        found(Ref("page", 9, "full"), RecencyCode.USED_LATER, other=Ref("page", 5, "full"), idle=4, longer=6),
    ),
]
