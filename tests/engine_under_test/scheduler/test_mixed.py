"""Mixed batches: running requests decode beside a prefill, and both have their pages."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Parked, Retracted
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, Serving, hold

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
MIXED = replace(HYBRID, mixed_batches=True)


def test_begun_chunk_is_parked_while_a_running_request_lacks_pages():
    """More pages are reserved than available, so no other page is reserved before pages are freed."""
    serving = Serving(replace(MIXED, swa_pages=0, sliding_window=None))
    serving.submit(OTHER[:7], max_new_tokens=12)
    serving.step()
    serving.submit(LONG)
    serving.step()
    hold(serving.engine.memory, "full", leaving=0)

    serving.step()

    assert (serving.log.of(Parked), [event.request_id for event in serving.log.of(Retracted)]) == ([Parked(2, 12)], [2])


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlapped"])
@ALL_POOLS
def test_outputs_are_those_of_unmixed_batches(config, overlap):
    serving = Serving(replace(config, mixed_batches=True, overlap=overlap))
    prompts = [LONG, OTHER, [*OTHER[:9], 1], LONG[:30], SHORT]
    for prompt in prompts:
        serving.submit(prompt, max_new_tokens=9)
        serving.step()

    serving.run()

    assert [received.tokens for received in serving.received.values()] == [
        serving.expected(prompt, max_new_tokens=9) for prompt in prompts
    ]
