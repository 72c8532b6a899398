"""The memory of an engine: pools of the configured sizes with a padding page, and a sufficiently wide request table."""

import pytest

from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.units import request_owner
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, SWA_ONLY, all_pages, free_pages

R1 = request_owner(1)


@pytest.mark.parametrize("config", [HYBRID, FULL_ONLY, SWA_ONLY], ids=["hybrid", "full only", "swa only"])
def test_an_empty_memory_has_all_pages_and_rows_free(config):
    memory = KVMemory.for_config(config, None)

    assert (free_pages(memory), memory.table.rows.num_free) == (all_pages(config), config.max_running_requests)


def test_storage_has_one_padding_page_more_than_the_ledger():
    memory = KVMemory.for_config(HYBRID, None)

    assert {name: tuple(memory.store.kv(name).shape) for name in ("full", "swa")} == {"full": (17, 4), "swa": (13, 4)}


def test_a_row_holds_the_longest_context():
    assert KVMemory.for_config(HYBRID, None).table.width == 16


def test_completed_launch_frees_fenced_pages_and_rows():
    memory = KVMemory.for_config(HYBRID, None)
    memory.ledgers.free(memory.ledgers.take(16 - 4, owner=R1), owner=R1, cause="finished", after=2)
    memory.table.rows.free(memory.table.rows.take(4, owner=R1), owner=R1, cause="finished", after=2)

    memory.complete(2)

    assert (free_pages(memory), memory.table.rows.num_free) == ({"full": 16, "swa": 12}, 4)
