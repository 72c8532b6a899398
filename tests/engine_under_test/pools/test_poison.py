"""A freed page is overwritten after the last pass that may read it, and not before."""

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory, tags
from swarden.engine_under_test.ports import SlotLayout
from swarden.invariants.events import Owner

CONFIG = EngineConfig(page_size=4, full_pages=4, max_context_len=64, poison_freed_pages=True)
OWNER = Owner("test")


def per_layer(_pool) -> SlotLayout:
    return SlotLayout(torch.float32, outer=(3, 2), inner=(1, 5))


def memory(layout=tags) -> KVMemory:
    memory = KVMemory.for_config(CONFIG, None, layout=layout)
    memory.store.kv("full").fill_(7)
    return memory


def test_a_freed_page_is_poisoned_in_every_layer():
    poisoned = memory(per_layer)
    [page, *_] = poisoned.ledgers.take(2, owner=OWNER)

    poisoned.ledgers.free([page], owner=OWNER, cause="done")

    is_nan = poisoned.store.kv("full").isnan()
    assert is_nan[:, :, page].all()
    assert is_nan.sum() == is_nan[:, :, page].numel()


def test_integer_storage_is_poisoned_with_minus_one():
    poisoned = memory()
    pages = poisoned.ledgers.take(2, owner=OWNER)

    poisoned.ledgers.free(pages[:1], owner=OWNER, cause="done")

    assert [poisoned.store.kv("full")[page].tolist() for page in pages] == [[-1] * 4, [7] * 4]


def test_fenced_page_is_poisoned_after_its_pass():
    poisoned = memory()
    [page] = poisoned.ledgers.take(1, owner=OWNER)
    poisoned.ledgers.free([page], owner=OWNER, cause="done", after=2)
    before = poisoned.store.kv("full")[page].tolist()

    poisoned.complete(1)
    still = poisoned.store.kv("full")[page].tolist()
    poisoned.complete(2)

    assert (before, still) == ([7] * 4, [7] * 4)
    assert poisoned.store.kv("full")[page].tolist() == [-1] * 4


@pytest.mark.parametrize("poisons", [True, False])
def test_freed_page_is_poisoned_only_if_configured(poisons):
    plain = KVMemory.for_config(EngineConfig(poison_freed_pages=poisons), None)
    [page] = plain.ledgers.take(1, owner=OWNER)

    plain.ledgers.free([page], owner=OWNER, cause="done")

    assert (plain.store.kv("full")[page] == (-1 if poisons else 0)).all()
