"""The explanation of a failing log, for failures that are predicates over ops, and for a planted bug."""

from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Flush, Pause, Recipe, Step, Submit, Turn
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import failure_like
from swarden.harness.search.shrink.explain import REACH, Explanation, explain, explanation_lines
from swarden.harness.search.shrink.shrink import ShrinkBudget
from tests.harness.search.shrink.test_shrink import Bug, FailedAt, Recorded, in_order, is_a

OPLOGS = Path(__file__).parents[3] / "quality" / "oplogs"
PLENTY = ShrinkBudget(executions=10_000, cpu_seconds=60)


def explained(bug: Bug, *ops, budget=PLENTY, **settings) -> Explanation:
    return explain(OpLog(Header(engine=OWN, machine="engine", configs=[settings]), ops), bug, budget)


def range_of(explanation, op, name):
    [found] = [number for number in explanation.ranges if (number.place.op, number.place.name) == (op, name)]
    return found[1:]


def if_first(is_right) -> Bug:
    """Fails at the first op if that is a right one."""
    return lambda log: in_order(is_right)(OpLog(log.header, log.ops[:1]))


def test_each_op_is_needed_and_the_order_of_two_is_free():
    """The pause and the flush may change places; both come after the submit and before the step."""

    def bug(log):
        kinds = list(map(type, log.ops))
        return in_order(is_a(Step))(log) if kinds[0] is Submit and {Pause, Flush} <= set(kinds[1:-1]) else None

    explanation = explained(bug, Submit(), Pause(), Flush(), Step())

    assert explanation.needless == []
    assert explanation.free == [(2, 3)]
    assert explanation.ordered == [(1, 2), (3, 4), (1, 3), (2, 4)]


def test_op_without_which_the_log_still_fails_is_named():
    explanation = explained(in_order(is_a(Submit), is_a(Step)), Submit(), Flush(), Step())

    assert explanation.needless == [2]


def test_order_that_follows_from_two_others_is_not_replayed():
    bug = Recorded(in_order(is_a(Submit), is_a(Flush), is_a(Step)))

    explanation = explained(bug, Submit(), Flush(), Step())

    assert explanation.ordered == [(1, 2), (2, 3)]
    assert [Flush(), Step(), Submit()] not in [log.ops for log in bug.candidates]


def test_requests_change_places_together_with_their_ordinals():
    """The failure needs an abort of the long request, wherever this request is."""

    def bug(log):
        submits = [op for op in log.ops[:-1] if isinstance(op, Submit)]
        aborted = log.ops[-1].request if isinstance(log.ops[-1], Abort) else len(submits)
        is_long = aborted < len(submits) == 2 and submits[aborted].max_new_tokens == 9
        return in_order(is_a(Abort))(log) if is_long else None

    explanation = explained(bug, Submit(max_new_tokens=9), Submit(), Abort(request=0))

    assert (1, 2) in explanation.free


@pytest.mark.parametrize(
    ("is_right", "expected"),
    [
        pytest.param(lambda value: value == 10, (10, 10, 10, True, True), id="exactly"),
        pytest.param(lambda value: 7 <= value <= 30, (10, 7, 30, True, True), id="between"),
        pytest.param(lambda value: value >= 4, (10, 4, 10 + REACH, True, False), id="at-least"),
        pytest.param(lambda value: value <= 29, (10, 0, 29, False, True), id="at-most"),
        pytest.param(lambda value: value >= 0, (10, 0, 10 + REACH, False, False), id="any"),
    ],
)
def test_range_of_an_argument_is_found_to_the_unit(is_right, expected):
    """An end is strict if the next value does not fail; the other ends are those of an op-log, or of the reach."""
    bug = if_first(lambda op: is_right(op.max_new_tokens))

    assert range_of(explained(bug, Submit(max_new_tokens=10)), 1, "max_new_tokens") == expected


def test_values_beyond_the_limits_of_an_op_are_not_tried():
    bug = Recorded(if_first(is_a(Step)))

    assert range_of(explained(bug, Step(count=5)), 1, "count") == (5, 1, 8, False, False)
    counts = {op.count for log in bug.candidates for op in log.ops if isinstance(op, Step)}
    assert (min(counts), max(counts)) == (1, 8)


def test_other_choices_of_a_path_are_tried_one_at_a_time():
    bug = if_first(lambda op: op.recipe.path[0] == 0)

    explanation = explained(bug, Submit(recipe=Recipe(path=(0, 1))))

    tried = {one.other: one.still_fails for one in explanation.alternatives if one.place.name == "path"}
    assert tried == {(2, 1): False, (0, 2): True, (0, 1, 2): True}


def test_setting_that_differs_from_the_default_has_a_range_of_valid_values():
    def bug(log):
        return in_order(is_a(Submit))(log) if log.header.configs[0]["swa_pages"] <= 12 else None

    explanation = explained(bug, Submit(), swa_pages=10, sliding_window=4)

    value, low, high, *are_strict = range_of(explanation, 0, "swa_pages")
    assert (value, high, are_strict) == (10, 12, [True, True])
    assert 1 < low <= 10  # fewer pages cannot hold the window


def test_budget_bounds_the_replays_and_leaves_out_later_statements():
    bug = Recorded(in_order(is_a(Submit), is_a(Step)))

    explanation = explained(bug, Submit(), Step(), budget=ShrinkBudget(executions=4))

    assert not explanation.complete
    assert explanation.replays == len(bug.candidates) == 4
    assert next(explanation_lines(explanation, [Submit(), Step()])) == (
        "the failure needs, by 4 replays of logs that differ in one thing; "
        "the budget was used up, so later statements are missing:"
    )


def test_explanation_of_a_planted_bug_says_which_ops_orders_and_values_it_needs():
    """The explanation is the same in each run."""
    log = load_log(OPLOGS / "B18.oplog")
    assert log.header.expected is not None

    first, second = (explain(log, lambda one: failure_like(one, str(log.header.expected)), PLENTY) for _ in range(2))

    lines = [*explanation_lines(first, log.ops)]
    assert first == second
    assert first.complete
    assert lines[1:4] == ["  each of the 3 ops", "  op 1 before op 2", "  op 2 before op 3"]
    assert "  of op 3 (step)" in lines
    assert lines[lines.index("  of op 3 (step)") + 1] == "    count at least 5 (tried up to 8)"
    settings = lines[lines.index("  of the configuration of engine 0") + 1 :]
    assert settings[:2] == ["    page_size 1, not 0 or 2", "    swa_pages 10 to 11"]


def test_words_name_the_ops_that_may_change_places():
    """The abort, the flush and the pause may; the submit is first."""

    def bug(log):
        first, *others = map(type, log.ops)
        return FailedAt(len(others)) if first is Submit and {Abort, Flush, Pause} == set(others) else None

    ops = [Submit(), Abort(), Flush(), Pause()]

    lines = [line.strip() for line in explanation_lines(explained(bug, *ops), ops)]
    free = [line.strip() for line in explanation_lines(explained(in_order(is_a(Flush)), *ops[1:]), ops[1:])]

    assert lines[1:7] == [
        "each of the 4 ops",
        *(f"op 1 before op {second}" for second in (2, 3, 4)),
        "op 2 before or after op 3, 4",
        "op 3 before or after op 4",
    ]
    assert free[1:3] == ["not each op: it fails without any one of 1, 3", "any two of them in either order"]


def test_words_name_the_values_that_serve_as_well():
    bug = if_first(lambda op: op.session == 0 and op.recipe.path[0] == 0 and op.recipe.continues is None)
    ops = [Turn(recipe=Recipe(path=(0, 1)))]

    lines = [line.strip() for line in explanation_lines(explained(bug, *ops), ops)]

    assert lines[1] == "the op"
    assert "session 0, not 1" in lines
    assert "path 0.1, not 2.1, but also 0.2 or 0.1.2" in lines
    assert "continues none, not 0" in lines
    assert lines[-1] == "any stretch, cut, rewind, kept, max_new_tokens, priority, grammar, stop"
