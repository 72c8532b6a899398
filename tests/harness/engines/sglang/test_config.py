"""Configurations: random ones can be written and read again, and impossible ones are refused in one line."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Pool, Shape
from swarden.harness.engines.sglang.config import random_config
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.engines.sglang.worker_model import LAGUNA
from swarden.harness.search.traffic.loads import LOADS
from tests.harness.engines.some_draws import RandomDraw


@pytest.mark.parametrize("seed", range(50))
def test_random_configuration_survives_an_op_log(seed):
    target = SglangTarget()
    config = random_config(RandomDraw(seed), LOADS[seed % len(LOADS)].name, lambda _: seed % 2 == 0)

    assert target.decode(target.encode(config)) == config


@pytest.mark.parametrize("seed", range(50))
def test_random_configuration_for_a_model_has_no_capabilities(seed):
    config = random_config(RandomDraw(seed), LOADS[seed % len(LOADS)].name, lambda _: True)

    assert SglangTarget().suited(config, LAGUNA).capabilities == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"page_size": 0}, "page_size is 0, want int >= 1"),
        ({"page_size": "4"}, 'page_size is "4", want int'),
        ({"chunk_len": 6, "page_size": 4}, "chunk_len is 6, want a multiple of page_size 4"),
        ({"swa_pages": 3}, "swa_pages is 3, want at least 22 for this chunk and window"),
        ({"full_pages": 39}, "swa_pages is 40, want at most full_pages 39"),
        ({"page_size": 256, "full_pages": 1 << 22}, "the largest pool has 1073741824 tokens, want at most 16777216"),
        ({"host_ratio": 16, "full_pages": 1 << 22}, "the largest pool has 67108864 tokens, want at most 16777216"),
        ({"tree": "oak"}, 'tree is "oak", want "default" or "swa" or "unified" or "none"'),
        (
            {"preemption_threshold": 0, "waiting_order": "lpm"},
            'waiting_order is "lpm" with preemption_threshold 0, want "fcfs"',
        ),
        ({"host_ratio": 1.0, "tree": "swa"}, 'tree is "swa" with host_ratio 1.0, want "default" or "unified"'),
        ({"host_ratio": 1.0, "tree": "none"}, 'host_ratio is 1.0 with tree "none", want null'),
        ({"storage_policy": "timeout"}, 'storage_policy is "timeout" without host_ratio, want null'),
    ],
)
def test_impossible_configuration_is_refused(settings, text):
    with pytest.raises(InvalidConfig, match=f"^{text}$"):
        SglangTarget().decode(settings)


@pytest.mark.parametrize(
    ("pools", "sizes"),
    [((Pool("full", 64),), (64, None)), ((Pool("full", 64), Pool("swa", 30, 5)), (64, 4))],
    ids=["without a window", "with a window"],
)
def test_shape_becomes_a_configuration_with_the_same_pools(pools, sizes):
    config = SglangTarget().config_of(Shape(4, pools, 8, 4, 64))

    assert (config.full_pages, config.sliding_window) == sizes
    assert [pool.units for pool in config.shape.pools] == [pool.units for pool in pools]


def test_chunk_of_a_shape_without_one_has_whole_pages():
    assert SglangTarget().config_of(Shape(16, (Pool("full", 64),), None, 4, 64)).chunk_len == 16
