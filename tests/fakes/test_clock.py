"""The fake clock moves only when it is advanced, and only forward."""

import pytest

from swarden.fakes.clock import FakeClock


def test_clock_shows_the_sum_of_all_advances():
    clock = FakeClock()
    first = clock.now_ms()
    clock.advance(5)
    clock.advance(7)

    assert (first, clock.now_ms()) == (0, 12)


def test_advance_by_a_negative_time_raises():
    with pytest.raises(AssertionError):
        FakeClock().advance(-1)
