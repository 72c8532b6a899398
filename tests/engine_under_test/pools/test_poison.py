"""A freed page is overwritten as soon as nobody may read it, and no page before that."""

import pytest
import torch

from engine_under_test.config import EngineConfig
from engine_under_test.pools.memory import KVMemory, tags
from engine_under_test.ports import SlotLayout
from engine_under_test.units import Owner

CONFIG = EngineConfig(page_size=4, full_pages=4, max_context_len=64, poison_freed_pages=True)
ME = Owner("me")


def per_layer(_pool) -> SlotLayout:
    return SlotLayout(torch.float32, outer=(3, 2), inner=(1, 5))


def memory(layout=tags) -> KVMemory:
    memory = KVMemory.for_config(CONFIG, None, layout=layout)
    memory.store.kv("full").fill_(7)
    return memory


def test_a_freed_page_is_poisoned_in_every_layer():
    poisoned = memory(per_layer)
    [page, *_] = poisoned.ledgers.take(2, owner=ME)

    poisoned.ledgers.free([page], owner=ME, cause="done")

    is_nan = poisoned.store.kv("full").isnan()
    assert is_nan[:, :, page].all()
    assert is_nan.sum() == is_nan[:, :, page].numel()


def test_storage_without_nan_gets_a_number_that_nothing_has():
    poisoned = memory()
    pages = poisoned.ledgers.take(2, owner=ME)

    poisoned.ledgers.free(pages[:1], owner=ME, cause="done")

    assert [poisoned.store.kv("full")[page].tolist() for page in pages] == [[-1] * 4, [7] * 4]


def test_behind_a_fence_a_page_keeps_its_content_until_the_pass_has_completed():
    poisoned = memory()
    [page] = poisoned.ledgers.take(1, owner=ME)
    poisoned.ledgers.free([page], owner=ME, cause="done", after=2)
    before = poisoned.store.kv("full")[page].tolist()

    poisoned.complete(1)
    still = poisoned.store.kv("full")[page].tolist()
    poisoned.complete(2)

    assert (before, still) == ([7] * 4, [7] * 4)
    assert poisoned.store.kv("full")[page].tolist() == [-1] * 4


@pytest.mark.parametrize("poisons", [True, False])
def test_without_poison_a_freed_page_keeps_its_content(poisons):
    plain = KVMemory.for_config(EngineConfig(poison_freed_pages=poisons), None)
    [page] = plain.ledgers.take(1, owner=ME)

    plain.ledgers.free([page], owner=ME, cause="done")

    assert (plain.store.kv("full")[page] == (-1 if poisons else 0)).all()
