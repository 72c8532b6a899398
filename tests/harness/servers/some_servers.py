"""Servers on the loopback address: swarden's own engine, and servers that misbehave."""

import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.model.runner import ModelForward
from swarden.fakes.front.faults import RandomFaults, ports_with
from swarden.fakes.front.http import Front
from swarden.fakes.front.loop import EngineThread
from swarden.harness.core.changes import Changes
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.engines.own.models import tiny_model
from swarden.harness.engines.server import target
from swarden.harness.engines.server.process import VARIABLE, Connection, Server

ONE = (Submit(), Step())
BEHIND_LEARNING = 9  # tokens of an answer
CONFIG = EngineConfig(
    page_size=16, full_pages=72, swa_pages=24, sliding_window=40, max_running_requests=8, max_context_len=1024
)


# The end of a server's program: it serves at the port that is its first argument.
SERVES = """
    def send(self, value, status=200):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

# Answers with the letter a, and dies of a request for at least so many tokens as its last argument says.
MORTAL = (
    """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send({"data": [{"id": "m"}]}, 200 if self.path in ("/health", "/v1/models") else 404)
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["max_tokens"] >= int(sys.argv[-1]):
            print("noise\\nRuntimeError: no more", file=sys.stderr, flush=True)
            os._exit(3)
        self.send({"choices": [{"text": "a" * asked["max_tokens"]}]})
"""
    + SERVES
)


def mortal(port: int | str, deadly: int) -> str:
    """The command that starts a server which dies."""
    return shlex.join([sys.executable, "-c", MORTAL, str(port), str(deadly)])


@contextmanager
def started_by_hand(port: int, deadly: int) -> Iterator[str]:
    """The URL of a server that dies and that swarden has not started."""
    connection = Connection(Server(f"http://127.0.0.1:{port}"))
    with subprocess.Popen(shlex.split(mortal(port, deadly)), stderr=subprocess.DEVNULL) as server:
        next(filter(None, (connection.is_healthy for _ in iter(int, 1))))
        try:
            yield connection.server.url
        finally:
            server.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    return port


@contextmanager
def our_server(
    mutant: str | None = None, *, config: EngineConfig = CONFIG, faults: Sequence[str] = ()
) -> Iterator[str]:
    """The URL of our engine with a tiny model, with a planted bug, and with faults that fire at random."""
    with Changes(mutant).planted(target_of("swarden")):
        forward = ModelForward(tiny_model("tiny-gemma3", config).decoder)
        armed_by_flush = RandomFaults(faults)
        engine = create_engine(config, ports=ports_with(armed_by_flush, forward))
        front = Front(EngineThread(engine, armed_by_flush), 0, eos=())
        Thread(target=front.serve, daemon=True).start()
        try:
            yield front.url
        finally:
            front.close()


@contextmanager
def server_with(
    answer: Callable[[BaseHTTPRequestHandler], None],
    *,
    metrics: Callable[[], str] | None = None,
    acts: int = 200,
    pages: Mapping[str, str] = {},
) -> Iterator[str]:
    """The URL of a server that is healthy, and answers each request for a completion so, and all others with `acts`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = {"/health": "", **pages} | ({"/metrics": metrics()} if metrics and self.path == "/metrics" else {})
            if self.path in shown:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(shown[self.path].encode(errors="surrogateescape"))
            else:
                self.empty(404)

        def do_POST(self) -> None:
            self.body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path in ("/v1/completions", "/generate", "/completion"):
                answer(self)
            elif self.path in pages:
                self.do_GET()
            else:
                self.empty(acts)

        def empty(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[str]:
    with server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def log_at(monkeypatch, url, ops, /, *, headers=None, **settings) -> OpLog:
    """The op-log of these ops on the server there."""
    monkeypatch.setenv(VARIABLE, "")
    target.connection.cache_clear()
    Server(url, headers=headers or {}).publish()
    return OpLog(Header(engine="server", configs=[{"last_token": 60, "model": "swarden", **settings}]), list(ops))
