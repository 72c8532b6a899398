"""Nodes whose last use is not that of the events."""

from dataclasses import replace

from swarden.invariants.contracts.recency import RecencyCode, last_uses_follow_locks
from swarden.invariants.events import Locked, Split
from swarden.invariants.violation import found, node_ref
from tests.invariants.builders import AFTER, broken, idle

# n1 ── n2 were last used at 3, n3 at 1.
N1, N2, N3 = AFTER.nodes or ()


def step(*events, upper=None):
    """The last uses after a step with these events; n9 is the upper part of n3."""
    nodes = [N1, N2, N3]
    if upper is not None:
        nodes[2] = nodes[2]._replace(parent=9, start=4, key=N3.key[4:], units=((6,), (4,)))
        nodes.append(N3._replace(id=9, key=N3.key[:4], units=((5,), (3,)), last_used=upper))
    return idle(*events, after=replace(AFTER, nodes=tuple(nodes)))


def unnoticed(node, last_used, want):
    return found(node_ref(node), RecencyCode.USED_UNNOTICED, last_used=last_used, want=want)


SPLIT = Split(3, 9, 4)

CASES = [
    broken(last_uses_follow_locks, "unnoticed", step(Locked(5, 3)), unnoticed(3, 1, 4)),
    broken(
        last_uses_follow_locks,
        "upper-part-is-never-used",
        step(SPLIT, upper=0),
        found(node_ref(9), RecencyCode.NOT_USED, last_used=1, now=0),
    ),
]
