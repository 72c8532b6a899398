"""Evictions of cached prefixes for which there was room."""

from dataclasses import replace

from swarden.invariants.contracts.needed_evictions import NeededEvictionCode, evictions_serve_takes
from swarden.invariants.events import Freed, Launched, Retracted, Taken
from swarden.invariants.violation import found, pool_ref
from tests.invariants.builders import AFTER, BEFORE, R1, TREE, broken, healthy, idle, with_pool

N1, N2, N3 = AFTER.nodes or ()
# n4 is below n3, and has been cached as long; nobody reads the two.
N4 = N3._replace(id=4, parent=3, start=8, key=(7, 8, 9, 10), units=((9,), (0,)), live=(True, False))
EVICTED, TAKEN = Freed("full", (9,), TREE, "evicted", 0), Taken("full", (10,), R1)


def evicting(*events, nodes=(N1, N2, N3), free=2, placed=AFTER.requests):
    """A step of r1, in which n4 is evicted; before it `free` pages are free."""
    full = BEFORE.pool("full")
    held = [*full.holdings, *[one._replace(units=(9,)) for one in full.holdings if one.owner.id == 3]]
    of_before = with_pool(BEFORE, "full", free=(10, 11, 12)[:free], holdings=held)
    before = replace(BEFORE, nodes=(N1, N2, N3, N4), pools=of_before)
    return idle(Launched(1, ((1, 20, 21),)), *events, before=before, after=replace(AFTER, nodes=nodes, requests=placed))


IN_VAIN = found(pool_ref("full"), NeededEvictionCode.EVICTED_IN_VAIN, evicted=1, free=2, taken=1)
RUNNING = tuple([request._replace(place="running") for request in AFTER.requests or ()])
WITHOUT_TREE = evicting(EVICTED, TAKEN)
WITHOUT_TREE = replace(
    WITHOUT_TREE, before=replace(WITHOUT_TREE.before, nodes=None), after=replace(WITHOUT_TREE.after, nodes=None)
)

CASES = [
    broken(evictions_serve_takes, "pages-were-free", evicting(EVICTED, TAKEN), IN_VAIN),
    broken(evictions_serve_takes, "blocks-were-free", WITHOUT_TREE, IN_VAIN),
    broken(
        evictions_serve_takes,
        "a-second-victim",
        evicting(EVICTED._replace(units=(6, 9)), TAKEN, nodes=(N1, N2), free=0),
        found(pool_ref("full"), NeededEvictionCode.EVICTED_IN_VAIN, evicted=2, free=0, taken=1),
    ),
    healthy(evictions_serve_takes, evicting(EVICTED, TAKEN, free=0), "no-page-was-free"),
    healthy(evictions_serve_takes, evicting(EVICTED, TAKEN, nodes=(N1, N2, N3, N4)), "pages-were-replaced"),
    healthy(evictions_serve_takes, evicting(EVICTED, TAKEN, Retracted(2, 0, ())), "demand-is-not-known"),
    healthy(evictions_serve_takes, evicting(EVICTED, TAKEN, placed=RUNNING, free=1), "r2-takes-its-page-later"),
    healthy(evictions_serve_takes, evicting(TAKEN, EVICTED), "nothing-is-taken-afterwards"),
]
