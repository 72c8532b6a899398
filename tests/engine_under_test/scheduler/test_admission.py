"""Admission: which chunk fits beside running requests, and how a chunk continues when pages are short."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Admitted, Parked, Retracted
from tests.engine_under_test.builders import HYBRID, UNSHARED, Serving, hold, release_held

LONG, SHORT, OTHER = list(range(100, 140)), list(range(200, 205)), list(range(300, 317))
OUT_OF_PAGES = "out of memory: no free page for the rest of the prompt"


def test_prompts_share_the_chunk_of_a_step():
    serving = Serving()
    serving.submit(OTHER[:10])
    serving.submit(LONG[:10])

    serving.step()

    assert serving.passes == [((1, 0, 10), (2, 0, 4))]


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


def test_chunk_alone_without_any_page_ends_with_the_reason():
    serving = alone_with("full", leaving=0)

    serving.step()

    assert (serving.reason(1), serving.log.of(Parked)) == (OUT_OF_PAGES, [Parked(1, 12)])


def test_unfinished_chunk_yields_to_running_requests():
    serving = begun()
    held = hold(serving.engine.memory, "full", leaving=0)
    retracted = serving.until(Retracted)

    release_held(serving.engine.memory, "full", held)
    serving.run()

    assert (retracted.request_id, serving.tokens(2)) == (2, serving.expected(LONG, max_new_tokens=4))
