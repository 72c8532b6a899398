"""Configurations of vLLM: random ones can be written and read again, and impossible ones are refused in one line."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Pool, Shape
from swarden.harness.engines.vllm.draws import pair_configs, random_config
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.search.traffic.loads import LOADS
from tests.harness.engines.some_draws import RandomDraw


@pytest.mark.parametrize("has_all", [True, False])
def test_random_configurations_survive_an_op_log(has_all):
    target = VllmTarget()
    for seed in range(400):
        draw = RandomDraw(seed)
        config = random_config(draw, LOADS[seed % len(LOADS)].name, has=lambda _: has_all)
        for drawn in (config, *pair_configs(draw, has=lambda _: has_all)):
            assert target.decode(target.encode(drawn)) == drawn


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"block_size": 0}, "block_size is 0, want int >= 1"),
        ({"policy": "lifo"}, 'policy is "lifo", want "fcfs" or "priority"'),
        ({"num_blocks": 40}, "num_blocks is 40, want at least 52 for one request"),
        ({"chunk_len": 3}, "chunk_len is 3, want at least max_running_requests"),
        ({"draft_len": 8}, "chunk_len is 8, want more than draft_len 8"),
        ({"prefix_match_unit": 2}, "prefix_match_unit is 2, want null, .*"),
        ({"prefix_match_unit": 3, "state_groups": 1, "windows": ()}, "prefix_match_unit is 3, want .*"),
        ({"late_loads": True}, "late_loads is true without external_len, want false"),
        ({"windows": (5,) * 9}, "windows is .*, want array of length <= 8"),
        ({"window_block_sizes": (4,) * 100_000}, "window_block_sizes is .*, want array of length <= 8"),
    ],
)
def test_impossible_configuration_is_refused(settings, text):
    with pytest.raises(InvalidConfig, match=f"^{text}$"):
        VllmTarget().decode(settings)


def test_shape_of_two_pools_becomes_one_pool_for_all_groups():
    shape = Shape(4, (Pool("full", 64), Pool("swa", 30, 5)), 8, 4, 64)

    config = VllmTarget().config_of(shape)

    assert (config.num_blocks, config.windows, config.block_size) == (94, (5,), 4)
