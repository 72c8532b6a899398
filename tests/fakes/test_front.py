"""Our engine behind HTTP."""

import logging
import socket
import struct
from contextlib import ExitStack, closing
from itertools import count
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.front.faults import RandomFaults
from swarden.fakes.front.http import LIMITS, MOST_BYTES, Front
from swarden.fakes.front.loop import Asked, EngineThread
from swarden.invariants.events import FinishReason
from tests.harness.some_processes import wait_until

PATIENCE_S = 60.0


@pytest.mark.parametrize(("names", "status"), [((), 500), (("pool.refuses",), 503)])
def test_request_without_a_token_is_an_error_unless_there_are_faults(names, status):
    engine: Any = SimpleNamespace(has_work=False, submit=lambda *_, **__: 1)
    served = EngineThread(engine, RandomFaults(names)).submit(Asked([5], SamplingParams(4)))
    served.ended = FinishReason.OUT_OF_MEMORY

    assert served.error_status == status


def test_fault_is_armed_by_the_first_flush():
    engine: Any = SimpleNamespace(has_work=False, flush=lambda: None)
    faults = RandomFaults(["pool.refuses"])
    loop = EngineThread(engine, faults)
    crossings = range(1000)
    before = any(faults.fires("pool.refuses") for _ in crossings)
    loop.flush()

    assert not before
    assert any(faults.fires("pool.refuses") for _ in crossings)


class IdleEngine:
    """An engine that never answers; `submitted` and `aborted` have the ids of its requests."""

    has_work = False

    def __init__(self):
        self.submitted: SimpleQueue[int] = SimpleQueue()
        self.aborted: SimpleQueue[int] = SimpleQueue()
        self._ids = count(1)

    def submit(self, *_, **__):
        self.submitted.put(number := next(self._ids))
        return number

    def abort(self, number):
        self.aborted.put(number)


def front_of(engine):
    front = Front(EngineThread(engine), 0, eos=())
    Thread(target=front.serve, daemon=True).start()
    return closing(front)


def connected(front, request):
    client = socket.create_connection(front.url.removeprefix("http://").split(":"), PATIENCE_S)
    client.sendall(request)
    return client


def post(body, length=None):
    return b"POST /v1/completions HTTP/1.1\r\nContent-Length: %s\r\n\r\n%s" % (length or b"%d" % len(body), body)


@pytest.mark.parametrize("stream", [b"true", b"false"])
@pytest.mark.parametrize("linger", [(0, 0), (1, 0)], ids=["close", "reset"])
def test_all_requests_of_a_client_that_leaves_are_aborted(stream, linger):
    engine: Any = IdleEngine()
    with front_of(engine) as front:
        client = connected(front, post(b'{"prompt": [5], "n": 2, "stream": %s}' % stream))
        submitted = {engine.submitted.get(timeout=PATIENCE_S) for _ in range(2)}
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *linger))
        client.close()
        aborted = {engine.aborted.get(timeout=PATIENCE_S) for _ in range(2)}

    assert aborted == submitted


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(post(b"", "٣".encode()), 400, id="length-of-another-script"),
        pytest.param(post(b"", b"9" * 5000), 431, id="length-of-5000-digits"),
        pytest.param(post(b"", b"-1"), 400, id="negative-length"),
        pytest.param(post(b"", b"%d" % (MOST_BYTES + 1)), 413, id="long-body"),
        pytest.param(b"PUT /health HTTP/1.1\r\n\r\n", 405, id="method"),
        pytest.param(post(b'{"prompt": [5], "cache_salt": "\xff"}'), 400, id="no-unicode"),
        pytest.param(post(b'{"other": ' + b"[" * 99999), 400, id="deep"),
    ],
)
def test_bad_request_is_refused_without_a_line_in_the_log(request_, status, caplog):
    with front_of(IdleEngine()) as front, connected(front, request_) as client:
        answer = client.recv(20)

    assert int(answer.split()[1]) == status
    assert not caplog.records


def test_connections_behind_the_limit_wait(monkeypatch, caplog):
    monkeypatch.setitem(LIMITS, "connection_limit", 8)
    with front_of(IdleEngine()) as front, ExitStack() as clients:
        caplog.set_level(logging.WARNING, "waitress")
        for _ in range(8):
            clients.enter_context(connected(front, b"GET /hea"))
        wait_until(lambda: "reached the connection limit" in caplog.text)
