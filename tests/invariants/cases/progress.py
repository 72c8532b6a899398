"""Engines that stand still, or leave something behind."""

from dataclasses import replace

from invariants.conservation import Conservation
from invariants.progress import DrainCode, drained_pools_are_full, the_ratio_is_in_range, work_makes_progress
from invariants.transition import When
from invariants.view import LaunchView
from invariants.violation import found, pool_ref
from tests.invariants.builders import AFTER, BEFORE, HEALTHY, PRESSURE, R1, after, broken, claims, healthy, holding
from tests.invariants.host_builders import COPYING

EMPTY = replace(
    AFTER,
    pools=tuple(replace(pool, free=range(1, pool.capacity + 1), holdings=()) for pool in AFTER.pools),
    nodes=(),
    receipts=(),
    records=(),
    requests=(),
)
IN_A_PAUSE = replace(HEALTHY, before=replace(BEFORE, is_paused=True), steps_without_forward=4)
UNDER_PRESSURE = replace(after(pools=holding("swa", PRESSURE, [8])), steps_without_forward=4)

CASES = [
    healthy(the_ratio_is_in_range),
    broken(
        the_ratio_is_in_range,
        "below-its-floor",
        after(claims=claims(new_token_ratio=97_999)),
        ("new-token ratio", "97999 millionths, want 98000 to 1000000"),
    ),
    healthy(work_makes_progress, replace(HEALTHY, steps_without_forward=3)),
    broken(
        work_makes_progress,
        "stuck",
        replace(HEALTHY, steps_without_forward=4),
        ("engine", "4 steps without a pass, with work: request r1 running, request r2 waiting"),
    ),
    healthy(drained_pools_are_full, replace(HEALTHY, after=EMPTY, when=When.QUIESCENT)),
    broken(
        drained_pools_are_full,
        "something-is-left",
        replace(
            HEALTHY,
            after=replace(AFTER, nodes=(AFTER.nodes or ())[1:2], launches=(LaunchView(7, (), ()),)),
            when=When.QUIESCENT,
        ),
        found(pool_ref("full"), DrainCode.NOT_FULL, terms=Conservation(12, 4, 2, 4, {R1: 2}, 0)),
        found(pool_ref("swa"), DrainCode.NOT_FULL, terms=Conservation(8, 2, 2, 2, {R1: 2}, 0)),
        found(pool_ref("rows"), DrainCode.NOT_FULL, terms=Conservation(2, 1, 0, 0, {R1: 1}, 0)),
        ("request r1", "still running"),
        ("request r2", "still waiting"),
        ("request r1", "still has row 1"),
        ("receipt 1", "still out, held by request r1"),
        ("node n2", "still in the tree, with locks [1, 1]"),
        ("launch 7", "still in flight"),
    ),
    healthy(
        drained_pools_are_full,
        replace(HEALTHY, after=replace(EMPTY, transfers=()), when=When.QUIESCENT),
        "with-a-host",
    ),
    broken(
        drained_pools_are_full,
        "transfers-are-left",
        replace(HEALTHY, after=replace(EMPTY, transfers=COPYING.transfers), when=When.QUIESCENT),
        ("transfer 1", "still under way"),
        ("transfer 2", "still under way"),
    ),
]
