"""The host store of a machine without a GPU copies at once, and acknowledges once."""

import torch

from swarden.engine_under_test.host.tier import HostCopier
from swarden.engine_under_test.ports import Acknowledgement, PageCopy


def storage(page_dim: int) -> torch.Tensor:
    """Five pages; all values are different."""
    shape = [2, 3]
    shape.insert(page_dim, 5)
    return torch.arange(30).view(shape)


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
