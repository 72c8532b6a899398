"""The fake forward chains tags from slot to slot, so that a wrong page changes the tags and the sampled token."""

import pytest
import torch

from swarden.engine_under_test.ports import ForwardBatch, ForwardEntry, PageSpan, PoolPages
from swarden.fakes.forward import FakeForward
from swarden.fakes.unsteady import UnsteadyForward
from tests.fakes.device import FIRST, NEXT, PAGE, DecimalTags, Device, launch_pass


def test_slot_has_the_tag_of_its_prefix():
    device = Device()

    device.run([ForwardEntry(1, 9, [1, 2, 3, 4, 5], 0, 5, num_samples=1)], [3, 2], [PageSpan(0, 0, 2)])

    assert (device.kv[3].tolist(), device.kv[2].tolist()) == ([91, 912, 9123, 91234], [912345, 0, 0, 0])


def test_tag_is_chained_to_the_stored_tag_before_it():
    device = Device()
    device.kv[3, 3] = 7

    device.run([ForwardEntry(1, 0, [5, 6], 4, 6, num_samples=1)], [3, 2], [PageSpan(0, 0, 2)])

    assert device.kv[2].tolist() == [75, 756, 0, 0]


def test_span_starts_at_its_first_position():
    device = Device(window=2)
    device.kv[3, 3] = 7

    device.run([ForwardEntry(1, 0, [5], 8, 9, num_samples=1)], [3, 2], [PageSpan(4, 0, 2)])

    assert device.kv[2].tolist() == [75, 0, 0, 0]


@pytest.mark.parametrize(
    ("window", "token"),
    [
        pytest.param(None, 1 + 12 + 123 + 1234 + 12345, id="the whole prefix"),
        pytest.param(2, 1234 + 12345, id="two tokens"),
        pytest.param(4, 12 + 123 + 1234 + 12345, id="four tokens"),
        pytest.param(9, 1 + 12 + 123 + 1234 + 12345, id="a window longer than the prefix"),
    ],
)
def test_next_token_depends_on_all_tags_in_the_window(window, token):
    device = Device(window=window)

    sampled = device.run([ForwardEntry(1, 0, [1, 2, 3, 4, 5], 0, 5, num_samples=1)], [3, 2], [PageSpan(0, 0, 2)])

    assert sampled == [token]


def test_entry_that_does_not_sample_gets_no_token():
    sampled = Device().run([ForwardEntry(1, 0, [1, 2], 0, 2, num_samples=0)], [3], [PageSpan(0, 0, 1)])

    assert sampled == [None]


def test_each_entry_reads_its_own_pages():
    device = Device()
    entries = [ForwardEntry(1, 0, [1, 2], 0, 2, num_samples=1), ForwardEntry(2, 0, [3], 0, 1, num_samples=1)]

    assert device.run(entries, [5, 4], [PageSpan(0, 0, 1), PageSpan(0, 1, 1)]) == [1 + 12, 3]


def test_each_pool_has_its_own_sum():
    device = Device()
    entry = ForwardEntry(1, 0, [1, 2, 3], 0, 3, num_samples=1)
    pools = [
        PoolPages("full", None, device.kv, torch.tensor([1]), [PageSpan(0, 0, 1)]),
        PoolPages("swa", 2, torch.zeros_like(device.kv), torch.tensor([1]), [PageSpan(0, 0, 1)]),
    ]

    device.forward.launch(ForwardBatch(2, PAGE, [entry], pools))

    assert device.collect(2) == [(1 + 12 + 123) + (12 + 123)]


def test_reads_and_writes_are_noted():
    device = Device(window=3)
    device.kv[3] = torch.tensor([1, 12, 123, 1234])

    device.run([ForwardEntry(1, 0, [5, 6], 4, 6, num_samples=1)], [3, 2], [PageSpan(0, 0, 2)])

    assert [(*noted[:4], list(noted[-2])) for noted in device.noted] == [
        (1, 1, "pool", 4, [2]),
        (1, 1, "pool", 2, [123, 1234, 12345, 123456]),
    ]


def test_forward_without_an_observer_runs():
    device = Device()
    device.forward = UnsteadyForward(FakeForward(DecimalTags()), device.plan)

    device.run([ForwardEntry(1, 0, [1], 0, 1, num_samples=1)], [3], [PageSpan(0, 0, 1)])

    assert device.noted == []


def test_following_entry_starts_with_the_token_of_the_pass_before():
    device = Device()
    launch_pass(device, 1, FIRST, [3])
    launch_pass(device, 2, NEXT, [3])
    tokens = device.collect(1)

    device.collect(2)

    assert (tokens, device.kv[3].tolist()) == ([13], [1, 12, 120 + 13, 0])
