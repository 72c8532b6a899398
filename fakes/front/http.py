"""swarden's own engine behind HTTP on loopback, for the tests of clients that drive servers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec
from waitress import create_server, wasyncore

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import ConfigError
from swarden.fakes.front.dialects import PATHS, Body, whole
from swarden.fakes.front.loop import EngineDied, EngineThread, Served
from swarden.harness.kit.dialects import ACTS, DATA, DONE, LLAMA_CPP, SGLANG, VLLM

HOST = "127.0.0.1"
MOST_BYTES = 1 << 22  # of the body of a request
MOST_CONNECTIONS = 128  # those behind them wait to be accepted
LIMITS = {
    "threads": MOST_CONNECTIONS,  # a request that waits for the engine keeps a thread
    "connection_limit": MOST_CONNECTIONS,
    "max_request_header_size": 1 << 12,  # a number of more than 4300 digits would be an internal error
    "max_request_body_size": MOST_BYTES,
    "inbuf_overflow": MOST_BYTES,  # no body is written to a file
    "cleanup_interval": 5,
    "channel_timeout": 30,  # seconds after which a silent connection without a request is closed
    "channel_request_lookahead": 1,  # reads on while a request is served, and so sees that its client has gone
    "asyncore_use_poll": True,
    "log_socket_errors": False,
}
METHODS = (EngineThread.flush, EngineThread.pause, EngineThread.resume, EngineThread.sleep, EngineThread.resume)
OF_ACTS = dict(zip(ACTS, METHODS, strict=True))
CALLS = {path.partition("?")[0]: OF_ACTS[act] for dialect in (VLLM, SGLANG) for act, path in dialect.acts.items()}
LAST_ANSWERS_S = 1.0  # for the ends of answers, when the server is closed
IsGone = Callable[[], bool]  # whether the client has closed its connection
Begin = Callable[[str, list[tuple[str, str]]], object]  # WSGI's start_response


class Front:
    """The server of one engine."""

    def __init__(self, loop: EngineThread, port: int, *, eos: Sequence[int]) -> None:
        self.loop = loop
        self.eos = eos
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._sockets: dict[int, Any] = {}
        self._server = create_server(self.answer, map=self._sockets, host=HOST, port=port, **LIMITS)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.effective_port}"

    def serve(self) -> None:
        """Serve until `close` is called, or the thread is interrupted."""
        wasyncore.loop(use_poll=True, map=self._sockets)

    def close(self) -> None:
        """End `serve`, which runs in another thread."""
        self._server.task_dispatcher.shutdown(timeout=LAST_ANSWERS_S)
        with suppress(OSError):  # another thread has woken up the loop already
            self._server.trigger.pull_trigger(lambda: wasyncore.close_all(self._sockets))

    def answer(self, environ: dict[str, Any], begin: Begin) -> Iterator[bytes]:
        """The WSGI application: the parts of the body of an answer."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        try:
            if method == "GET":
                yield _whole(begin, *self._page(path))
            elif method != "POST":
                yield _whole(begin, 405, {"error": f"{method} is neither GET nor POST"})
            elif path in CALLS:
                CALLS[path](self.loop)
                yield _whole(begin, 200, {})
            elif path in PATHS:
                body = msgspec.json.decode(environ["wsgi.input"].read(), type=PATHS[path])
                yield from self._served(body, environ["waitress.client_disconnected"], begin)
            else:
                yield _whole(begin, 404, {"error": f"no page {path}"})
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError) as error:
            yield _whole(begin, 400, {"error": str(error)})
        except EngineDied as error:
            yield _whole(begin, 500, {"error": f"the engine has died: {error}"})

    def _page(self, path: str) -> tuple[int, dict[str, Any] | str]:
        """The status and the content of a page."""
        if self.loop.error is not None:
            return 500, {"error": f"the engine has died: {self.loop.error!r}"}
        if path == "/health":
            return 200, {}
        if path == "/metrics":
            return 200, self.loop.call(lambda: metrics(self))
        if path == "/is_sleeping":
            return 200, {"is_sleeping": self.loop.is_paused}
        if path in DESCRIBED:
            return 200, DESCRIBED[path](self.loop.engine.config)
        return 404, {"error": f"no page {path}"}

    def _served(self, body: Body, is_gone: IsGone, begin: Begin) -> Iterator[bytes]:
        with self.loop.serving(body.asked(self.eos)) as served:
            if body.stream:
                yield from self._streamed(body, served, is_gone, begin)
            else:
                for answer in served:
                    for _ in self.loop.pieces(answer, is_gone):
                        pass
                failed = next((answer for answer in served if answer.error_status), None)
                if failed is not None:
                    yield _whole(begin, failed.error_status, {"error": failed.ended})
                else:
                    yield _whole(begin, 200, whole(body, served))

    def _streamed(self, body: Body, served: Sequence[Served], is_gone: IsGone, begin: Begin) -> Iterator[bytes]:
        """Each new token at once; answers of one request come one after the other."""
        has_begun = False
        try:
            for index, answer in enumerate(served):
                for new in self.loop.pieces(answer, is_gone):
                    if not new and not answer.ended:  # a part of the prompt
                        continue
                    if answer.error_status and not has_begun:
                        yield _whole(begin, answer.error_status, {"error": answer.ended})
                        return
                    if not has_begun:
                        begin("200 OK", [("Content-Type", "text/event-stream")])
                        has_begun = True
                    yield b"%b %b\n\n" % (DATA, msgspec.json.encode(body.chunk(index, answer, new)))
        except EngineDied as error:
            if has_begun:  # the connection is cut
                raise ConnectionAbortedError(str(error)) from error
            raise
        yield b"%b %b\n\n" % (DATA, DONE)


def _whole(begin: Begin, status: int, value: dict[str, Any] | str) -> bytes:
    """Begin an answer that has one part, and return that."""
    body = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    kind = "text/plain" if isinstance(value, str) else "application/json"
    begin(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return body


def metrics(front: Front) -> str:
    """The figures at this moment, under the names that the three servers have for them."""
    engine = front.loop.engine
    running = len(engine.scheduler.active)
    waiting = front.loop.num_live - running
    ledgers = engine.memory.ledgers.ledgers
    used = max(1 - (ledger.num_free + engine.cache.evictable(ledger.name)) / ledger.capacity for ledger in ledgers)
    if engine.host is not None and engine.memory.host is not None:
        on_host = zip(engine.memory.host.ledgers, engine.host.backups.num_copied, strict=True)
        used = max(used, *(1 - (ledger.num_free + copied) / ledger.capacity for ledger, copied in on_host))
    figures: dict[str, float] = {}
    for shown in (VLLM.metrics, SGLANG.metrics, LLAMA_CPP.metrics):
        figures |= {shown.running: running, shown.waiting: waiting, shown.usage: used}
        figures |= {shown.preemptions: front.loop.num_retractions, shown.progress[0]: front.loop.num_tokens}
    config = engine.config
    tokens = config.page_size * max(ledger.capacity for ledger in ledgers)
    labels = f'block_size="{config.page_size}",kv_cache_size_tokens="{tokens}"'
    figures[f'vllm:cache_config_info{{{labels},sliding_window="{config.sliding_window}"}}'] = 1
    return "".join(f"{name} {value}\n" for name, value in figures.items() if name)


def _openai_models(config: EngineConfig) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "swarden", "max_model_len": config.max_context_len}]}


def _sglang_info(config: EngineConfig) -> dict[str, Any]:
    pages = config.full_pages or config.swa_pages
    return {
        "model_path": "swarden",
        "page_size": config.page_size,
        "context_length": config.max_context_len,
        "enable_memory_saver": True,
        "max_total_num_tokens": pages * config.page_size,
    }


def _llama_properties(config: EngineConfig) -> dict[str, Any]:
    settings = {"n_ctx": config.max_context_len}
    return {"default_generation_settings": settings, "total_slots": config.max_running_requests}


DESCRIBED = {VLLM.page: _openai_models, SGLANG.page: _sglang_info, LLAMA_CPP.page: _llama_properties}
