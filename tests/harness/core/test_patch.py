"""Several patches in one process, and functions that are more than a def."""

from functools import wraps

import pytest

from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.core.patch import Hunk, Patch, StalePatch

DECREASE = f"{__name__}:Stock.decrease"


def logged(function):
    @wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


class Shelf:
    def decrease(self, count):
        return 10 - count


class Stock(Shelf):
    def decrease(self, count):
        left = super().decrease(count) + 1
        return left - 1

    @logged
    def doubled(self, count):
        return 2 * count

    def broken(self):
        raise ValueError(1)


class Plain:
    def pair(self, scale=1):
        first = 1
        second = 2
        return first * scale, second


class Derived(Plain):
    pass


def test_two_patches_of_one_function_are_planted_one_after_the_other():
    """The second one fits what the first one has left, and each is taken out again."""
    first = Patch("first", (Hunk(DECREASE, "return left - 1", "return left + 99"),))
    second = Patch("second", (Hunk(DECREASE, "left + 99", "left + 199"),))

    with first.planted():
        with second.planted():
            both = Stock().decrease(1)
        one = Stock().decrease(1)

    assert (both, one, Stock().decrease(1)) == (209, 109, 9)


def test_patch_that_is_planted_below_another_one_is_not_planted_again():
    first = Patch("first", (Hunk(DECREASE, "return left - 1", "return left + 99"),))
    second = Patch("second", (Hunk(DECREASE, "+ 99", "+ 199"),))

    with first.planted(), second.planted(), first.planted():
        assert (first.is_planted, Stock().decrease(1)) == (True, 209)

    assert not first.is_planted


def test_decorated_method_can_be_changed():
    with Patch("thrice", (Hunk(f"{__name__}:Stock.doubled", "2 * count", "3 * count"),)).planted():
        assert Stock().doubled(5) == 15


def test_error_in_a_changed_method_has_the_fingerprint_that_it_has_without_the_change():
    """A known bug is known by its fingerprint, also behind the fix of another one."""
    fingerprints = []
    for patch in (Patch("none", ()), Patch("other", (Hunk(f"{__name__}:Stock.broken", "(1)", "(2)"),))):
        with patch.planted(), pytest.raises(ValueError, match=r"[12]") as raised:
            Stock().broken()
        fingerprints.append(fingerprint_of_error(raised.value, __name__))

    without, behind = fingerprints
    assert without == behind
    assert without.startswith("ValueError/Stock.broken/")


def test_change_planted_within_a_removed_one_is_made_to_the_code_without_it():
    mutant = Patch("mutant", (Hunk(DECREASE, "count) + 1", "count) + 100"),))
    fix = Patch("fix", (Hunk(DECREASE, "return left - 1", "return left - 2"),))

    with mutant.planted():
        with mutant.removed(), fix.planted():
            within = (mutant.is_planted, Stock().decrease(1))
        after = Stock().decrease(1)

    assert (within, after, Stock().decrease(1)) == ((False, 8), 108, 9)


def test_hunks_of_one_function_under_two_names_are_all_planted():
    own = Hunk(f"{__name__}:Plain.pair", "first = 1", "first = 3")
    inherited = Hunk(f"{__name__}:Derived.pair", "second = 2", "second = 4")

    with Patch("both", (own, inherited)).planted():
        assert Plain().pair() == (3, 4)

    assert Plain().pair() == (1, 2)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [("first = 1", "first = super() and 3", "from none to __class__"), ("scale=1", "scale=2", "a default")],
    ids=["free-variables", "default"],
)
def test_change_that_a_defined_function_cannot_have_is_refused_before_any_change(before, after, names):
    fits = Hunk(DECREASE, "return left - 1", "return left - 2")
    patch = Patch("odd", (fits, Hunk(f"{__name__}:Plain.pair", before, after)))

    with pytest.raises(StalePatch, match=names), patch.planted():
        pass

    assert (patch.is_planted, Stock().decrease(1), Plain().pair()) == (False, 9, (1, 2))
