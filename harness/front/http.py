"""swarden's own engine behind HTTP on loopback, for the tests of clients that drive servers."""

import select
import socket
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgspec

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.errors import ConfigError
from swarden.harness.front.dialects import PATHS, Request, request_of
from swarden.harness.front.loop import EngineDied, EngineThread, Served

MOST_BYTES = 1 << 22  # of the body of a request
HOST = "127.0.0.1"


class Front(ThreadingHTTPServer):
    """The server of one engine; `served` counts the prompt and output tokens for its metrics."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait to be accepted

    def __init__(self, loop: EngineThread, port: int, *, eos: Sequence[int]) -> None:
        super().__init__((HOST, port), Handler)
        self.loop = loop
        self.eos = eos
        self.num_tokens = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front
    ACTS: ClassVar = {
        "/reset_prefix_cache": "flush",
        "/flush_cache": "flush",
        "/pause": "pause",
        "/pause_generation": "pause",
        "/resume": "resume",
        "/continue_generation": "resume",
        "/sleep": "sleep",
        "/release_memory_occupation": "sleep",
        "/wake_up": "resume",
        "/resume_memory_occupation": "resume",
    }

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a round of requests would be thousands of lines."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if self.server.loop.error is not None:
            self._send(500, {"error": f"the engine has died: {self.server.loop.error!r}"})
        elif path == "/health":
            self._send(200, {})
        elif path == "/metrics":
            self._send(200, self.server.loop.call(lambda: metrics(self.server)))
        elif path == "/is_sleeping":
            self._send(200, {"is_sleeping": self.server.loop.is_paused})
        elif path in DESCRIBED:
            self._send(200, DESCRIBED[path](self.server.loop.engine.config))
        else:
            self._send(404, {"error": f"no page {path}"})

    def do_POST(self) -> None:
        path, size = self.path.partition("?")[0], int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= MOST_BYTES:
            self.close_connection = True
            self._send(413, {"error": f"{size} bytes, want 0 to {MOST_BYTES}"})
            return
        body = self.rfile.read(size)
        try:
            if path in self.ACTS:
                self._act(self.ACTS[path])
                self._send(200, {})
            elif path in PATHS:
                self._serve(request_of(path, body, self.server.eos))
            else:
                self._send(404, {"error": f"no page {path}"})
        except (msgspec.DecodeError, ConfigError) as error:
            self._send(400, {"error": str(error)})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except EngineDied as error:
            self.close_connection = True
            self._send(500, {"error": f"the engine has died: {error}"})

    def _act(self, name: str) -> None:
        loop = self.server.loop
        match name:
            case "flush":
                loop.flush()
            case "pause":
                loop.pause()
            case "resume":
                loop.resume()
            case "sleep":
                loop.sleep()

    def _serve(self, request: Request) -> None:
        loop = self.server.loop
        served = [loop.submit(asked) for asked in request.asked]
        if not request.is_streamed:
            for one in served:
                for _ in loop.pieces(one, self._is_gone):
                    pass
            if failed := [one for one in served if one.error_status]:
                self._send(failed[0].error_status, {"error": failed[0].ended})
            else:
                self._send(200, request.whole(served))
        else:
            self._stream(request, served)
        self.server.num_tokens += sum(len(one.known) for one in served)

    def _stream(self, request: Request, served: Sequence[Served]) -> None:
        """Send each new token at once; answers of one request come one after the other."""
        self.close_connection = True
        begun = False
        for index, one in enumerate(served):
            for new in self.server.loop.pieces(one, self._is_gone):
                if not new and not one.ended:  # a part of the prompt
                    continue
                if one.error_status and not begun:
                    self._send(one.error_status, {"error": one.ended})
                    return
                if not begun:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Connection", "close")
                    self.end_headers()
                    begun = True
                self.wfile.write(b"data: " + msgspec.json.encode(request.chunk(index, one, new)) + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def _is_gone(self) -> bool:
        """Whether the client has closed the connection; it sends nothing while it waits."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _send(self, status: int, value: dict[str, Any] | str) -> None:
        body = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def metrics(front: Front) -> str:
    """The figures at this moment, under the names that the three servers have for them."""
    engine = front.loop.engine
    running = len(engine.scheduler.active)
    waiting = front.loop.num_live - running
    ledgers = engine.memory.ledgers.ledgers
    used = max(1 - (one.num_free + engine.cache.evictable(one.name)) / one.capacity for one in ledgers)
    if engine.host is not None and engine.memory.host is not None:
        on_host = zip(engine.memory.host.ledgers, engine.host.backups.num_copied, strict=True)
        used = max(used, *(1 - (one.num_free + copied) / one.capacity for one, copied in on_host))
    names = {
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": waiting,
        "vllm:kv_cache_usage_perc": used,
        "vllm:num_preemptions_total": front.loop.num_retractions,
        "vllm:generation_tokens_total": front.num_tokens,
        "sglang:num_running_reqs": running,
        "sglang:num_queue_reqs": waiting,
        "sglang:token_usage": used,
        "sglang:num_retracted_reqs": front.loop.num_retractions,
        "llamacpp:requests_processing": running,
        "llamacpp:requests_deferred": waiting,
        "llamacpp:tokens_predicted_total": front.num_tokens,
    }
    config = engine.config
    tokens = config.page_size * max(one.capacity for one in ledgers)
    labels = f'block_size="{config.page_size}",kv_cache_size_tokens="{tokens}"'
    names[f'vllm:cache_config_info{{{labels},sliding_window="{config.sliding_window}"}}'] = 1
    return "".join(f"{name} {value}\n" for name, value in names.items())


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


DESCRIBED = {"/v1/models": _openai_models, "/get_server_info": _sglang_info, "/props": _llama_properties}
