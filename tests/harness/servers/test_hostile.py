"""Answers that no honest server gives, with random changes: they are refused, or their parts have their types."""

import json
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server.answers import Token
from swarden.harness.engines.server.apis import APIS, Wanted, read
from swarden.harness.engines.server.client import Reply
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.learning import reported_by
from swarden.harness.engines.server.process import Connection, Server, figures
from swarden.harness.kit.settings import converted
from tests.harness.servers.some_servers import server_with

ROUNDS = 8
ENTRY = {"5": {"logprob": -0.1, "rank": 1, "decoded_token": "a"}, "6": {"logprob": -3.0}}
SCORED = [[-0.1, 5, "a"], [-0.2, 6, None]]
LOGPROBS = {"token_logprobs": [-0.1, None], "top_logprobs": [{"token_id:5": -0.1}, {"token_id:6": -0.2}]}
CHOICE = {"text": "ab", "token_ids": [5, 6], "logprobs": LOGPROBS, "prompt_logprobs": [None, ENTRY, ENTRY]}
META = {f"{part}_{kind}_logprobs": SCORED for part in ("input", "output") for kind in ("token", "top")}
META |= {"input_top_logprobs": [None, SCORED], "output_top_logprobs": [SCORED, None]}
PROBABILITY = {"id": 5, "token": "a", "logprob": -0.1, "top_logprobs": [{"id": 5, "logprob": -0.1}]}
PAGES: dict[str, Any] = {
    "/v1/models": {"data": [{"id": "m", "max_model_len": 256}]},
    "/get_server_info": {"model_path": "m", "page_size": 16, "context_length": 256, "max_total_num_tokens": 4096},
    "/props": {"default_generation_settings": {"n_ctx": 256}, "total_slots": 4},
    "/is_sleeping": {"is_sleeping": False},
    "/v1/completions": {"choices": [CHOICE]},
    "/generate": {"text": "ab", "meta_info": META},
    "/completion": {"content": "ab", "completion_probabilities": [PROBABILITY], "stop": True},
}
METRICS = """vllm:num_requests_running{model="m"} 0
vllm:cache_config_info{block_size="16",kv_cache_size_tokens="4096",sliding_window="None"} 1
vllm:num_preemptions_total """
STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 8, 1e308, 2**31, 10**30, 0.5, "", "x", "5", "256", "null", "²", "\ud800", "\x1b[31m\n"),
    *([], {}, [[]], [None], {"": {}}, {"5": None}, {"error": "x"}, {"error": {"code": True}}, "x" * 5000, [1] * 999),
)
FIGURES = ("NaN", "+Inf", "-1e308", "1_0", "9" * 5000, "}" * 99, " {" * 999, '{a="' * 999)
HEADS = ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "HTTP/1.1 100 Continue", "HTTP/1.1 2²0 \x1b[31m", "x", "")


def changed(draw: Random, value: Any) -> Any:
    """The value with one part of it replaced, or repeated."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.15:
        return draw.choice(STRANGE)
    copy = value.copy()
    if isinstance(copy, list) and draw.random() < 0.1:
        return copy * 2
    key = draw.choice([*copy]) if isinstance(copy, dict) else draw.randrange(len(copy))
    return copy | {key: changed(draw, copy[key])} if isinstance(copy, dict) else [changed(draw, copy[key]), *copy[1:]]


def said(draw: Random, path: str) -> bytes:
    """What a page or an answer says, with changes of its values and of its text."""
    value = PAGES[path]
    for _ in range(draw.randrange(3)):
        value = changed(draw, value)
    text = json.dumps(value).encode()
    begin, end = text[: (place := draw.randrange(len(text)))], text[place:]
    broken = [begin, begin + draw.randbytes(3) + end, text.replace(b"{", b'{"index":0,'), text * 2, b"[" * 9999]
    return draw.choice([text] * 9 + broken + [text.replace(b"0.1", b"1e999"), text.replace(b"256", b"NaN")])


@pytest.mark.parametrize("api", APIS.values(), ids=[*APIS])
def test_hostile_answers_are_refused_or_of_their_types(api):
    config, wanted, accepted, draw = ServerConfig(api=api.name), Wanted([4], 2), 0, Random(api.name)

    def answer(handler):
        text, head = said(draw, handler.path), "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"
        head = draw.choice(["HTTP/1.1 200 OK", head] * 9 + [*HEADS])
        body = b"data: %s\n\ndata: [DONE]\n\n" % text if "stream" in head else text
        handler.wfile.write(head.encode() + b"\r\n\r\n" + body)

    for _ in range(ROUNDS):
        pages = {path: said(draw, path).decode(errors="surrogateescape") for path in PAGES}
        pages["/metrics"] = METRICS + draw.choice(FIGURES)
        with server_with(answer, pages=pages) as url:
            connection = Connection(Server(url))
            with suppress(UsageError):
                accepted += converted(reported_by(connection, api), ServerConfig).block_size
                connection.resume(api)
            assert all(abs(number) <= 1e308 for number in figures(connection).values())
            [given] = connection.replies(api, config, [wanted])
            (tokens, _, reply), cold = read(api, given), connection.judge(api, config, wanted, [5, 6])
        for token in [*tokens, *([] if isinstance(cold, Reply) else cold)]:
            accepted += msgspec.convert(tuple(token), Token).id < 2**63
        assert reply.error.isprintable()
    assert accepted
