"""Hostile answers: honest ones of all APIs, with random changes of their JSON, their text and their framing."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from threading import Thread
from typing import Any

LIKELY = {"5": {"logprob": -0.1, "rank": 1, "decoded_token": "a"}, "6": {"logprob": -3.0}}
SCORED = [[-0.1, 5, "a"], [-0.2, 6, None]]
CHOICE = {
    "index": 0,
    "text": "ab",
    "token_ids": [5, 6],
    "logprobs": {"token_logprobs": [-0.1, None], "top_logprobs": [{"token_id:5": -0.1}, {"token_id:6": -0.2}]},
    "prompt_logprobs": [None, LIKELY, LIKELY],
    "finish_reason": "length",
}
META = {"output_token_logprobs": SCORED, "output_top_logprobs": [SCORED, None]}
META |= {"input_token_logprobs": SCORED, "input_top_logprobs": [None, SCORED]}
PROBABILITY = {"id": 5, "token": "a", "logprob": -0.1, "top_logprobs": [{"id": 5, "logprob": -0.1}]}
METRICS = """# HELP vllm:num_requests_running x
vllm:num_requests_running{model="m"} 0
vllm:num_preemptions_total 1.0
vllm:cache_config_info{block_size="16",kv_cache_size_tokens="4096",sliding_window="None"} 1
"""
PAGES: Mapping[str, Any] = {
    "/v1/models": {"data": [{"id": "m", "max_model_len": 256}]},
    "/get_server_info": {"model_path": "m", "page_size": 16, "context_length": 256, "max_total_num_tokens": 4096},
    "/props": {"default_generation_settings": {"n_ctx": 256}, "total_slots": 4},
    "/is_sleeping": {"is_sleeping": False},
    "/v1/completions": {"choices": [CHOICE]},
    "/generate": {"index": 0, "text": "ab", "meta_info": META},
    "/completion": {"index": 0, "content": "ab", "completion_probabilities": [PROBABILITY], "stop": True},
}
STRANGE = (
    *(None, True, -1, 0, 8, 1e308, 2**31, 10**30, 0.5, "", "x", "5", "256", "null", "²", "\ud800", "\x1b[31m\n"),
    *([], {}, [[]], [None], {"": {}}, {"5": None}, {"error": "x"}, {"error": {"code": True}}, "x" * 5000, [1] * 999),
)
LINES = ("NaN", "+Inf", "-1e308", "1_0", "9" * 5000, "a{" + "} " * 999, '{a="' * 999, "vllm:cache_config_info" * 99)
SIZES = ("-1", "+5", "0x5", "1_0", "5 5", "", "F" * 99, "FFFFFFFF", "²", ";")


def changed(draw: Random, value: Any) -> Any:
    """The value with one part of it replaced, left out or repeated."""
    if isinstance(value, dict | list) and value and draw.random() < 0.85:
        copy = dict(value) if isinstance(value, dict) else list(value)
        key = draw.choice([*value]) if isinstance(value, dict) else draw.randrange(len(value))
        if draw.random() < 0.1:
            del copy[key]
        elif isinstance(copy, list) and draw.random() < 0.1:
            copy += copy[key:]
        else:
            copy[key] = changed(draw, value[key])
        return copy
    return draw.choice(STRANGE)


def body(draw: Random, path: str) -> bytes:
    if path == "/metrics":
        lines = METRICS.splitlines()
        lines[draw.randrange(4)] = lines[draw.randrange(4)].rpartition(" ")[0] + " " + draw.choice(LINES)
        return "\n".join(lines).encode()
    value = PAGES[path]
    for _ in range(draw.randrange(3)):
        value = changed(draw, value)
    text = json.dumps(value).encode()
    place = draw.randrange(len(text))
    return draw.choice(
        [text] * 9
        + [text[:place], text[:place] + draw.randbytes(3) + text[place:], text.replace(b"{", b'{"index":0,', 3)]
        + [text.replace(b"0.1", b"1e999"), text.replace(b"256", b"NaN"), b"[" * 9999, text + text]
    )


def answer(draw: Random, path: str) -> bytes:
    """All bytes that a server sends."""
    content, kind, more = body(draw, path), "application/json", ""
    if path in ("/v1/completions", "/generate", "/completion") and draw.random() < 0.5:
        content, kind = b"".join(b"data: " + one + b"\n\n" for one in (content, b"[DONE]")), "text/event-stream"
    if (framing := draw.randrange(12)) == 0:
        content = f"{draw.choice(SIZES)}\r\n".encode() + content
    elif framing < 3:
        content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    else:
        more = f"Content-Length: {draw.choice([len(content)] * 9 + [10**10, -1, 'x'])}\r\n"
    more = more or "Transfer-Encoding: chunked\r\n"
    status = draw.choice(["200 OK"] * 20 + ["500 E", "404 N", "999 X", "204 N", "100 Continue", "2²0 X", "\x1b[31m"])
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}\r\n".encode() + content


@contextmanager
def hostile_server(seed: int) -> Iterator[str]:
    """The URL of a server that answers every call with changes of its own."""
    draw = Random(seed)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as asked:
                    path = asked.readline().split()[1].decode().partition("?")[0]
                    length = 0
                    while (line := asked.readline().lower().strip()) != b"":
                        length = int(line.removeprefix(b"content-length:")) if line.startswith(b"content-l") else length
                    asked.read(length)
                    known = path == "/metrics" or path in PAGES
                    connection.sendall(answer(draw, path) if known else b"HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n")

        Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
