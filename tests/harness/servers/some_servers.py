"""Servers on the loopback address: swarden's own engine, and servers that misbehave."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.model.runner import ModelForward
from swarden.engine_under_test.ports import Ports
from swarden.harness.core.changes import Changes
from swarden.harness.core.registry import target_of
from swarden.harness.engines.own.models import tiny_model
from swarden.harness.front.http import Front
from swarden.harness.front.loop import EngineThread

CONFIG = EngineConfig(
    page_size=16, full_pages=72, swa_pages=24, sliding_window=40, max_running_requests=8, max_context_len=1024
)


@contextmanager
def our_server(mutant: str | None = None) -> Iterator[str]:
    """The URL of our engine with a tiny model, and with a planted bug."""
    with Changes(mutant).planted(target_of("swarden")):
        engine = create_engine(CONFIG, ports=Ports(forward=ModelForward(tiny_model("tiny-gemma3", CONFIG).decoder)))
        with served(Front(EngineThread(engine), 0, eos=())) as url:
            yield url


@contextmanager
def server_with(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The URL of a server that is healthy, and answers each request for a completion so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.empty(200 if self.path == "/health" else 404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/completions":
                answer(self)
            else:
                self.empty(200)

        def empty(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[str]:
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
