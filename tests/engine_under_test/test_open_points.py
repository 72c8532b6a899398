"""What the rules say and the engine does not do yet; each test moves to its package when it holds."""

from dataclasses import replace

import pytest

from tests.engine_under_test.builders import FULL_ONLY, HYBRID, Serving

ALL_COUNTED_ON = {"new_token_ratio": 1.0, "new_token_ratio_floor": 1.0}


@pytest.mark.parametrize("steps_between", [0, 1], ids=["together", "one step apart"])
def test_with_all_of_the_output_counted_on_nobody_is_retracted_for_windowed_pages(steps_between):
    """A request that holds less than its window still grows to it, also while it runs."""
    serving = Serving(replace(HYBRID, full_pages=256, swa_pages=12, max_running_requests=8, **ALL_COUNTED_ON))
    for first in range(8):
        serving.submit([first], max_new_tokens=40)
        serving.step(steps_between)

    serving.run()

    assert [received.num_retractions for received in serving.received.values()] == [0] * 8


@pytest.mark.parametrize("steps_between", [0, 1], ids=["together", "one step apart"])
def test_two_requests_that_fill_the_pool_exactly_run_side_by_side(steps_between):
    """The next token of who runs is part of its estimate and counts once."""
    serving = Serving(replace(FULL_ONLY, **ALL_COUNTED_ON))
    serving.submit(list(range(4)), max_new_tokens=28)
    serving.step(steps_between)
    serving.submit(list(range(50, 54)), max_new_tokens=28)

    serving.step(2)

    assert {request for entries in serving.passes for request, _, _ in entries} == {1, 2}
