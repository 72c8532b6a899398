"""The shrinker finds the smallest log for failures that are predicates over ops."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, AdvanceClock, Drain, Flush, Op, Pressure, Recipe, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.search.shrink.shrink import DoesNotFail, ShrinkBudget, Shrunk, measure, shrink
from tests.harness.some_ops import any_ops

HEADER = Header(engine=OWN, machine="engine", configs=[{}], seed=7, mutant="B14")
PLENTY = ShrinkBudget(executions=100_000, cpu_seconds=60)


class FailedAt(NamedTuple):
    op_index: int


Bug = Callable[[OpLog], Any]


class Recorded:
    """A bug that records the candidates that it was called with."""

    def __init__(self, bug: Bug) -> None:
        self.bug = bug
        self.candidates: list[OpLog] = []

    def __call__(self, log: OpLog) -> Any:
        self.candidates.append(log)
        return self.bug(log)


def in_order(*matches: Callable[[Op], bool]) -> Bug:
    """Fails at the last of several ops that occur in this order, with any other ops between them."""

    def bug(log: OpLog) -> Any:
        awaited = list(matches)
        for index, op in enumerate(log.ops):
            if awaited[0](op):
                awaited.pop(0)
            if not awaited:
                return FailedAt(index)
        return None

    return bug


def is_a(*kinds: type[Op]) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, kinds)


def shrunk(ops: list[Op], bug: Bug, header: Header = HEADER) -> Shrunk:
    return shrink(OpLog(header, ops), bug, PLENTY)


def traffic(seed: int, length: int) -> list[Op]:
    """Random ops as a machine draws them."""
    random = Random(seed)

    def recipe() -> Recipe:
        path = tuple(random.randrange(3) for _ in range(random.randrange(1, 6)))
        return Recipe(path=path, stretch=random.choice((4, 1, 3, 8)), cut=random.randrange(4))

    makers: list[Callable[[], Op]] = [
        lambda: Submit(recipe=recipe(), max_new_tokens=random.randrange(1, 20)),
        lambda: Step(count=random.randrange(1, 9)),
        lambda: Abort(request=random.randrange(8)),
        lambda: AdvanceClock(ms=random.choice((1, 50, 101))),
        lambda: Flush(),
        lambda: Pressure(pool=random.randrange(2), pages=random.choice((0, 1, 3, 10))),
    ]
    return [random.choice(makers)() for _ in range(length)]


def six_steps(log: OpLog) -> Any:
    """Fails after a prompt, pressure, a prompt with the same first choice, five engine steps, an abort and a step."""
    stage, first, steps = 0, None, 0
    for index, op in enumerate(log.ops):
        match stage, op:
            case 0, Submit():
                stage, first = 1, op.recipe.path[:1]
            case 1, Pressure() if op.pages >= 3:
                stage = 2
            case 2, Submit() if op.recipe.path[:1] == first:
                stage = 3
            case 3, Step():
                steps += op.count
                stage = 4 if steps >= 5 else 3
            case 4, Abort():
                stage = 5
            case 5, Step():
                return FailedAt(index)
    return None


submit_step_abort = in_order(is_a(Submit), is_a(Step), is_a(Abort))


def test_shrunk_log_has_only_the_needed_ops_with_default_arguments():
    ops = [Flush(), *traffic(1, 60), Submit(max_new_tokens=9), Step(count=7), Abort(request=3)]

    assert shrunk(ops, submit_step_abort).log.ops == [Submit(), Step(), Abort()]


@pytest.mark.parametrize("length", [100, 200, 400])
def test_log_of_a_bug_that_needs_six_ops_is_shrunk_with_few_executions(length):
    search = shrunk(traffic(1000 + length, length), six_steps)

    assert search.log.ops == [Submit(), Pressure(pages=3), Submit(), Step(count=5), Abort(), Step()]
    assert search.complete
    assert search.executions <= 100
    assert search.op_calls <= 10 * length


def test_long_run_before_a_short_cause_costs_few_op_calls():
    """The first execution, which runs the whole log, is not counted."""
    cause = [Pressure(pages=99), Step(), Flush()]
    ops = [*traffic(3, 400), *cause]

    small = shrunk(ops, in_order(lambda op: op == cause[0], is_a(Step), is_a(Flush)))

    assert small.log.ops == cause
    assert small.op_calls < len(ops) + 60


def test_ops_after_the_failing_op_are_removed_without_a_further_execution():
    bug = Recorded(in_order(is_a(Flush)))

    shrunk([Flush(), *traffic(2, 100)], bug)

    assert len(bug.candidates) == 1


def test_two_ops_that_cannot_be_removed_singly_are_removed_together():
    """A pressure and its release are two such ops."""

    def bug(log: OpLog) -> Any:
        even = sum(isinstance(op, Flush) for op in log.ops) % 2 == 0
        return submit_step_abort(log) if even else None

    ops = [Submit(), Flush(), Submit(), Step(), Flush(), Abort()]

    assert shrunk(ops, bug).log.ops == [Submit(), Step(), Abort()]


def test_long_result_is_replaced_by_a_shorter_one_of_another_order():
    """Once the first ops are deleted 16 submissions are needed, and no further op can be deleted."""
    marks = [Submit(priority=5), Submit(priority=7)]
    many = Submit(max_new_tokens=9)

    def bug(log: OpLog) -> Any:
        fails = log.ops.count(many) >= 16 or all(mark in log.ops for mark in marks)
        return FailedAt(len(log.ops) - 1) if fails and log.ops[-1] == Step() else None

    ops = [marks[0], *[Submit()] * 4, *[many] * 16, marks[1], Step()]

    assert shrunk(ops, bug).log.ops == [*marks, Step()]


def test_step_ops_are_merged_into_one():
    """No step op can be removed alone: seven steps are needed before the abort."""

    def bug(log: OpLog) -> Any:
        steps = 0
        for index, op in enumerate(log.ops):
            steps += op.count if isinstance(op, Step) else 0
            if isinstance(op, Abort) and steps >= 7:
                return FailedAt(index)
        return None

    ops = [Step(count=2), Flush(), Step(count=3), Submit(), Step(count=4), Abort()]

    assert shrunk(ops, bug).log.ops == [Step(count=7), Abort()]


def test_drain_that_fails_in_its_first_steps_becomes_a_step_op():
    """The step op has as few steps as the failure needs."""
    fails_in_three = in_order(lambda op: isinstance(op, Drain) or (isinstance(op, Step) and op.count >= 3))

    assert shrunk([Flush(), Drain()], fails_in_three).log.ops == [Step(count=3)]


def test_two_prompts_become_one_with_the_length_of_both():
    """One prompt is removed although the other one must get longer."""

    def many_tokens(log: OpLog) -> Any:
        lens = [len(op.recipe.path) for op in log.ops if isinstance(op, Submit)]
        return FailedAt(len(log.ops) - 1) if sum(lens) >= 5 else None

    ops = [Submit(recipe=Recipe(path=(0, 1, 2))), Flush(), Submit(recipe=Recipe(path=(1, 1)))]

    assert shrunk(ops, many_tokens).log.ops == [Submit(recipe=Recipe(path=(0, 0, 0, 0, 0)))]


def test_handle_is_renumbered_when_earlier_requests_are_removed():
    """The ordinal of the aborted request changes with the number of requests before it."""

    def bug(log: OpLog) -> Any:
        alive = []
        for index, op in enumerate(log.ops):
            if isinstance(op, Submit):
                alive.append(op)
            elif isinstance(op, Abort) and alive and alive.pop(op.request % len(alive)).max_new_tokens == 9:
                return FailedAt(index)
        return None

    ops = [*[Submit()] * 3, Submit(max_new_tokens=9), *[Submit()] * 3, Abort(request=3)]

    assert shrunk(ops, bug).log.ops == [Submit(max_new_tokens=9), Abort()]


@pytest.mark.parametrize(
    ("match", "op", "smallest"),
    [
        (lambda op: op.max_new_tokens >= 37, Submit(max_new_tokens=90), Submit(max_new_tokens=37)),
        (lambda op: op.priority <= -3, Submit(priority=-50), Submit(priority=-3)),
        (
            lambda op: len(op.recipe.path) >= 3,
            Submit(recipe=Recipe(path=(2, 1, 2, 0, 1), stretch=16, cut=3, continues=2)),
            Submit(recipe=Recipe(path=(0, 0, 0))),
        ),
        (lambda op: 2 in op.recipe.path, Submit(recipe=Recipe(path=(1, 0, 3, 2, 1))), Submit(recipe=Recipe(path=(2,)))),
        (
            lambda op: op.recipe.continues is not None,
            Submit(recipe=Recipe(continues=6)),
            Submit(recipe=Recipe(continues=0)),
        ),
        (
            lambda op: op.tokens is not None and len(op.tokens) > 2,
            Submit(tokens=(7, 8, 9, 10, 11), stop=(3, 4)),
            Submit(tokens=(0, 0, 0)),
        ),
    ],
)
def test_argument_gets_as_close_to_its_default_as_the_failure_allows(match, op, smallest):
    assert shrunk([op], in_order(match)).log.ops == [smallest]


def test_common_prefix_of_two_prompts_is_simplified_in_both():
    def bug(log: OpLog) -> Any:
        paths = [op.recipe.path for op in log.ops if isinstance(op, Submit)]
        shared = len(paths) == 2 and paths[0][:1] == paths[1][:1] and paths[0] != paths[1]
        return FailedAt(len(log.ops) - 1) if shared else None

    ops: list[Op] = [Submit(recipe=Recipe(path=(2, 1, 3))), Submit(recipe=Recipe(path=(2, 2, 2)))]

    [first, second] = shrunk(ops, bug).log.ops

    assert {first, second} == {Submit(), Submit(recipe=Recipe(path=(0, 0)))}


def test_shrunk_log_keeps_the_header_and_drops_the_digests():
    fresh = OpLog(HEADER, [Flush(), Step(count=3)], ["9f", "02"])

    found = shrink(fresh, in_order(is_a(Step)), PLENTY)

    assert found.log == OpLog(HEADER, [Step()])
    assert fresh == OpLog(HEADER, [Flush(), Step(count=3)], ["9f", "02"])


def test_log_that_does_not_fail_is_refused():
    with pytest.raises(DoesNotFail, match="nothing to shrink: the op-log does not fail, or not in this way"):
        shrunk([Flush()], submit_step_abort)


@pytest.mark.parametrize("executions", [1, 5, 20, 60])
def test_smallest_log_so_far_is_kept_when_the_budget_ends(executions):
    ops = traffic(1200, 200)

    found = shrink(OpLog(HEADER, ops), six_steps, ShrinkBudget(executions=executions))

    assert (found.executions, found.complete) == (executions, False)
    assert six_steps(found.log) is not None
    assert measure(found.log) < measure(OpLog(HEADER, ops))


def test_shrinking_is_deterministic_and_runs_no_candidate_twice():
    first, second = Recorded(six_steps), Recorded(six_steps)

    shrunk(traffic(1200, 200), first)
    shrunk(traffic(1200, 200), second)

    assert first.candidates == second.candidates
    assert len({log.to_bytes() for log in first.candidates}) == len(first.candidates)


@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(ops=st.lists(any_ops(), min_size=1, max_size=30), indices=st.sets(st.integers(0, 29), min_size=1, max_size=5))
def test_shrunk_log_has_exactly_the_needed_ops(ops, indices):
    """This holds for any sequence of needed kinds, and for any other ops around them."""
    kinds = [type(ops[index]) for index in sorted({index % len(ops) for index in indices})]
    bug = in_order(*map(is_a, kinds))

    found = shrunk(ops, bug)

    assert [type(op) for op in found.log.ops] == kinds
    assert found.log.ops == [kind() for kind in kinds]


@settings(derandomize=True, database=None, deadline=None, max_examples=20)
@given(ops=st.lists(any_ops(), min_size=1, max_size=20), modulus=st.integers(2, 5))
def test_each_failing_candidate_is_smaller_than_the_one_before(ops, modulus):
    """The failure may depend on the ops in any way."""

    def bug(log: OpLog) -> Any:
        failed = len(log.to_bytes()) % modulus or log.ops == ops
        return FailedAt(len(log.ops) - 1) if failed else None

    header = Header(engine=OWN, machine="engine", configs=[{}] * 3)
    recorded = Recorded(bug)

    found = shrink(OpLog(header, ops), recorded, ShrinkBudget(executions=400))

    failing = [measure(log) for log in recorded.candidates if bug(log)]
    assert failing == sorted(failing, reverse=True)
    assert measure(found.log) == failing[-1]
