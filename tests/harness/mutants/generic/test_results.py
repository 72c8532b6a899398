"""Results survive the process that made them, and count for the same conditions only."""

import pytest

from harness.mutants.generic.mutation import Mutation
from harness.mutants.generic.results import Conditions, Results, killed_share, summary, survivors
from harness.mutants.generic.trial import Trial

HERE = Conditions(build="b", seed=1, runs=2, seconds=3.0)


def mutation(line):
    return Mutation("shop/shelf.py", "room", "core/AddNot", line, f"-    a{line}\n+    not a{line}", "")


MUTATIONS = [mutation(line) for line in range(4)]


@pytest.fixture
def path(tmp_path):
    """Two killed, one survivor, one not tried."""
    results = Results(tmp_path / "here" / "results.jsonl", HERE)
    for one, killed_by in zip(MUTATIONS, ("cursors_are_ordered", "stuck", None), strict=False):
        results.add(Trial(one, killed_by, {"runs": 1}))
    return results.path


def test_a_run_that_was_ended_goes_on_where_it_stood(path):
    """What was tried is read again, in the order of the sample."""
    results = Results(path, HERE)

    assert results.left(MUTATIONS) == MUTATIONS[3:]
    assert [one.killed_by for one in results.of(MUTATIONS)] == ["cursors_are_ordered", "stuck", None]


@pytest.mark.parametrize("other", [("c", 1, 2, 3.0), ("b", 2, 2, 3.0), ("b", 1, 1, 3.0), ("b", 1, 2, 1.0)], ids=str)
def test_results_of_other_conditions_are_passed_over(path, other):
    """Another build, seed, corpus or time."""
    assert Results(path, Conditions(*other)).left(MUTATIONS) == MUTATIONS


def test_a_torn_line_is_a_trial_that_never_was(path):
    """The process died while it wrote; what comes next stands on a line of its own."""
    path.write_bytes(path.read_bytes()[:-9])

    results = Results(path, HERE)
    results.add(Trial(MUTATIONS[2], None, {}))

    assert Results(path, HERE).left(MUTATIONS) == MUTATIONS[3:]


def test_the_sum_names_the_survivors(path):
    """Of three that matter two were killed."""
    tried = Results(path, HERE).of(MUTATIONS)

    assert killed_share(tried) == pytest.approx(2 / 3)
    assert [one.line for one in survivors(tried)] == [2]
    assert summary(tried) == {
        "mutations": 3,
        "killed": 2,
        "survived": 1,
        "equivalent": 0,
        "killed_share": 0.667,
        "folders": {"shop": {"mutations": 3, "killed": 2, "survived": 1, "equivalent": 0, "killed_share": 0.667}},
        "survivors": [
            {"id": MUTATIONS[2].id, "place": "shop/shelf.py:2 room", "diff": ["-    a2", "+    not a2"]},
        ],
    }
