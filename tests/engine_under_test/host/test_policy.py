"""The policies: when the host gets a copy, and which load is worth its while."""

from dataclasses import replace

import pytest

from engine_under_test.host.policy import Policy
from tests.engine_under_test.host.bench import HOSTED


@pytest.mark.parametrize(
    ("name", "policy", "writes_back"),
    [
        pytest.param("write_through", Policy(1, 7), False, id="at once"),
        pytest.param("write_through_selective", Policy(2, 7), False, id="when it was found"),
        pytest.param("write_back", Policy(None, 7), True, id="when it is evicted"),
    ],
)
def test_a_policy_says_after_how_many_hits_a_copy_is_made(name, policy, writes_back):
    config = replace(HOSTED, host_policy=name, load_back_threshold=7)

    assert (Policy.for_config(config), Policy.for_config(config).writes_back) == (policy, writes_back)
