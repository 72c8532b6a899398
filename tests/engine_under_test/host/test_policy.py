"""The policies: the number of hits before a copy, and the least length of a load."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.host.tier import Policy
from tests.engine_under_test.host.bench import HOSTED


@pytest.mark.parametrize(
    ("name", "policy", "writes_back"),
    [
        pytest.param("write_through", Policy(1, 7), False, id="at once"),
        pytest.param("write_through_selective", Policy(2, 7), False, id="at its first match"),
        pytest.param("write_back", Policy(None, 7), True, id="at its eviction"),
    ],
)
def test_policy_sets_the_number_of_hits_before_a_copy(name, policy, writes_back):
    config = replace(HOSTED, host_policy=name, load_back_threshold=7)

    assert (Policy.for_config(config), Policy.for_config(config).writes_back) == (policy, writes_back)
