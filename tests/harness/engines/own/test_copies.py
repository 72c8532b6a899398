"""The copy inspector reports each differing page of successful jobs, bit by bit."""

from functools import partial

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import SlotLayout
from swarden.harness.engines.own.copies import CopyInspector
from swarden.invariants.events import Copied, CopyBegan, CopyEnded

CONFIG = EngineConfig(
    page_size=2, full_pages=8, swa_pages=6, sliding_window=2, host_full_pages=8, host_swa_pages=6, chunk_len=4
)
BOTH = CopyBegan(1, True, (("full", (3, 5), (1, 2)), ("swa", (4,), (6,))))


def by_layer(_pool, dtype=torch.float32):
    """Two layers before the page dimension, and three numbers per slot."""
    return SlotLayout(dtype, outer=(2,), inner=(3,))


class InspectedMemory:
    """Device and host pools with equal pages, and the events of an inspector of their copies."""

    def __init__(self, **how) -> None:
        self.emitted: list[object] = []
        self.memory = KVMemory.for_config(CONFIG, None, **how)
        self.inspector = CopyInspector(self.memory, self.emitted.append)

    def notice(self, *events) -> list[object]:
        for event in events:
            self.inspector.notice(event)
        return self.emitted

    def kv(self, pool: str) -> torch.Tensor:
        assert self.memory.host is not None, "there is a host"
        return (self.memory.host if pool.startswith("host") else self.memory).store.kv(pool)


def test_equal_copies_are_reported_per_pool():
    one = InspectedMemory()
    one.kv("full")[3], one.kv("host full")[1] = 7, 7

    assert one.notice(BOTH, CopyEnded(1, None)) == [Copied(1, "full", []), Copied(1, "swa", [])]


def test_differing_pages_are_reported_as_pairs():
    one = InspectedMemory()
    one.kv("full")[5, 1] = 7
    one.kv("host swa")[6, 0] = 9

    assert one.notice(BOTH, CopyEnded(1, None)) == [Copied(1, "full", [(5, 2)]), Copied(1, "swa", [(4, 6)])]


def test_load_is_compared_like_a_backup():
    one = InspectedMemory()
    one.kv("host full")[2] = 7

    assert one.notice(BOTH._replace(to_host=False), CopyEnded(1, None)) == [
        Copied(1, "full", [(5, 2)]),
        Copied(1, "swa", []),
    ]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([BOTH, CopyEnded(1, "the copy failed")], id="failed"),
        pytest.param([BOTH], id="in flight"),
        pytest.param([CopyEnded(1, None)], id="no begin"),
        pytest.param([BOTH, CopyEnded(1, "the copy failed"), CopyEnded(1, None)], id="second end"),
    ],
)
def test_unsuccessful_transfer_is_not_compared(events):
    one = InspectedMemory()
    one.kv("full")[3] = 7

    assert one.notice(*events) == []


def test_pages_are_compared_at_the_end_of_the_transfer():
    one = InspectedMemory()
    one.notice(BOTH)
    one.kv("full")[3] = 7

    assert one.notice(CopyEnded(1, None))[0] == Copied(1, "full", [(3, 1)])


def test_difference_in_one_layer_of_one_page_is_reported():
    """The layer dimension is before the page dimension."""
    one = InspectedMemory(layout=by_layer)
    one.kv("full")[1, 5, 0, 2] = 0.5

    assert one.notice(BOTH, CopyEnded(1, None))[0] == Copied(1, "full", [(5, 2)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_nan_equals_its_copy_and_negative_zero_differs_from_zero(dtype):
    """Freed pages are poisoned with NaN, which is not equal to itself."""
    one = InspectedMemory(layout=partial(by_layer, dtype=dtype))
    one.kv("full")[:, 3] = one.kv("host full")[:, 1] = float("nan")
    one.kv("full")[:, 5], one.kv("host full")[:, 2] = 0.0, -0.0

    assert one.notice(BOTH, CopyEnded(1, None))[0] == Copied(1, "full", [(5, 2)])
