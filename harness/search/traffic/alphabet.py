"""The single ops that a list of ops is made of: every kind once or twice, with arguments from the target's shape."""

from itertools import chain
from typing import Any

from swarden.harness.core import ops
from swarden.harness.core.ops import Op, Recipe
from swarden.harness.core.target import Target


def alphabet_of(target: Target, machine: str, config: Any) -> list[Op]:
    """The ops to combine: a few of each kind that the machine supports, but for faults and the clock."""
    shape = target.shape(config)
    page, pools, spec = shape.page_size, range(len(shape.pools)), target.machines[machine]
    whole, branch = Recipe(path=(0,), stretch=2 * page), Recipe(path=(0, 1), stretch=page + 1)
    candidates: tuple[Op, ...] = (
        *(ops.Submit(recipe=whole), ops.Submit(recipe=branch, max_new_tokens=2 * page), ops.Step()),
        *(
            ops.Abort(),
            ops.Abort(request=1),
            ops.Flush(),
            *[ops.Pause(mode=mode) for mode in spec.pauses],
            ops.Resume(),
            ops.Reset(),
        ),
        *chain.from_iterable((ops.Pressure(pool=pool, pages=3), ops.Pressure(pool=pool)) for pool in pools),
        *(ops.OpenSession(), ops.Turn(recipe=whole, max_new_tokens=2), ops.CloseSession()),
        *((ops.Accept(lengths=(0,)), ops.Accept(lengths=(8,))) if shape.lookahead_len else ()),
    )
    return [op for op in candidates if not spec.refusal(op)]
