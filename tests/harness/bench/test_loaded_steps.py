"""The figures belong to the stated load; their values are not tested."""

from dataclasses import replace

import pytest

from swarden.harness.bench import loaded_steps
from swarden.harness.bench.loaded_steps import ConstantLoad, LoadedEngine, pool_growth, strict_overhead

SMALL = ConstantLoad(pages=256, running=4, shared_len=64, own_len=32, max_new_tokens=40)


@pytest.mark.parametrize("level", loaded_steps.CHECKERS)
def test_share_is_the_part_of_the_check_in_a_step(level):
    figures = strict_overhead(level, SMALL, cpu_seconds=0.01).figures

    assert figures["share of a step"] == pytest.approx(figures["us"] / figures["us of a step"], abs=0.001)


@pytest.mark.parametrize(
    "load",
    [loaded_steps.USUAL_LOAD, replace(loaded_steps.GROWTH_LOAD, pages=loaded_steps.SMALL_PAGES)],
    ids=["usual", "growth"],
)
def test_engine_runs_all_requests_of_its_load(load):
    assert len(LoadedEngine(load).engine.scheduler.running) == load.running


def test_pools_are_timed_on_both_sides():
    growth = pool_growth("audit", pairs=1)

    assert min(growth.figures["large"], growth.figures["small"]) > 0
