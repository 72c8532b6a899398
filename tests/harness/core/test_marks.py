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
            try:
                total += 10 // (part - 2)
            except ZeroDivisionError:
                total += 1
        return total


def patch(before, after):
    return Patch("some", (Hunk(PLACE, before, after),))


BIG = patch("total += load", "total += load + 1")
SMALL = patch("total -= load\n", "total -= load\n        self.last = load\n")
CONDITION = patch("load > 5", "load > 6")
HANDLER = patch("total += 1\n", "total += 2\n")
OTHER_ERROR = patch("except ZeroDivisionError", "except ArithmeticError")
BOTH = Patch("some", (*OTHER_ERROR.hunks, *HANDLER.hunks))
SIGNATURE = patch("def weigh(self, load):", "def weigh(self, load) -> int:")
LAST = patch("    return total\n", "    return -total\n")


@pytest.mark.parametrize(
    ("change", "load", "is_reached"),
    [
        pytest.param(BIG, 6, True, id="branch-taken"),
        pytest.param(BIG, 5, False, id="branch-not-taken"),
        pytest.param(SMALL, 5, True, id="statement-added-in-the-branch-taken"),
        pytest.param(SMALL, 6, False, id="statement-added-in-another-branch"),
        pytest.param(CONDITION, 1, True, id="condition"),
        pytest.param(HANDLER, 3, True, id="handler-that-ran"),
        pytest.param(HANDLER, 2, False, id="handler-that-did-not-run"),
        pytest.param(OTHER_ERROR, 1, True, id="kind-of-error-of-a-handler-in-a-loop-that-ran"),
        pytest.param(OTHER_ERROR, 0, False, id="kind-of-error-of-a-handler-in-a-loop-that-did-not-run"),
        pytest.param(BOTH, 1, True, id="kind-of-error-of-a-handler-and-its-statement"),
        pytest.param(SIGNATURE, 0, True, id="first-line"),
        pytest.param(LAST, 0, True, id="last-statement"),
    ],
)
def test_patch_is_reached_if_a_statement_that_it_changes_runs(change, load, is_reached):
    reached: set[str] = set()
    expected = Scale().weigh(load)

    with marked([change], reached):
        result = Scale().weigh(load)

    assert (result, bool(reached)) == (expected, is_reached)


def test_marks_are_gone_behind_the_body():
    reached: set[str] = set()
    code = Scale.weigh.__code__

    with marked([LAST], reached):
        pass
    Scale().weigh(1)

    assert (Scale.weigh.__code__, reached) == (code, set())


def test_generator_that_outlives_the_marks_goes_on():
    change = Patch("some", (Hunk(f"{__name__}:count", "yield 2", "yield 3"),))
    with marked([change], set()):
        left = count()
        next(left)

    assert list(left) == [2]


def count():
    yield 1
    yield 2


def test_patch_that_would_not_be_valid_python_is_not_reached():
    reached: set[str] = set()

    with marked([patch("total -= load\n", "total -= load\n  self.last = load\n")], reached):
        Scale().weigh(1)

    assert reached == set()


def test_patch_on_code_that_another_patch_has_changed_is_marked_in_that_code():
    reached: set[str] = set()
    second = Patch("second", (Hunk(PLACE, "load + 1", "load + 2"),))

    with BIG.planted(), marked([second], reached):
        result = Scale().weigh(6)

    assert (result - Scale().weigh(6), reached) == (1, {"second"})


def test_patch_that_does_not_fit_is_not_reached():
    reached: set[str] = set()

    with marked([patch("no such text", "")], reached):
        Scale().weigh(1)

    assert reached == set()
