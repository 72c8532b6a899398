"""Results are read again by a later process, and are valid for equal conditions only."""

import pytest

from tests.quality.mutation.mutation import Mutation
from tests.quality.mutation.results import Conditions, Results, killed_share, summary, survivors
from tests.quality.mutation.trial import Trial

HERE = Conditions(build="b", seed=1, runs=2, seconds=3.0)


def mutation(line):
    return Mutation("shop/shelf.py", "room", "core/AddNot", line, f"-    a{line}\n+    not a{line}", "")


MUTATIONS = [mutation(line) for line in range(4)]


@pytest.fixture
def path(tmp_path):
    """A file with two killed mutations and one survivor; the fourth mutation has no trial."""
    results = Results(tmp_path / "here" / "results.jsonl", HERE)
    for one, killed_by in zip(MUTATIONS, ("cursors_are_ordered", "stuck", None), strict=False):
        results.add(Trial(one, killed_by, {"runs": 1}))
    return results.path


def test_interrupted_sample_continues_with_the_mutations_without_a_trial(path):
    """The results are read again, in the order of the sample."""
    results = Results(path, HERE)

    assert results.left(MUTATIONS) == MUTATIONS[3:]
    assert [trial.killed_by for trial in results.of(MUTATIONS)] == ["cursors_are_ordered", "stuck", None]


@pytest.mark.parametrize("other", [("c", 1, 2, 3.0), ("b", 2, 2, 3.0), ("b", 1, 1, 3.0), ("b", 1, 2, 1.0)], ids=str)
def test_results_with_other_conditions_are_skipped(path, other):
    """Another build, seed, number of runs or CPU time."""
    assert Results(path, Conditions(*other)).left(MUTATIONS) == MUTATIONS


def test_torn_last_line_is_dropped(path):
    """The process died while it wrote the line. The next result starts a new line."""
    path.write_bytes(path.read_bytes()[:-9])

    results = Results(path, HERE)
    results.add(Trial(MUTATIONS[2], None, {}))

    assert Results(path, HERE).left(MUTATIONS) == MUTATIONS[3:]


def test_summary_names_the_survivors(path):
    """Two of three mutations were killed."""
    tried = Results(path, HERE).of(MUTATIONS)

    assert killed_share(tried) == pytest.approx(2 / 3)
    assert [trial.line for trial in survivors(tried)] == [2]
    assert summary(tried) == {
        "mutations": 3,
        "killed": 2,
        "survived": 1,
        "equivalent": 0,
        "killed_share": 0.667,
        "folders": {"shop": {"mutations": 3, "killed": 2, "survived": 1, "equivalent": 0, "killed_share": 0.667}},
        "survivors": [{"id": MUTATIONS[2].id, "place": "shop/shelf.py:2 room", "diff": ["-    a2", "+    not a2"]}],
    }
