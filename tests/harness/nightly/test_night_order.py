"""The order of nights."""

import pytest

from swarden.harness.nightly.archive import latest, positions

FUTURE = "2099-01-01"


@pytest.mark.parametrize(
    ("known", "order"),
    [
        ({"b": [], "a": [], "c": []}, ["a", "b", "c"]),
        ({"1": [], FUTURE: ["1"], "2": [FUTURE]}, ["1", FUTURE, "2"]),
        ({"1": [], "0": ["1"], "2": ["0"]}, ["1", "0", "2"]),
        ({"1": [], FUTURE: ["1"], "3": [FUTURE], "2": [], "4": ["2"]}, ["1", "2", FUTURE, "3", "4"]),
        ({"1": [], "2": ["gone"], "3": ["1", "2"]}, ["1", "2", "3"]),
        ({"1": ["1", "2"], "2": ["1"], "3": ["2", "2"]}, ["1", "2", "3"]),
    ],
)
def test_night_that_another_knows_is_earlier(known, order):
    found = positions(known)

    assert sorted(known, key=found.__getitem__) == order
    assert sorted(found.values()) == [*range(len(known))]


def test_latest_nights_are_those_of_which_no_other_knows():
    assert latest({"1": [], "2": ["1"], "3": ["1"], FUTURE: [FUTURE]}) == ["2", FUTURE, "3"]
