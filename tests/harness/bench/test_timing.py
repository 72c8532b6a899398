"""The timer: sides run in turns, and a ratio is that of a pair."""

from itertools import count, islice

from swarden.harness.bench.timing import Measured, Paired, in_turns, merged


def test_every_other_turn_runs_the_last_side_first():
    """Each side returns the number of its run."""
    runs = count(1)

    turns = list(islice(in_turns(lambda: next(runs), lambda: next(runs)), 3))

    assert turns == [[1, 2], [4, 3], [5, 6]]


def test_ratio_is_the_median_over_pairs():
    """The ratio of the medians would be 1.5; the pairs have 2, 1 and 4."""
    paired = Paired([(2.0, 1.0), (3.0, 3.0), (8.0, 2.0)])

    assert paired.ratios == [2.0, 1.0, 4.0]
    assert (paired.ratio, paired.sides) == (2.0, [3.0, 2.0])


def test_figures_of_cases_are_merged():
    cases = [Measured("", {"ratio": {"a": 1}, "rows": [1], "all": 2}), Measured("", {"ratio": {"b": 3}, "rows": [4]})]

    assert merged(cases) == {"ratio": {"a": 1, "b": 3}, "rows": [1, 4], "all": 2}
