"""Simplified ops are smaller and valid in an op-log; the default op comes first."""

import msgspec
import pytest
from hypothesis import given, settings

from swarden.harness.core.ops import Abort, Accept, AnyOp, Drain, Flush, Inject, Recipe, Step, Submit
from swarden.harness.search.simpler import drains_as_steps, joined, merged, simpler, size, without_one_handle
from tests.harness.some_ops import any_ops


@settings(derandomize=True, database=None, deadline=None)
@given(op=any_ops())
def test_each_simpler_op_is_smaller_and_valid_in_an_op_log(op):
    candidates = list(simpler(op))

    assert all(size(candidate) < size(op) for candidate in candidates)
    assert [msgspec.convert(msgspec.to_builtins(candidate), AnyOp) for candidate in candidates] == candidates


@settings(derandomize=True, database=None, deadline=None)
@given(op=any_ops())
def test_default_op_comes_first_and_cannot_be_simplified(op):
    bare = type(op)()

    assert next(simpler(op), bare) == bare
    assert list(simpler(bare)) == []
    assert size(bare) == 0


@pytest.mark.parametrize(
    ("op", "candidates"),
    [
        pytest.param(Step(count=8), [Step(), Step(), Step(count=5), Step(count=7)], id="a number"),
        pytest.param(
            Inject(fault="host.slow", skip=1),
            [Inject(), Inject(skip=1), Inject(fault="host.slow")],
            id="a word and a number",
        ),
        pytest.param(
            Accept(lengths=(2, 1)),
            [Accept(), Accept(), *[Accept(lengths=one) for one in ((), (2,), (1,), (2,), (0, 1), (1, 1), (2, 0))]],
            id="elements",
        ),
        pytest.param(
            Submit(recipe=Recipe(cut=2, continues=1)),
            [
                Submit(),
                Submit(),
                Submit(recipe=Recipe(continues=1)),
                Submit(recipe=Recipe(cut=1, continues=1)),
                Submit(recipe=Recipe(cut=2)),
                Submit(recipe=Recipe(cut=2, continues=0)),
            ],
            id="a recipe",
        ),
    ],
)
def test_simpler_ops_run_from_the_default_to_the_op(op, candidates):
    assert list(simpler(op)) == candidates


def test_long_tuple_is_only_shortened():
    op = Submit(tokens=tuple(range(100, 164)))

    assert [len(candidate.tokens or ()) for candidate in simpler(op)] == [0, 0, 0, 32, 48, 56, 60, 62, 63]


def test_steps_of_one_engine_are_merged_up_to_the_maximum_count():
    ops = [Step(count=6), Flush(), Step(engine=1), Step(count=5)]

    assert list(merged(ops)) == []
    assert list(merged([ops[0], ops[1], ops[3]])) == [[Flush(), Step(count=8)], [Step(count=8), Flush()]]


def test_ordinals_after_a_removed_request_are_one_lower():
    ops = [Submit(), Submit(namespace=1), Abort(request=1, engine=2), Abort()]

    assert list(without_one_handle(ops)) == [
        [Submit(), Abort(engine=2), Abort()],
        [Submit(namespace=1), Abort(engine=2), Abort()],
    ]


def test_two_prompts_are_joined_in_the_place_of_either():
    """The joined prompt has the choices of both, and the longer output."""
    first = Submit(recipe=Recipe(path=(0, 1), stretch=3, cut=2, continues=4), max_new_tokens=9)
    second = Submit(recipe=Recipe(path=(2,), stretch=5, continues=0), namespace=1)
    both = Recipe(path=(0, 1, 2), stretch=5, continues=4)

    assert list(joined([first, Flush(), second])) == [
        [Flush(), Submit(recipe=both, max_new_tokens=9, namespace=1)],
        [Submit(recipe=both, max_new_tokens=9), Flush()],
    ]


def test_prompts_with_literal_tokens_are_not_joined():
    """The recipes of such prompts are not used."""
    assert list(joined([Submit(tokens=(1, 2)), Submit()])) == []


def test_drain_becomes_a_step_op_of_the_maximum_count():
    assert drains_as_steps([Flush(), Drain(engine=1)]) == [Flush(), Step(engine=1, count=8)]
