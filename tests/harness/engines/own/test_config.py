"""The configurations that are drawn: each is valid, and suits its load."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.engines.own.config import (
    ENLARGED,
    NEEDS_HOST,
    SETTINGS_FOR,
    configuration,
    on_host,
    random_pair,
    suited,
)
from swarden.harness.search.traffic.loads import LOADS, LOADS_OF_PAIRS
from swarden.harness.search.traffic.traffic import HypothesisDraw

steady = settings(derandomize=True, database=None, deadline=None)
NAMES = sorted({load.name for load in LOADS})


@pytest.mark.parametrize("load", NAMES)
def test_configuration_suits_its_load(load):
    @steady
    @given(data=st.data())
    def draw(data):
        config = configuration(HypothesisDraw(data), host_ratios=(0, 2))
        mapping = suited(HypothesisDraw(data), config, load).to_mapping()

        found, times = EngineConfig.from_mapping(mapping), 2 if load in ENLARGED else 1
        assert found.pools[0].num_pages == times * config.pools[0].num_pages
        assert any(settings.items() <= mapping.items() for settings in SETTINGS_FOR.get(load, [{}]))
        assert bool(found.host_pools) or load not in NEEDS_HOST

    draw()


@steady
@given(data=st.data(), load=st.sampled_from(LOADS_OF_PAIRS))
def test_both_sides_of_a_pair_are_valid(data, load):
    for config in random_pair(HypothesisDraw(data), load.name):
        assert EngineConfig.from_mapping(config.to_mapping()) == config


@steady
@given(data=st.data(), ratio=st.sampled_from((0.5, 2)))
def test_each_device_pool_has_a_host_pool_of_at_least_the_requested_size(data, ratio):
    config = replace(configuration(HypothesisDraw(data), host_ratios=(0,)), prefix_sharing=True)
    hosted = on_host(config, ratio)

    assert [pool.name for pool in hosted.host_pools] == [f"host {pool.name}" for pool in config.pools]
    for here, there in zip(config.pools, hosted.host_pools, strict=True):
        assert there.num_pages >= here.num_pages * ratio
