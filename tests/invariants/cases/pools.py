"""Pools whose units do not add up."""

from invariants.pools import each_unit_has_one_owner, pools_conserve_their_units
from invariants.view import Fence
from tests.invariants.builders import R2, after, broken, healthy, holding, pools

CASES = [
    healthy(each_unit_has_one_owner),
    broken(each_unit_has_one_owner, "leak", after(pools=pools("swa", free=[7])), ("swa page 8", "owned by nobody")),
    broken(
        each_unit_has_one_owner,
        "double-free",
        after(pools=pools("swa", free=[7, 8, 8])),
        ("swa page 8", "owned by free and free"),
    ),
    broken(
        each_unit_has_one_owner,
        "use-after-free-in-balance",
        after(pools=pools("swa", free=[3, 7])),
        ("swa page 3", "owned by free and tree n3"),
        ("swa page 8", "owned by nobody"),
    ),
    broken(
        each_unit_has_one_owner,
        "two-owners",
        after(pools=holding("rows", R2, [1])),
        ("rows row 1", "owned by request r1 and request r2"),
    ),
    broken(
        each_unit_has_one_owner,
        "padding-and-beyond",
        after(pools=pools("rows", free=[0, 3])),
        ("rows row 0", "owned by free, yet rows run from 1 to 2"),
        ("rows row 2", "owned by nobody"),
        ("rows row 3", "owned by free, yet rows run from 1 to 2"),
    ),
    healthy(pools_conserve_their_units),
    broken(
        pools_conserve_their_units,
        "double-owner",
        after(pools=holding("swa", R2, [8])),
        (
            "swa",
            "capacity 8 = free 2 + cached 4 (evictable 2, protected 2) + uncached 3 (request r1 2, request r2 1)"
            ": one too many",
        ),
    ),
    broken(
        pools_conserve_their_units,
        "leak",
        after(pools=pools("full", free=[12], fenced=[Fence(7, [11])])),
        (
            "full",
            "capacity 12 = free 1 + cached 6 (evictable 2, protected 4) + uncached 2 (request r1 2) + fenced 1"
            ": 2 too few",
        ),
    ),
]
