"""The fake clock goes on when it is told to, and never back."""

import pytest

from fakes.clock import FakeClock


def test_the_clock_stands_still_until_it_is_told_to_go_on():
    clock = FakeClock()
    first = clock.now_ms()
    clock.advance(5)
    clock.advance(7)

    assert (first, clock.now_ms()) == (0, 12)


def test_the_clock_never_goes_back():
    with pytest.raises(AssertionError) as caught:
        FakeClock().advance(-1)

    assert str(caught.value).splitlines()[0] == "the clock never goes back: -1 ms"
