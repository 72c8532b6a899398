"""Changed logs of a corpus: ops are left out, repeated, exchanged or taken from another log; two logs are crossed."""

import random
from collections.abc import Sequence

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Op

CROSSED, OTHER_CONFIG = 0.5, 0.25  # shares of the changed logs
MOST_CHANGES = 4  # of one log, beside the crossing
MOST_OPS = 8  # that one change leaves out or repeats


def changed(logs: Sequence[OpLog], *, seed: int, count: int) -> list[OpLog]:
    """So many new logs, each of one log and another one of the same machine, no longer than the longer of both."""
    draw = random.Random(seed)
    return [_changed(draw, logs) for _ in range(count)] if logs else []


def _changed(draw: random.Random, logs: Sequence[OpLog]) -> OpLog:
    log = draw.choice(logs)
    other = draw.choice([one for one in logs if one.header.machine == log.header.machine])
    header = (other if draw.random() < OTHER_CONFIG else log).header
    ops = list(log.ops)
    if draw.random() < CROSSED:
        ops = ops[: draw.randint(0, len(ops))] + list(other.ops[draw.randint(0, len(other.ops)) :])
    for _ in range(draw.randint(1, MOST_CHANGES)):
        _change(draw, ops, other.ops)
    return OpLog(header, ops[: max(len(log.ops), len(other.ops))])


def _change(draw: random.Random, ops: list[Op], other: Sequence[Op]) -> None:
    place, source, size = draw.randint(0, len(ops)), draw.choice((ops, other)), draw.randint(1, MOST_OPS)
    start = draw.randint(0, len(source))
    match draw.randrange(3):
        case 0:
            del ops[place : place + size]
        case 1:
            ops[place:place] = source[start : start + size]
        case _:  # the arguments of another op of its kind
            ops[place : place + 1] = [
                draw.choice([other_op for other_op in source if type(other_op) is type(op)] or [op])
                for op in ops[place : place + 1]
            ]
