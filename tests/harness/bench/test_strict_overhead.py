"""The figures belong to the stated load; their values are not tested."""

import pytest

from swarden.harness.bench.load import PAGES, RUNNING, ConstantLoad, config_of
from swarden.harness.bench.pool_growth import LARGE_PAGES, SMALL_PAGES
from swarden.harness.bench.pool_growth import measure as measure_growth
from swarden.harness.bench.strict_overhead import BLOCK_STEPS, CHECKERS, LEAST_BLOCKS, measure

SMALL = ConstantLoad(running=4, shared_len=64, own_len=32, max_new_tokens=40)


@pytest.mark.parametrize("level", CHECKERS)
def test_share_is_the_part_of_the_check_in_a_step(level):
    overhead = measure(level, cpu_seconds=0.01, config=config_of(256, SMALL.running), load=SMALL)

    assert overhead.level == level
    assert overhead.steps >= BLOCK_STEPS * LEAST_BLOCKS
    assert overhead.share == pytest.approx(overhead.check_us / overhead.step_us)
    assert overhead.ms_per_thousand_pages == pytest.approx(overhead.check_us / 1000 / 0.512)


def test_load_has_the_requested_number_of_requests():
    assert (PAGES, RUNNING) == (65_536, 64)
    assert (SMALL_PAGES, LARGE_PAGES) == (64, 65_536)


def test_growth_is_the_ratio_of_large_to_small_pools():
    growth = measure_growth("audit", pairs=1, steps=8)

    assert growth.ratio == growth.large_us / growth.small_us
