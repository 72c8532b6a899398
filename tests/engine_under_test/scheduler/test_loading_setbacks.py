"""Requests that wait for KV from the host: failures during a load, and retraction."""

from dataclasses import replace

import pytest

from swarden.invariants.events import Finished, GaveWay, LoadPlanned, Retracted
from tests.engine_under_test.builders import hold, release_held
from tests.engine_under_test.host.bench import HOSTED, HOSTED_FULL_ONLY, HOSTED_SWA_ONLY, WRITE_BACK, ManualStore
from tests.engine_under_test.host.serving import (
    finish,
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


def test_later_request_reuses_the_load_of_an_ended_request():
    serving, store = with_manual_store(LONG)
    serving.engine.abort(start_loading(serving, LONG))
    start_loading(serving, LONG)
    store.end(*store.begun)

    serving.run()

    assert (len(serving.log.of(LoadPlanned)), serving.tokens(3)) == (2, serving.expected(LONG, max_new_tokens=4))
    assert serving.log.of(LoadPlanned)[0].job == serving.log.of(LoadPlanned)[1].job


# --- retraction


TIGHT = replace(HOSTED_FULL_ONLY, full_pages=7, new_token_ratio=0.1, new_token_ratio_floor=0.05)


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
    yielded = [(event.request_id, event.by) for event in serving.log.of(GaveWay)]
    release_held(serving.engine.memory, "full", held)
    finish(serving, store)

    assert yielded == [(4, 3)]
    assert [serving.tokens(request) for request in (3, 4)] == [
        serving.expected([*prompt, 1, 2], max_new_tokens=3) for prompt in (LONG[:12], OTHER[:12])
    ]
