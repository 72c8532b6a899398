"""The KV in memory is compared with that first computed for the same tokens, by the tables of the worker."""

import pytest
import torch

from swarden.harness.engines.vllm.layers import LayerGroup
from swarden.harness.engines.vllm.passes import VllmEntry
from swarden.harness.engines.vllm_cpu.memory import GroupKV
from swarden.harness.engines.vllm_cpu.model import LayerMemory
from swarden.harness.kit.tags import chain

BLOCK, WINDOW = 4, 5
TABLE = [3, 5, 2]


class Worker:
    """Two layers of one group, and the block table of its only request."""

    torch = torch

    def __init__(self):
        self.groups = [[LayerMemory(name, torch.zeros(8, BLOCK, 2, 3)) for name in ("first", "second")]]
        self.blocks = list(TABLE)

    def table(self, rid, group):
        return torch.tensor(self.blocks, dtype=torch.int32).numpy()

    def compute(self, start, tokens):
        """Write KV at positions from `start` on that is a function of the token and its layer."""
        for position, token in enumerate(tokens, start=start):
            for layer, memory in enumerate(self.groups[0]):
                memory.values[TABLE[position // BLOCK], position % BLOCK] = token + 100 * layer


@pytest.fixture
def worker():
    return Worker()


def wrong(memory, start, tokens):
    """The wrong slots among those that an entry reads whose positions begin at `start`."""
    return list(memory.wrong("1", VllmEntry(1, start, len(tokens), [TABLE]), chain(1, tokens), accepted=0))


def computed(worker, window=None):
    """The memory after the first six tokens, and the eight tokens of the request."""
    memory, tokens = GroupKV(worker, 0, LayerGroup(window, BLOCK)), list(range(1, 9))
    worker.compute(0, tokens[:6])
    assert wrong(memory, 0, tokens[:6]) == []
    worker.compute(6, tokens[6:])
    return memory, tokens


def test_right_kv_is_not_wrong(worker):
    memory, tokens = computed(worker)

    assert wrong(memory, 6, tokens) == []


def test_changed_slot_is_told_with_layer_block_and_slot(worker):
    memory, tokens = computed(worker)
    worker.groups[0][1].values[5, 1] += 0.5  # position 5

    [found] = wrong(memory, 6, tokens)

    assert found[1:] == (5, "second", 5, 1, 0.5)


def test_number_that_is_none_is_wrong(worker):
    memory, tokens = computed(worker)
    worker.groups[0][0].values[3, 2] = float("nan")

    assert [one.position for one in wrong(memory, 6, tokens)] == [2]


def test_block_that_the_worker_takes_from_another_table_is_wrong(worker):
    memory, tokens = computed(worker)
    worker.blocks[0] = 7

    [found] = wrong(memory, 6, tokens)

    assert (found.position, found.unit) == (0, 7)


@pytest.mark.parametrize(("position", "is_read"), [(2, True), (1, False)])
def test_only_the_window_of_the_first_computed_token_is_compared(worker, position, is_read):
    memory, tokens = computed(worker, WINDOW)
    worker.groups[0][0].values[3, position] += 1

    assert bool(wrong(memory, 6, tokens)) == is_read


def test_tokens_for_which_nothing_was_computed_have_no_difference(worker):
    memory, _ = computed(worker)
    others = [9, 9, 9, 9, 9, 9, 7, 8]

    [found] = wrong(memory, 6, others)

    assert (found.position, found.difference) == (0, None)


def test_memory_grows_with_its_tags(worker):
    worker.groups = [[LayerMemory("only", torch.arange(8.0 * 512).reshape(8, 512, 1, 1))]]
    memory, tokens = GroupKV(worker, 0, LayerGroup(None, 512)), list(range(1500))

    assert wrong(memory, 0, tokens[:1000]) == []
    assert wrong(memory, 1000, tokens) == []
    worker.groups[0][0].values[3, 7] = -1
    assert [one.position for one in wrong(memory, 1400, tokens)] == [7]
