"""Marks note which patches a run reaches, and change nothing else."""

import pytest

from swarden.harness.core.marks import marked
from swarden.harness.core.patch import Hunk, Patch

PLACE = f"{__name__}:Scale.weigh"


class Scale:
    def weigh(self, load):
        total = 0
        if load > 5:
            total += load
        else:
            total -= load
        for part in range(load):
            if part > 50:
                break
            try:
                total += 10 // (part - 2)
            except ZeroDivisionError:
                total += 1
        return total


def patch(before, after):
    return Patch("some", (Hunk(PLACE, before, after),))


BIG = patch("total += load", "total += load + 1")
ADDED = patch("total -= load\n", "total -= load\n        self.last = load\n")
OTHER_ERROR = patch("except ZeroDivisionError", "except ArithmeticError")
BREAK = patch("        try:", "        if part > 40:\n            break\n        try:")
SIGNATURE = patch("def weigh(self, load):", "def weigh(self, load) -> int:")
NO_PYTHON = patch("total -= load\n", "total -= load\n  self.last = load\n")


@pytest.mark.parametrize(
    ("change", "load", "is_reached"),
    [
        pytest.param(BIG, 6, True, id="branch-taken"),
        pytest.param(BIG, 5, False, id="branch-not-taken"),
        pytest.param(ADDED, 5, True, id="statement-added-in-the-branch-taken"),
        pytest.param(ADDED, 6, False, id="statement-added-in-another-branch"),
        pytest.param(OTHER_ERROR, 1, True, id="kind-of-error-of-a-handler-in-a-loop-that-ran"),
        pytest.param(OTHER_ERROR, 0, False, id="kind-of-error-of-a-handler-in-a-loop-that-did-not-run"),
        pytest.param(BREAK, 1, True, id="break-behind-another-one"),
        pytest.param(SIGNATURE, 0, True, id="first-line"),
        pytest.param(NO_PYTHON, 1, False, id="no-valid-python"),
        pytest.param(patch("no such text", ""), 1, False, id="does-not-fit"),
    ],
)
def test_patch_is_reached_if_a_statement_that_it_changes_runs(change, load, is_reached):
    reached: set[str] = set()
    code, expected = Scale.weigh.__code__, Scale().weigh(load)

    with marked([change], reached):
        result = Scale().weigh(load)

    assert (result, bool(reached)) == (expected, is_reached)
    assert Scale.weigh.__code__ is code


def test_generator_that_outlives_the_marks_goes_on():
    change = Patch("some", (Hunk(f"{__name__}:count", "yield 2", "yield 3"),))
    with marked([change], set()):
        left = count()
        next(left)

    assert list(left) == [2]


def count():
    yield 1
    yield 2


def test_patch_on_code_that_another_patch_has_changed_is_marked_in_that_code():
    reached: set[str] = set()
    second = Patch("second", (Hunk(PLACE, "load + 1", "load + 2"),))

    with BIG.planted(), marked([second], reached):
        result = Scale().weigh(6)

    assert (result - Scale().weigh(6), reached) == (1, {"second"})
