"""The clock of an engine: only a target advances it, and each reading of a counting one is later."""

from types import ModuleType

from swarden.harness.kit.clock import EngineClock


def test_modules_read_the_clock_that_served_them_last():
    module, clocks = ModuleType("scheduler"), (EngineClock(), EngineClock())
    for clock in clocks:
        clock.serve([module])

    clocks[1].now_s += 5

    assert module.time.monotonic() == module.time.perf_counter() == 5


def test_no_two_readings_of_a_counting_clock_are_equal():
    clock = EngineClock(tick_s=1)

    assert [clock.time(), clock.monotonic(), clock.time()] == [1, 2, 3]
