"""Requests that wait for KV from the host, and their progress after the load."""

from dataclasses import replace

import pytest

from swarden.invariants.events import CopyBegan, Loaded, LoadPlanned
from tests.engine_under_test.host.bench import HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, WRITE_BACK
from tests.engine_under_test.host.serving import finish, ids, start_loading, with_copies, with_manual_store

LONG, OTHER, SHORT = list(range(100, 120)), list(range(300, 317)), list(range(200, 205))
ALL_CONFIGS = pytest.mark.parametrize(
    "config",
    [HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, WRITE_BACK, replace(HOSTED, overlap=True)],
    ids=["hybrid", "full only", "swa only", "write-back", "overlapped"],
)


@ALL_CONFIGS
def test_loaded_request_generates_the_same_as_without_a_cache(config):
    serving = with_copies(LONG, config=config)

    received = serving.serve(LONG, max_new_tokens=6)

    assert (received.tokens, len(serving.log.of(Loaded))) == (serving.expected(LONG, max_new_tokens=6), 1)


def test_loaded_tokens_are_cached_and_not_recomputed():
    serving = with_copies(LONG)
    before = len(serving.passes)

    received = serving.serve(LONG, max_new_tokens=1)

    assert (serving.passes[before:], received.cached_tokens) == ([((2, 16, 20),)], 16)


def test_request_computes_nothing_before_its_load_ends():
    serving, _ = with_manual_store(LONG)
    before = len(serving.passes)

    start_loading(serving, LONG)
    serving.step(3)

    assert (ids(serving), serving.passes[before:]) == ({"waiting": [], "loading": [2], "running": []}, [])


def test_request_loads_the_rest_after_a_shared_load():
    """The request computes no token that the host has; no page is loaded twice."""
    serving, store = with_manual_store(LONG[:9], LONG, config=replace(HOSTED, load_back_threshold=4))
    short = start_loading(serving, LONG[:9])
    whole = start_loading(serving, LONG)
    queued = ids(serving)

    finish(serving, store)

    assert (queued["loading"], queued["waiting"]) == ([short], [whole])
    assert [serving.received[request].cached_tokens for request in (short, whole)] == [8, 16]
    loads = [began.pages for began in serving.log.of(CopyBegan) if not began.to_host]
    assert [{pool: len(pages) for pool, pages, _ in load}["full"] for load in loads] == [2, 2]
    assert serving.tokens(whole) == serving.expected(LONG, max_new_tokens=4)


def test_other_requests_run_during_a_load():
    serving, _ = with_manual_store(LONG)
    start_loading(serving, LONG)

    other = serving.submit(SHORT)
    serving.step(5)

    assert serving.tokens(other) == serving.expected(SHORT, max_new_tokens=4)


def test_request_runs_in_the_step_in_which_its_load_ends():
    serving, store = with_manual_store(LONG)
    start_loading(serving, LONG)
    store.end(*store.begun)

    serving.step()

    assert (ids(serving)["running"], serving.passes[-1]) == ([2], ((2, 16, 20),))


def test_load_is_reported_when_planned_and_when_ended():
    serving = with_copies(LONG)
    request = start_loading(serving, LONG)

    serving.step()

    [planned], [loaded] = serving.log.of(LoadPlanned), serving.log.of(Loaded)
    assert (planned.request_id, planned.length, planned.firm) == (request, 16, (("full", 4), ("swa", 2)))
    assert (loaded.request_id, loaded.length, len(loaded.pages)) == (request, 16, 4)


def test_load_below_the_threshold_is_not_made():
    serving = with_copies(LONG, config=replace(HOSTED_FULL_ONLY, load_back_threshold=17))

    received = serving.serve(LONG)

    assert (serving.log.of(LoadPlanned), received.tokens) == ([], serving.expected(LONG, max_new_tokens=4))


def test_two_requests_for_the_same_prefix_wait_for_one_load():
    """The load is charged to the first of them."""
    serving, store = with_manual_store(LONG)
    for _ in range(2):
        serving.submit(LONG)
    serving.step()
    under_way = list(store.begun)

    store.end(*under_way)
    serving.run()

    first, second = serving.log.of(LoadPlanned)
    assert [first.job, second.job] == [under_way[0]] * 2
    assert (first.firm, second.firm) == ((("full", 4), ("swa", 2)), (("full", 0), ("swa", 0)))
    assert [serving.tokens(request) for request in (2, 3)] == [serving.expected(LONG, max_new_tokens=4)] * 2


def test_load_that_ends_out_of_order_wakes_its_own_request():
    serving, store = with_manual_store(LONG, OTHER)
    first, second = start_loading(serving, LONG), start_loading(serving, OTHER)
    _, later = store.begun
    store.end(later)
    serving.step()
    after_one = ids(serving)

    finish(serving, store)

    assert (after_one["loading"], after_one["running"]) == ([first], [second])
    assert [serving.tokens(request) for request in (first, second)] == [
        serving.expected(prompt, max_new_tokens=4) for prompt in (LONG, OTHER)
    ]
