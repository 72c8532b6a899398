"""Admission: which chunk fits beside running requests, and how a chunk continues when pages are short."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Admitted, Parked, RanOut, Retracted
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, UNSHARED, Serving, hold, release_held

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
OUT_OF_PAGES = "out of memory: no free page for the rest of the prompt"


def test_prompts_share_the_chunk_of_a_step():
    serving = Serving()
    serving.submit(OTHER[:10])
    serving.submit(LONG[:10])

    serving.step()

    assert serving.passes == [((1, 0, 10), (2, 0, 4))]


def test_no_more_requests_run_than_there_are_rows():
    serving = Serving(replace(HYBRID, max_running_requests=2))
    for first in (10, 20, 30):
        serving.submit([first], max_new_tokens=3)

    serving.run()

    assert [[request for request, _, _ in entries] for entries in serving.passes] == [[1, 2]] * 3 + [[3]] * 3


@pytest.mark.parametrize(
    ("waiting_order", "first"), [pytest.param("fcfs", 2, id="first come"), pytest.param("lpm", 3, id="longest match")]
)
def test_waiting_requests_are_admitted_in_the_configured_order(waiting_order, first):
    serving = Serving(replace(HYBRID, waiting_order=waiting_order, max_running_requests=1))
    serving.serve(OTHER)
    serving.submit(SHORT)
    serving.submit(OTHER)

    serving.step()

    assert serving.log.of(Admitted)[-1].request_id == first


def test_admission_event_has_firm_pages_and_total_demand():
    serving = Serving(replace(HYBRID, new_token_ratio=0.5))
    serving.submit(LONG, max_new_tokens=8)

    serving.step()

    assert serving.log.of(Admitted) == [
        Admitted(1, 0, 16, (("full", 4), ("swa", 4)), (("full", 11), ("swa", 5))),
    ]


def test_a_request_waits_while_its_estimate_does_not_fit():
    serving = Serving(replace(FULL_ONLY, new_token_ratio=1.0))
    serving.submit(OTHER[:8], max_new_tokens=30)
    serving.step()
    serving.submit(SHORT, max_new_tokens=30)

    serving.step()

    assert serving.passes[1] == ((1, 8, 9),)


FULL_ESTIMATE = replace(HYBRID, new_token_ratio=1.0, new_token_ratio_floor=1.0)


@pytest.mark.parametrize("steps_between", [0, 1], ids=["together", "one step apart"])
def test_full_output_estimate_prevents_retraction_for_windowed_pages(steps_between):
    """A request that holds less than its window still grows to it, also while it runs."""
    serving = Serving(replace(FULL_ESTIMATE, full_pages=256, max_running_requests=8))
    for first in range(8):
        serving.submit([first], max_new_tokens=40)
        serving.step(steps_between)

    serving.run()

    assert [received.num_retractions for received in serving.received.values()] == [0] * 8


@pytest.mark.parametrize("steps_between", [0, 1], ids=["together", "one step apart"])
def test_two_requests_that_fill_the_pool_exactly_run_side_by_side(steps_between):
    """The next token of a running request is part of its estimate and counts once."""
    serving = Serving(replace(FULL_ESTIMATE, swa_pages=0, sliding_window=None))
    serving.submit(list(range(4)), max_new_tokens=28)
    serving.step(steps_between)
    serving.submit(list(range(50, 54)), max_new_tokens=28)

    serving.step(2)

    assert {request for entries in serving.passes for request, _, _ in entries} == {1, 2}


def test_request_waits_while_its_own_lock_protects_the_pages_it_needs():
    serving = Serving(FULL_ONLY)
    serving.serve(OTHER, max_new_tokens=1)
    serving.submit(SHORT, max_new_tokens=3)
    serving.step()
    hold(serving.engine.memory, "full", leaving=0)
    serving.submit(OTHER, max_new_tokens=1)

    serving.step()

    assert (serving.log.of(RanOut), serving.passes[-1]) == ([], ((2, 5, 6),))


def test_request_alone_is_admitted_despite_its_estimate():
    serving = Serving(replace(FULL_ONLY, full_pages=8, new_token_ratio=1.0))
    serving.submit(OTHER[:8], max_new_tokens=50)

    serving.step()

    assert serving.passes == [((1, 0, 8),)]


def test_request_alone_waits_while_no_page_is_free():
    serving = Serving()
    held = hold(serving.engine.memory, "swa", leaving=0)
    request = serving.submit(SHORT)
    serving.step(3)
    waiting = serving.passes

    release_held(serving.engine.memory, "swa", held)
    serving.run()

    assert (waiting, serving.tokens(request)) == ([], serving.expected(SHORT, max_new_tokens=4))


def begun() -> Serving:
    """Request 1 runs and needs no page for three steps; request 2 has computed 16 of its 40 tokens."""
    serving = Serving()
    serving.submit(SHORT, max_new_tokens=12)
    serving.step()
    serving.submit(LONG)
    serving.step()
    return serving


def test_chunk_is_parked_while_no_page_is_free_and_other_requests_run():
    serving = begun()
    hold(serving.engine.memory, "full", leaving=0)

    serving.step()

    assert (serving.log.of(Parked), serving.passes[-1]) == ([Parked(2, 16)], ((1, 5, 6),))


def test_parked_chunk_resumes_when_pages_are_free():
    serving = begun()
    held = hold(serving.engine.memory, "full", leaving=0)
    serving.step(2)

    release_held(serving.engine.memory, "full", held)
    serving.run()

    assert serving.tokens(2) == serving.expected(LONG, max_new_tokens=4)


def test_chunk_shrinks_to_the_free_pages():
    serving = begun()
    hold(serving.engine.memory, "full", leaving=1)

    serving.step()

    assert serving.passes[-1] == ((2, 16, 20),)


def alone_with(pool: str, *, leaving: int) -> Serving:
    """A single request that has begun its prompt in the smallest swa pool; another owner holds free pages of `pool`."""
    serving = Serving(replace(HYBRID, swa_pages=4))
    serving.submit(LONG)
    serving.step()
    hold(serving.engine.memory, pool, leaving=leaving)
    return serving


def test_chunked_request_alone_is_computed_page_by_page():
    serving = alone_with("swa", leaving=0)

    serving.run()

    assert serving.tokens(1) == serving.expected(LONG, max_new_tokens=4)


def test_chunk_alone_frees_its_dead_window_before_it_is_aborted():
    serving = Serving(replace(UNSHARED, window_eviction_interval=64))
    request = serving.submit(LONG)
    serving.step()
    hold(serving.engine.memory, "swa", leaving=0)

    serving.run()

    assert serving.tokens(request) == serving.expected(LONG, max_new_tokens=4)


def test_chunked_request_alone_evicts_cached_pages_before_it_is_aborted():
    serving = Serving()
    serving.serve(OTHER)
    request = serving.submit(LONG)
    serving.step()
    hold(serving.engine.memory, "full", leaving=0)

    serving.step()

    assert (serving.passes[-1], serving.reason(request)) == (((request, 16, 32),), None)


def test_chunk_alone_without_any_page_ends_with_the_reason():
    serving = alone_with("full", leaving=0)

    serving.step()

    assert (serving.reason(1), serving.log.of(Parked)) == (OUT_OF_PAGES, [Parked(1, 12)])


def test_request_behind_an_aborted_chunk_is_served_in_the_same_step():
    serving = alone_with("full", leaving=0)
    second = serving.submit(SHORT)

    serving.step()
    computed = serving.passes[-1]
    serving.run()

    assert (serving.reason(1), computed, serving.tokens(second)) == (
        OUT_OF_PAGES,
        ((second, 0, 5),),
        serving.expected(SHORT, max_new_tokens=4),
    )


def test_unfinished_chunk_yields_to_running_requests():
    serving = begun()
    held = hold(serving.engine.memory, "full", leaving=0)
    retracted = serving.until(Retracted)

    release_held(serving.engine.memory, "full", held)
    serving.run()

    assert (retracted.request_id, serving.tokens(2)) == (2, serving.expected(LONG, max_new_tokens=4))
