"""The storage of the pools."""

import pytest
import torch

from swarden.engine_under_test.config import PoolSpec
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.pools.kv_store import KVStore
from swarden.engine_under_test.ports import SlotLayout


def test_pool_that_does_not_fit_into_the_memory_is_a_configuration_error():
    layout = SlotLayout(torch.int64, inner=(1 << 60,))

    with pytest.raises(ConfigError, match=r"^full pool: 3 pages do not fit into the memory of cpu: "):
        KVStore([PoolSpec("full", 3, None)], page_size=4, layout=lambda _: layout)
