"""Planting a mutant: each hunk fits once, and the code is restored afterwards."""

import pytest

from swarden.engine_under_test.components import kept_len, window_frontier
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.patch import StalePatch
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.invariants.windows import lookback

WINDOW = "swarden.engine_under_test.components:kept_len"


def test_planted_bug_affects_modules_that_imported_the_function():
    """The function object itself is changed, and restored afterwards."""
    healthy = kept_len(window=2, page_size=16), window_frontier(40, window=2, page_size=16)

    with BY_ID["B14"].planted():
        broken = kept_len(window=2, page_size=16), window_frontier(40, window=2, page_size=16)

    assert (healthy, broken) == ((16, 16), (1, 32))
    assert kept_len(window=2, page_size=16) == 16


@pytest.mark.parametrize(
    ("healthy", "times", "shown"),
    [
        pytest.param("return nothing_of_the_kind", 0, "'return nothing_of_the_kind'", id="gone"),
        pytest.param("page_size", 3, "'page_size'", id="ambiguous"),
        pytest.param("    if gone:\n        return 1\n    return 2\n", 0, "'if gone:' and 2 more lines", id="long"),
    ],
)
def test_hunk_whose_text_does_not_occur_once_is_stale(healthy, times, shown):
    """The message is one line: the mutant, the target, the beginning of the text and its number of occurrences."""
    stale = Mutant("B0", "nowhere", (Hunk(WINDOW, healthy, "pass"),), ())

    with pytest.raises(StalePatch) as raised, stale.planted():
        pass

    assert str(raised.value) == f"B0: {WINDOW} has {shown} {times} times; want it once"


@pytest.mark.parametrize(
    ("target", "broken", "why"),
    [
        ("no.such.module:function", "", "is not a function whose code can be changed: No module"),
        ("swarden.invariants.windows:gone", "", "is not a function whose code can be changed: gone"),
        ("swarden.invariants.windows", "", "is not a function whose code can be changed: "),
        ("swarden.invariants.windows:HANDOVER_KIND", "", "is not a function whose code can be changed: "),
        ("swarden.invariants.windows:lookback", "1 +", "with the change is not valid Python: invalid syntax"),
    ],
)
def test_target_that_cannot_be_changed_is_stale(target, broken, why):
    stale = Mutant("B0", "nowhere", (Hunk(target, "window - 1", broken),), ())

    with pytest.raises(StalePatch) as raised, stale.planted():
        pass

    assert str(raised.value).startswith(f"B0: {target} {why}")


def test_no_hunk_is_planted_if_one_is_stale():
    good = BY_ID["B14"].hunks[0]
    half_stale = Mutant("B0", "nowhere", (good, Hunk(WINDOW, "return nothing_of_the_kind", "pass")), ())

    with pytest.raises(StalePatch), half_stale.planted():
        pass

    assert kept_len(window=2, page_size=16) == 16


def test_checker_bug_is_planted_with_the_mutant_that_it_overlooks():
    blind = Mutant(
        "B0", "nowhere", (Hunk("swarden.invariants.windows:lookback", "window - 1", "0"),), (), overlooks=BY_ID["B14"]
    )

    with blind.planted():
        planted = kept_len(window=3, page_size=16), lookback(3)

    assert planted == (2, 0)
    assert (kept_len(window=3, page_size=16), lookback(3)) == (16, 2)
