"""Checksums of slots and pages."""

import pytest
import torch

from swarden.engine_under_test.pools.checksums import MOST_SLOTS, page_sums, slot_sums

SLOTS = torch.arange(6)
LAYOUTS = {
    "tags": torch.arange(6, dtype=torch.int64),
    "float64 in the middle": torch.randn(2, 2, 6, 3, 4, dtype=torch.float64),
    "bfloat16 of an odd size": torch.randn(1, 2, 6, 3, 1).to(torch.bfloat16),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_changed_byte_changes_the_checksum_of_its_slot_alone(name):
    kv = LAYOUTS[name].clone()
    dim = (kv.ndim - 1) // 2
    before = slot_sums(kv, dim, SLOTS)
    part = kv.select(dim, 4)

    for byte in range(part.nbytes):
        changed = part.reshape(-1).clone()
        changed.view(torch.uint8)[byte] ^= 1
        perturbed = kv.clone()
        perturbed.select(dim, 4).copy_(changed.view(part.shape))

        assert (slot_sums(perturbed, dim, SLOTS) != before).tolist() == [slot == 4 for slot in range(6)]


def test_exchanged_words_change_the_checksum():
    kv = torch.tensor([[1, 2], [2, 1]])

    first, second = slot_sums(kv, 0, torch.tensor([0, 1])).tolist()

    assert first != second


def test_checksums_of_many_slots_do_not_depend_on_the_split():
    kv = torch.randn(MOST_SLOTS + 3, 2)

    sums = slot_sums(kv, 0, torch.arange(len(kv)))

    assert sums.shape == (MOST_SLOTS + 3,)
    assert sums[-1:].tolist() == slot_sums(kv, 0, torch.tensor([MOST_SLOTS + 2])).tolist()


def test_slots_without_content_have_equal_checksums():
    kv = torch.empty(0, 2, 6, 3)

    assert slot_sums(kv, 2, SLOTS).unique().shape == (1,)


def test_page_checksum_covers_all_slots_of_the_page():
    kv = torch.randn(2, 3, 4, 5)  # outer, pages, page_size, inner
    before = page_sums(kv, 1)

    kv[1, 2, 3, 4] += 1

    assert (page_sums(kv, 1) != before).tolist() == [False, False, True]
