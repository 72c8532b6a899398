"""The host store of a machine without a GPU copies at once, and acknowledges once."""

import pytest
import torch

from swarden.engine_under_test.host.tier import HostCopier
from swarden.engine_under_test.ports import Acknowledgement, PageCopy


def storage(page_dim: int) -> torch.Tensor:
    """Five pages; all values are different."""
    shape = [2, 3]
    shape.insert(page_dim, 5)
    return torch.arange(30).view(shape)


@pytest.mark.parametrize("page_dim", [0, 1, 2])
def test_pages_are_copied_index_by_index(page_dim):
    source, target = storage(page_dim), torch.zeros_like(storage(page_dim))

    HostCopier().begin(1, [PageCopy(source, [4, 1], target, [2, 3], page_dim)])

    pages = target.unbind(page_dim)
    assert torch.equal(pages[2], source.select(page_dim, 4))
    assert torch.equal(pages[3], source.select(page_dim, 1))
    assert not any(pages[untouched].any() for untouched in (0, 1, 4))


def test_all_pools_of_a_transfer_are_copied():
    source, targets = storage(0), [torch.zeros(5, 2, 3, dtype=torch.int64) for _ in range(2)]

    HostCopier().begin(1, [PageCopy(source, [1], target, [1], 0) for target in targets])

    assert [torch.equal(target[1], source[1]) for target in targets] == [True, True]


def test_completed_copy_is_acknowledged_once():
    copier = HostCopier()
    copier.begin(7, [PageCopy(storage(0), [1], storage(0), [1], 0)])
    copier.begin(9, [])

    answers = [copier.acknowledged(), copier.acknowledged()]

    assert answers == [[Acknowledgement(7), Acknowledgement(9)], []]


def test_wait_loses_no_acknowledgement():
    copier = HostCopier()
    copier.begin(7, [PageCopy(storage(0), [1], storage(0), [1], 0)])

    copier.wait()

    assert copier.acknowledged() == [Acknowledgement(7)]
