"""The figures belong to the stated load; their values are not tested."""

import pytest

from swarden.harness.bench.loaded_steps import (
    CHECKERS,
    GROWTH_LOAD,
    SMALL_PAGES,
    USUAL_LOAD,
    ConstantLoad,
    LoadedEngine,
    measure_host,
    strict_overhead,
)

SMALL = ConstantLoad(pages=256, running=4, shared_len=64, own_len=32, max_new_tokens=40)


@pytest.mark.parametrize("level", CHECKERS)
def test_share_is_the_part_of_the_check_in_a_step(level):
    figures = strict_overhead(level, SMALL, cpu_seconds=0.01).figures

    share, check_us, step_us = (
        figures[name][level] for name in ("strict_overhead", "strict_us_per_step", "strict_step_us")
    )
    assert share == pytest.approx(check_us / step_us, abs=0.001)
    assert ("census_ms_per_thousand_pages" in figures) == (level == "census")


@pytest.mark.parametrize("load", [USUAL_LOAD, ConstantLoad(SMALL_PAGES, 4, 64, 48, 48)], ids=["usual", "small pools"])
def test_engine_has_the_requests_of_its_load(load):
    engine = LoadedEngine(load).engine

    assert len(engine.scheduler.running) == load.running
    assert GROWTH_LOAD.running == 4


def test_host_tier_with_copies_is_refused():
    with pytest.raises(AssertionError, match="idle"):
        list(measure_host(ConstantLoad(pages=64, running=2, shared_len=32, own_len=32, max_new_tokens=40), pairs=1))
