"""The unsteady forward: a pass is late, or fails and leaves rubbish that no other pass reads."""

import pytest

from swarden.engine_under_test.ports import ForwardEntry, ForwardFailed
from tests.fakes.device import FIRST, NEXT, Device, launch_pass


def test_pass_runs_when_it_is_collected():
    device = Device()
    launch_pass(device, 1, FIRST, [3])
    before = device.kv[3].tolist()

    device.collect(1)

    assert (before, device.kv[3].tolist()) == ([0, 0, 0, 0], [1, 12, 0, 0])


def test_late_pass_has_written_nothing():
    device = Device()
    device.plan.arm("forward.late")
    launch_pass(device, 1, FIRST, [3])

    first = device.collect(1)
    untouched = device.kv[3].tolist()

    assert (first, untouched, device.collect(1)) == (None, [0, 0, 0, 0], [13])


def test_failed_pass_leaves_rubbish():
    device = Device()
    device.plan.arm("forward.fails")
    launch_pass(device, 1, FIRST, [3])

    with pytest.raises(ForwardFailed, match=r"^launch 1: "):
        device.collect(1)

    assert (device.kv[3].tolist(), device.noted) == ([-1, -1, 0, 0], [])


def failed_before(entry: ForwardEntry, pages: list[int]) -> tuple[Device, list[int | None] | None]:
    """Request 1 fails on page 3 while another pass is in flight; returns the tokens of that pass."""
    device = Device()
    device.plan.arm("forward.fails")
    launch_pass(device, 1, FIRST, [3])
    launch_pass(device, 2, entry, pages)
    with pytest.raises(ForwardFailed):
        device.collect(1)
    return device, device.collect(2)


def test_entry_that_follows_a_failed_pass_is_not_computed():
    device, sampled = failed_before(NEXT, [3])

    assert (sampled, device.noted, device.kv[3].tolist()) == ([None], [], [-1, -1, 0, 0])


def test_other_request_after_a_failed_pass_is_computed():
    _, sampled = failed_before(ForwardEntry(2, 0, [4], 0, 1, num_samples=1), [5])

    assert sampled == [4]


def test_same_request_on_other_pages_after_a_failed_pass_is_computed():
    """The request was retracted after the failed pass."""
    _, sampled = failed_before(FIRST, [5])

    assert sampled == [13]


def test_failed_pass_can_be_launched_again():
    device, _ = failed_before(NEXT, [3])
    launch_pass(device, 3, FIRST, [3])

    assert device.collect(3) == [13]
