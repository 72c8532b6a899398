"""Leaks behind the front, which show at rest."""

from dataclasses import replace
from itertools import repeat

import pytest

from swarden.harness.core.ops import Abort, Drain, Flush, Recipe, Step, Submit
from swarden.harness.engines.server.target import connection
from tests.harness.servers.front_bugs import front_bug
from tests.harness.servers.some_servers import CONFIG, our_server

# Of two requests the client of the second one leaves after three tokens, which is after its prompt was computed.
CANCELLED = (
    Submit(recipe=Recipe(path=(1,), stretch=20), max_new_tokens=8),
    Submit(recipe=Recipe(path=(2,), stretch=40), max_new_tokens=60),
    Submit(recipe=Recipe(path=(3,), stretch=40), max_new_tokens=60),
    Abort(request=2),
    Step(),
)
HOST = {"host_full_pages": 64, "host_swa_pages": 32}
STATES = {"state_pages": 24, "state_interval": 32}
IN_USE, WAITING = "server_is_empty_at_rest/server/still_in_use", "server_is_empty_at_rest/server/still_waiting"
LOST = "capacity_is_whole_at_rest/server/not_answered"


@pytest.mark.parametrize(
    ("bug", "found", "more"),
    [
        ("aborted-request-keeps-its-pages", IN_USE, {}),
        ("aborted-request-is-counted", WAITING, {}),
        ("abort-leaks-a-state", IN_USE, STATES),
        ("dropped-copy-leaks-a-host-page", IN_USE, HOST),
    ],
)
def test_leak_is_found_at_rest(run, bug, found, more):
    config, ops = replace(CONFIG, **more), (*CANCELLED, Flush(), *CANCELLED)
    with our_server(config=config) as url:
        healthy = run(url, ops).failure
    with front_bug(bug).planted(), our_server(config=config) as url:
        failure = run(url, ops).failure

    assert healthy is None
    assert failure is not None
    assert failure.fingerprint == found


@pytest.mark.parametrize(
    ("config", "ops"),
    [
        pytest.param(CONFIG, [op for _ in repeat(None, 12) for op in CANCELLED], id="in-a-run"),
        pytest.param(replace(CONFIG, full_pages=64), (*CANCELLED * 3, Drain()), id="at-its-end"),
    ],
)
def test_pool_that_shrinks_unseen_is_found_by_a_long_prompt(run, config, ops):
    with our_server(config=config) as url:
        healthy = run(url, ops, probe_len=1022).failure
        is_to_end = connection().has_failed
    with front_bug("abort-shrinks-the-pool").planted(), our_server(config=config) as url:
        failure = run(url, ops, probe_len=1022).failure

    assert healthy is None
    assert failure is not None
    assert failure.fingerprint == LOST
    assert (is_to_end, connection().has_failed) == (False, True)
