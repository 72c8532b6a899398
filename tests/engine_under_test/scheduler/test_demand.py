"""The demand of a request in each pool, at the numbers of known bugs, and the reservations of a step."""

import pytest

from swarden.engine_under_test.components import FullAttention
from swarden.engine_under_test.scheduler.demand import Budget, Demand
from tests.engine_under_test.builders import CacheBench

FULL = FullAttention("full", 64, 4)


def budget_over(bench: CacheBench) -> Budget:
    return Budget(bench.memory.ledgers.ledgers, bench.cache, tokens=16, ratio=1.0)


def test_available_pages_are_free_or_evictable():
    bench = CacheBench()
    bench.insert(list(range(20)))
    bench.compute(bench.start([1, 2, 3]), 3)

    budget = budget_over(bench)

    assert (budget.available("full"), budget.available("swa")) == (15, 11)


def test_estimate_beyond_a_reservation_counts_against_later_requests():
    budget = budget_over(CacheBench())

    budget.reserve(Demand({"full": 3, "swa": 2}, {"full": 9, "swa": 4}))

    assert (budget.available("full"), budget.estimated) == (13, {"full": 6, "swa": 2})


def test_overdrawn_book_fits_no_need():
    budget = budget_over(CacheBench())
    budget.reserve(Demand({"full": 3, "swa": 13}, {"full": 3, "swa": 13}))

    assert (budget.available("swa"), budget.fits({"full": 0, "swa": 0}, besides={"full": 0, "swa": 0})) == (-1, False)


def test_book_returns_the_missing_pages_by_pool():
    budget = budget_over(CacheBench())
    budget.estimated["swa"] = 2

    assert budget.lacks({"full": 16, "swa": 12}, besides={"full": 0, "swa": 1}) == {"swa": 3}


@pytest.mark.parametrize(
    ("need", "locked", "growth", "fits"),
    [
        pytest.param(12, 0, 0, True, id="just fits"),
        pytest.param(13, 0, 0, False, id="a page too many"),
        pytest.param(10, 2, 0, True, id="fits beside its locks"),
        pytest.param(10, 3, 0, False, id="locks are too many"),
        pytest.param(10, 0, 2, True, id="fits beside the estimated growth"),
        pytest.param(10, 1, 2, False, id="growth is too much"),
    ],
)
def test_need_fits_beside_its_locks_and_estimated_growth(need, locked, growth, fits):
    budget = budget_over(CacheBench())
    budget.estimated["swa"] = growth

    assert budget.fits({"full": 0, "swa": need}, besides={"full": 0, "swa": locked}) is fits
