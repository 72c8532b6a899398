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


def test_two_patches_that_replace_the_same_text_do_not_fit_together():
    first, second = (
        Patch(name, (Hunk(DECREASE, "return left - 1", f"return {name!r}"),)) for name in ("first", "second")
    )

    with (
        first.planted(),
        pytest.raises(StalePatch, match=r"second: .* has 'return left - 1' 0 times"),
        second.planted(),
    ):
        pass


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
