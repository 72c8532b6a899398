"""Simplified ops are smaller and valid in an op-log; the default op comes first."""

import msgspec
from hypothesis import given, settings

from swarden.harness.core.ops import Abort, AnyOp, Flush, Step, Submit
from swarden.harness.search.shrink.simpler import joined, merged, simpler, size, without_one_handle
from tests.harness.some_ops import any_ops


@settings(derandomize=True, database=None, deadline=None)
@given(op=any_ops())
def test_each_simpler_op_is_smaller_and_valid_and_the_default_comes_first(op):
    candidates, bare = list(simpler(op)), type(op)()

    assert [*candidates, bare][0] == bare
    assert list(simpler(bare)) == []
    assert all(size(candidate) < size(op) for candidate in candidates)
    assert [msgspec.convert(msgspec.to_builtins(candidate), AnyOp) for candidate in candidates] == candidates


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


def test_prompts_with_literal_tokens_are_not_joined():
    """The recipes of such prompts are not used."""
    assert list(joined([Submit(tokens=(1, 2)), Submit()])) == []
