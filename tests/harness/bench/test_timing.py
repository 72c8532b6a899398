"""The timer: sides run in turns, and a ratio is that of a turn."""

from itertools import count

from swarden.harness.bench.timing import Case, paired


def test_every_other_turn_runs_the_last_side_first():
    """Each side returns the number of its run."""
    runs = count(1)

    assert paired(2, first=lambda: next(runs), second=lambda: next(runs))["ratios"] == [0.5, 1.333]


def test_ratio_is_the_median_over_turns():
    """The ratio of the medians would be 1.5; the turns have 2, 1 and 4."""
    first, second = iter([2.0, 3.0, 8.0]), iter([1.0, 3.0, 2.0])

    figures = paired(3, first=lambda: next(first), second=lambda: next(second))

    assert figures == {"ratio": 2.0, "first": 3.0, "second": 2.0, "ratios": [2.0, 1.0, 4.0]}


def test_case_names_its_figures():
    assert str(Case("a / b", {"ratio": 1.5, "us": 2})) == "a / b: ratio 1.5, us 2"
