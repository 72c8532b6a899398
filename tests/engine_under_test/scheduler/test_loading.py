"""Requests that wait for KV from the host, and their progress after the load."""

from dataclasses import replace

from swarden.invariants.events import CopyBegan, LoadPlanned
from tests.engine_under_test.host.bench import HOSTED
from tests.engine_under_test.host.serving import finish, ids, start_loading, with_copies, with_manual_store

LONG = list(range(100, 120))


def test_loaded_tokens_are_cached_and_not_recomputed():
    serving = with_copies(LONG)
    before = len(serving.passes)

    received = serving.serve(LONG, max_new_tokens=1)

    assert (serving.passes[before:], received.cached_tokens) == ([((2, 16, 20),)], 16)


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
