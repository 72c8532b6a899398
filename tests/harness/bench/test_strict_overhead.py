"""The figures are of the load that they claim to be of; what they come to is the benchmark's business."""

import pytest

from harness.bench.load import PAGES, RUNNING, Load, config_of
from harness.bench.pool_growth import LARGE_PAGES, SMALL_PAGES
from harness.bench.pool_growth import measure as measure_growth
from harness.bench.strict_overhead import BLOCK_STEPS, CHECKERS, LEAST_BLOCKS, measure

SMALL = Load(running=4, shared_len=64, own_len=32, max_new_tokens=40)


@pytest.mark.parametrize("level", CHECKERS)
def test_a_share_is_what_the_check_takes_of_a_step(level):
    overhead = measure(level, cpu_seconds=0.01, config=config_of(256, SMALL.running), load=SMALL)

    assert overhead.level == level
    assert overhead.steps >= BLOCK_STEPS * LEAST_BLOCKS
    assert overhead.share == pytest.approx(overhead.check_us / overhead.step_us)
    assert overhead.ms_per_thousand_pages == pytest.approx(overhead.check_us / 1000 / 0.512)


def test_the_load_is_the_one_that_was_asked_for():
    assert (PAGES, RUNNING) == (65_536, 64)
    assert (SMALL_PAGES, LARGE_PAGES) == (64, 65_536)


def test_growth_is_the_large_pools_over_the_small():
    growth = measure_growth("audit", pairs=1, steps=8)

    assert growth.ratio == growth.large_us / growth.small_us
