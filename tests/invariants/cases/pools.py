"""Pools with leaked, shared or twice freed units."""

from swarden.invariants.conservation import Conservation
from swarden.invariants.events import Owner
from swarden.invariants.laws.memory.pools import PoolCode, pools_conserve_units, unit_has_one_owner
from swarden.invariants.view import FREE, Fence
from swarden.invariants.violation import Ref, found, pool_ref
from tests.invariants.builders import R1, R2, after, broken, holding, page, pools

N3 = Owner("tree", 3)


def owned(unit, code, *owners, last=8):
    return found(unit, code, owners=owners, last=last)


CASES = [
    broken(unit_has_one_owner, "leak", after(pools=pools("swa", free=[7])), owned(page("swa", 8), PoolCode.LEAKED)),
    broken(
        unit_has_one_owner,
        "double-free",
        after(pools=pools("swa", free=[7, 8, 8])),
        owned(page("swa", 8), PoolCode.FREE_TWICE, FREE, FREE),
    ),
    broken(
        unit_has_one_owner,
        "use-after-free-and-leak",
        after(pools=pools("swa", free=[3, 7])),
        owned(page("swa", 3), PoolCode.FREE_IN_USE, FREE, N3),
        owned(page("swa", 8), PoolCode.LEAKED),
    ),
    broken(
        unit_has_one_owner,
        "two-owners",
        after(pools=holding("rows", R2, [1])),
        owned(Ref("row", 1, "rows"), PoolCode.OWNED_TWICE, R1, R2, last=2),
    ),
    broken(
        unit_has_one_owner,
        "padding-and-beyond",
        after(pools=pools("rows", free=[0, 3])),
        owned(Ref("row", 0, "rows"), PoolCode.OUT_OF_RANGE, FREE, last=2),
        owned(Ref("row", 2, "rows"), PoolCode.LEAKED, last=2),
        owned(Ref("row", 3, "rows"), PoolCode.OUT_OF_RANGE, FREE, last=2),
    ),
    broken(
        pools_conserve_units,
        "two-owners",
        after(pools=holding("swa", R2, [8])),
        found(pool_ref("swa"), PoolCode.TOO_MANY, terms=Conservation(8, 2, 2, 2, {R1: 2, R2: 1}, 0)),
    ),
    broken(
        pools_conserve_units,
        "leak",
        after(pools=pools("full", free=[12], fenced=[Fence(7, [11])])),
        found(pool_ref("full"), PoolCode.TOO_FEW, terms=Conservation(12, 1, 2, 4, {R1: 2}, 1)),
    ),
]
