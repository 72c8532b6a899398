"""Requests that wait for KV from the host: failures during a load, and retraction."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from swarden.invariants.events import Discarded, Finished, GaveWay, Loaded, LoadPlanned, Refused, Retracted
from tests.engine_under_test.builders import Serving, hold, release_held
from tests.engine_under_test.host.bench import HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, WRITE_BACK, ManualStore
from tests.engine_under_test.host.serving import (
    finish,
    host_free,
    ids,
    serving_with_host,
    start_loading,
    with_copies,
    with_manual_store,
)

LONG, OTHER, SHORT = list(range(100, 120)), list(range(300, 317)), list(range(200, 205))
ALL_CONFIGS = pytest.mark.parametrize(
    "config",
    [HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, WRITE_BACK, replace(HOSTED, overlap=True)],
    ids=["hybrid", "full only", "swa only", "write-back", "overlapped"],
)


# --- failures


@pytest.mark.parametrize("fault", ["host.fails", "host.torn"])
def test_prompt_is_recomputed_after_a_failed_load(fault):
    serving = with_copies(LONG)
    serving.faults.arm(fault)
    before = len(serving.passes)

    received = serving.serve(LONG)

    assert (serving.passes[before][0], received.tokens) == ((2, 0, 16), serving.expected(LONG, max_new_tokens=4))


@ALL_CONFIGS
@pytest.mark.parametrize("fault", ["host.fails", "host.torn", "host.slow", "host.silent"])
@pytest.mark.parametrize("skip", [0, 1, 2], ids="after {}".format)
def test_all_requests_are_served_despite_host_faults(config, fault, skip):
    serving = with_copies(LONG, OTHER, config=config)
    serving.faults.arm(fault, skip=skip, count=2)
    requests = {serving.submit(prompt): prompt for prompt in (LONG, OTHER, [*LONG[:8], *OTHER[:9]])}

    serving.run()

    assert [serving.tokens(request) for request in requests] == [
        serving.expected(prompt, max_new_tokens=4) for prompt in requests.values()
    ]
    assert serving.flush_frees_all()


@pytest.mark.parametrize(("skip", "pool"), [(0, "full"), (1, "swa")], ids=["full", "swa"])
def test_request_does_not_wait_for_a_refused_load(skip, pool):
    serving = with_copies(LONG)
    serving.faults.arm("pool.refuses", skip=skip)
    before = len(serving.passes)

    received = serving.serve(LONG)

    [planned] = serving.log.of(LoadPlanned)
    assert ([refused.pool for refused in serving.log.of(Refused)], planned.job, planned.length) == ([pool], 0, 0)
    assert (serving.passes[before][0], received.tokens) == ((2, 0, 16), serving.expected(LONG, max_new_tokens=4))


def test_request_alone_waits_for_backups_of_evicted_pages():
    """The other request has ended in the pass in flight, and its pages are being copied."""
    store = ManualStore()
    config = replace(HOSTED_FULL_ONLY, full_pages=8, host_policy="write_back", overlap=True)
    serving = serving_with_host(replace(config, new_token_ratio=0.01, new_token_ratio_floor=0.01), store)
    serving.submit(OTHER[:15], max_new_tokens=2)
    alone = serving.submit(LONG[:15])

    serving.until(Finished)
    is_copied = bool(store.begun)
    finish(serving, store)

    assert (is_copied, serving.tokens(alone)) == (True, serving.expected(LONG[:15], max_new_tokens=4))


END: dict[str, Callable[[Serving, int], None]] = {
    "abort": lambda serving, request: serving.engine.abort(request),
    "timeout": lambda serving, _: serving.clock.advance(100),
}


@pytest.mark.parametrize("reason", END)
def test_request_ended_while_loading_frees_its_own_units_at_once(reason):
    serving, _ = with_manual_store(LONG, config=replace(HOSTED, request_timeout_ms=100))
    request = start_loading(serving, LONG)
    END[reason](serving, request)

    serving.step()

    assert (serving.reason(request), serving.engine.memory.table.rows.num_free, serving.free) == (
        reason,
        4,
        {"full": 12, "swa": 10},
    )


@pytest.mark.parametrize("reason", END)
@pytest.mark.parametrize("ending", ["end", "fail"])
def test_load_of_an_ended_request_completes(reason, ending):
    serving, store = with_manual_store(LONG, config=replace(HOSTED, request_timeout_ms=100))
    request = start_loading(serving, LONG)
    END[reason](serving, request)
    serving.step()
    has_work = serving.engine.has_work
    {"end": store.end, "fail": store.fail}[ending](*store.begun)

    serving.run()

    assert (has_work, serving.log.of(Loaded), serving.flush_frees_all(), host_free(serving)) == (
        True,
        [],
        True,
        {"host full": 32, "host swa": 24},
    )


def test_later_request_reuses_the_load_of_an_ended_request():
    serving, store = with_manual_store(LONG)
    serving.engine.abort(start_loading(serving, LONG))
    start_loading(serving, LONG)
    store.end(*store.begun)

    serving.run()

    assert (len(serving.log.of(LoadPlanned)), serving.tokens(3)) == (2, serving.expected(LONG, max_new_tokens=4))
    assert serving.log.of(LoadPlanned)[0].job == serving.log.of(LoadPlanned)[1].job


def test_request_paused_while_loading_waits_again():
    serving, store = with_manual_store(LONG)
    start_loading(serving, LONG)
    serving.engine.pause()
    paused = ids(serving)
    store.end(*store.begun)
    serving.step()
    serving.engine.resume()

    serving.run()

    assert (paused, serving.tokens(2)) == (
        {"waiting": [2], "loading": [], "running": []},
        serving.expected(LONG, max_new_tokens=4),
    )
    assert (serving.flush_frees_all(), host_free(serving)) == (True, {"host full": 32, "host swa": 24})


def test_abort_of_a_loading_request_discards_no_result():
    serving, store = with_manual_store(LONG, config=replace(HOSTED, overlap=True))
    serving.submit(SHORT, max_new_tokens=8)
    serving.submit(LONG)
    serving.step()
    serving.engine.abort(3)

    finish(serving, store)

    assert (serving.log.of(Discarded), serving.tokens(2)) == ([], serving.expected(SHORT, max_new_tokens=8))


# --- retraction


TIGHT = replace(HOSTED_FULL_ONLY, full_pages=7, new_token_ratio=0.1, new_token_ratio_floor=0.05)


def test_loading_request_is_retracted_and_served_later():
    serving, store = with_manual_store(LONG[:12], config=TIGHT)
    runs = serving.submit(SHORT, max_new_tokens=20)
    serving.step(2)
    loads = start_loading(serving, LONG[:12], max_new_tokens=8)
    held = hold(serving.engine.memory, "full", leaving=0)
    store.ends_on_poll = True

    retracted = serving.until(Retracted)
    release_held(serving.engine.memory, "full", held)
    serving.run()

    assert (retracted.request_id, serving.tokens(runs), serving.tokens(loads)) == (
        loads,
        serving.expected(SHORT, max_new_tokens=20),
        serving.expected(LONG[:12], max_new_tokens=8),
    )


def test_late_copy_delays_retraction():
    serving, store = with_manual_store(LONG[:12], config=TIGHT)
    serving.submit(SHORT, max_new_tokens=20)
    serving.step(2)
    start_loading(serving, LONG[:12])
    hold(serving.engine.memory, "full", leaving=0)

    serving.step(8)

    assert (serving.log.of(Retracted), ids(serving), len(store.begun)) == (
        [],
        {"waiting": [], "loading": [3], "running": [2]},
        2,
    )


def test_loaded_request_yields_when_no_other_can_run_and_is_served_later():
    """Two loads have ended, and no page is free."""
    serving, store = with_manual_store(LONG[:12], OTHER[:12], config=replace(HOSTED_FULL_ONLY, full_pages=8))
    for prompt in (LONG[:12], OTHER[:12]):
        start_loading(serving, [*prompt, 1, 2], max_new_tokens=3)
    held = hold(serving.engine.memory, "full", leaving=0)
    store.end(*store.begun)

    serving.step()
    yielded = [(one.request_id, one.by) for one in serving.log.of(GaveWay)]
    release_held(serving.engine.memory, "full", held)
    finish(serving, store)

    assert yielded == [(4, 3)]
    assert [serving.tokens(request) for request in (3, 4)] == [
        serving.expected([*prompt, 1, 2], max_new_tokens=3) for prompt in (LONG[:12], OTHER[:12])
    ]
