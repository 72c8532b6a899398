"""The unsteady forward: late, or failed with rubbish behind it, and nobody computes on top of that."""

import pytest

from engine_under_test.ports import ForwardEntry, ForwardFailed
from fakes.unsteady import UnsteadyForward
from tests.fakes.device import FIRST, NEXT, Device, passed


def test_a_pass_runs_when_it_is_collected():
    device = Device()
    passed(device, 1, FIRST, [3])
    before = device.kv[3].tolist()

    device.collect(1)

    assert (before, device.kv[3].tolist()) == ([0, 0, 0, 0], [1, 12, 0, 0])


def test_a_late_pass_is_not_done_and_nothing_of_it_is_written():
    device = Device()
    device.plan.arm("forward.late")
    passed(device, 1, FIRST, [3])

    first = device.collect(1)
    untouched = device.kv[3].tolist()

    assert (first, untouched, device.collect(1)) == (None, [0, 0, 0, 0], [13])


def test_a_pass_that_fails_leaves_rubbish():
    device = Device()
    device.plan.arm("forward.fails")
    passed(device, 1, FIRST, [3])

    with pytest.raises(ForwardFailed) as caught:
        device.collect(1)

    assert (str(caught.value), device.kv[3].tolist(), device.noted) == (
        "launch 1: the device gave up",
        [-1, -1, 0, 0],
        [],
    )


def failed_before(entry: ForwardEntry, pages: list[int]) -> tuple[Device, list[int | None] | None]:
    """Request 1 fails on page 3 while another pass is in flight; what that one samples."""
    device = Device()
    device.plan.arm("forward.fails")
    passed(device, 1, FIRST, [3])
    passed(device, 2, entry, pages)
    with pytest.raises(ForwardFailed):
        device.collect(1)
    return device, device.collect(2)


def test_who_was_launched_on_top_of_a_failed_pass_reads_writes_and_samples_nothing():
    device, sampled = failed_before(NEXT, [3])

    assert (sampled, device.noted, device.kv[3].tolist()) == ([None], [], [-1, -1, 0, 0])


def test_another_request_that_was_launched_behind_a_failed_pass_is_computed():
    _, sampled = failed_before(ForwardEntry(2, 0, [4], 0, 1, num_samples=1), [5])

    assert sampled == [4]


def test_the_same_request_on_other_pages_is_computed_behind_a_failed_pass():
    """It has given back its pages in between and begun again."""
    _, sampled = failed_before(FIRST, [5])

    assert sampled == [13]


def test_a_pass_that_failed_can_be_launched_again():
    device, _ = failed_before(NEXT, [3])
    passed(device, 3, FIRST, [3])

    assert device.collect(3) == [13]


def test_the_faults_are_those_of_the_docstring():
    assert list(UnsteadyForward.FAULTS) == ["forward.fails", "forward.late"]
