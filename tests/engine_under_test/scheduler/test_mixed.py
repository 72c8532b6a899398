"""Mixed batches: running requests decode beside a prefill, and both have their pages."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Parked, RanOut, Retracted
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, Serving, hold

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
MIXED = replace(HYBRID, mixed_batches=True)


def test_running_request_decodes_beside_a_prefill():
    serving = Serving(MIXED)
    serving.submit(OTHER[:8], max_new_tokens=9)
    serving.step(2)
    serving.submit(SHORT)

    serving.step(2)

    assert serving.passes[2:] == [((2, 0, 5), (1, 9, 10)), ((1, 10, 11), (2, 5, 6))]


def test_no_admission_when_running_requests_fill_the_budget():
    serving = Serving(replace(MIXED, chunk_len=2))
    for first in (10, 20):
        serving.submit([first], max_new_tokens=3)
    serving.step()
    third = serving.submit([30], max_new_tokens=1)
    serving.step()
    waiting = serving.passes[-1]

    serving.run()

    assert (waiting, serving.reason(third)) == (((1, 1, 2), (2, 1, 2)), "length")


@pytest.mark.parametrize(
    ("pool", "leaving", "computed"),
    [
        pytest.param("full", 2, ((1, 8, 9),), id="two pages, one needed by the running request"),
        pytest.param("full", 3, ((2, 0, 5), (1, 8, 9)), id="three pages"),
        pytest.param("swa", 3, ((1, 8, 9),), id="two and a page of its window, one needed by the running request"),
        pytest.param("swa", 4, ((2, 0, 5), (1, 8, 9)), id="three and a page of its window"),
    ],
)
def test_page_of_a_running_request_is_reserved(pool, leaving, computed):
    """A prompt of two pages arrives."""
    serving = Serving(MIXED)
    serving.submit(OTHER[:8], max_new_tokens=2)
    serving.step()
    hold(serving.engine.memory, pool, leaving=leaving)
    serving.submit(SHORT, max_new_tokens=1)

    serving.step()

    assert (serving.passes[-1], serving.log.of(RanOut)) == (computed, [])


def test_begun_chunk_is_parked_while_a_running_request_lacks_pages():
    """More pages are reserved than available, so no other page is reserved before pages are freed."""
    serving = Serving(replace(MIXED, swa_pages=0, sliding_window=None))
    serving.submit(OTHER[:7], max_new_tokens=12)
    serving.step()
    serving.submit(LONG)
    serving.step()
    hold(serving.engine.memory, "full", leaving=0)

    serving.step()

    assert (serving.log.of(Parked), [event.request_id for event in serving.log.of(Retracted)]) == (
        [Parked(2, 12)],
        [2],
    )


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


@pytest.mark.parametrize("page_size", [1, 4])
def test_full_output_estimate_prevents_retraction_beside_a_prefill(page_size):
    serving = Serving(
        replace(
            MIXED,
            page_size=page_size,
            full_pages=256,
            swa_pages=48 // page_size,
            new_token_ratio=1.0,
            new_token_ratio_floor=1.0,
            max_running_requests=8,
        )
    )
    for first in range(8):
        serving.submit([first, *range(10)], max_new_tokens=30)
        serving.step()

    serving.run()

    assert (serving.log.of(Retracted), serving.log.of(RanOut)) == ([], [])
