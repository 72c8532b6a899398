"""What a server says has types and limits, which are checked before anything is made of it."""

import re
from itertools import count
from math import inf
from threading import Event

import pytest

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.ops import Flush
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.engines.server import adapter, process
from swarden.harness.engines.server.answers import MOST_ELEMENTS, Choices, Part, WrongForm, decoded, figures_in
from swarden.harness.engines.server.apis import api_of
from swarden.harness.engines.server.client import Address, Call, Reply
from swarden.harness.engines.server.config import MOST_TOKENS
from swarden.harness.engines.server.learning import reported_by
from swarden.harness.engines.server.options import ServerOptions
from swarden.harness.engines.server.process import Connection, Server
from tests.harness.servers.some_servers import ONE, server_with
from tests.harness.servers.test_misbehaving import CHUNKED, answered, refused, sends


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("size", [b"-1", b"+1", b"0x1", b"1_0", b" 1", b"", b"F" * 99, b"FFFFFFFF"])
def test_size_of_a_chunk_is_digits_alone(kind, size):
    with server_with(sends(CHUNKED + size + b"\r\n", kind=kind)) as url:
        reply = Call(Address(url)).made("POST", "/v1/completions", {})

    assert reply == Reply(0, error=f"HTTPException: a chunk of size {size[:20]!r}")


def test_memory_that_is_missing_here_is_no_finding(run, monkeypatch):
    def read(*_):
        raise MemoryError

    monkeypatch.setattr(adapter, "read", read)
    with server_with(answered) as url, pytest.raises(TargetFault, match="more memory than there is"):
        run(url, ONE)


def test_all_pages_of_metrics_of_a_round_have_one_time():
    looks, until = count(), Event()

    def metrics():
        next(looks)
        until.wait()
        return "a 1"

    with server_with(refused, metrics=metrics) as url:
        connection = Connection(Server(url), looks_s=0.2)
        shown = [process.figures(connection), process.figures(connection)]
        until.set()

    assert (shown, next(looks)) == ([{}, {}], 1)


@pytest.mark.parametrize(
    ("api", "path", "page", "field"),
    [
        ("vllm", "/v1/models", '{"data": [{"max_model_len": 1%s}]}' % ("0" * 30), "data[0].max_model_len"),
        ("vllm", "/v1/models", '{"data": [{"max_model_len": "abc"}]}', "data[0].max_model_len"),
        ("vllm", "/v1/models", '{"data": [{"id": [1]}]}', "data[0].id"),
        ("vllm", "/metrics", 'vllm:cache_config_info{block_size="0"} 1', "block_size"),
        ("sglang", "/get_server_info", '{"page_size": -1}', "page_size"),
        ("llama.cpp", "/props", '{"default_generation_settings": {"n_ctx": "x"}}', "default_generation_settings.n_ctx"),
        ("openai", "/v1/models", '{"data": 7}', "data"),
    ],
)
def test_page_of_another_form_is_one_line_with_the_field(api, path, page, field):
    with (
        server_with(refused, pages={path: page}) as url,
        pytest.raises(UsageError, match=re.escape(f"{url}{path}: {field}: ")),
    ):
        reported_by(Connection(Server(url)), api_of(api))


@pytest.mark.parametrize(("reported", "used"), [('"256"', 256), ("null", None), ("10485760", MOST_TOKENS)])
def test_length_of_a_context_is_used_up_to_the_limit_of_prompts(reported, used):
    with server_with(refused, pages={"/v1/models": f'{{"data": [{{"max_model_len": {reported}}}]}}'}) as url:
        assert reported_by(Connection(Server(url)), api_of("vllm")).get("max_context_len") == used


def test_elements_of_an_answer_are_counted_before_they_are_made():
    with pytest.raises(WrongForm, match=f"more than {MOST_ELEMENTS} elements"):
        decoded(b'{"choices": [%s{}]}' % (b"{}," * (MOST_ELEMENTS // 2)), Choices[Part])


def test_metrics_that_are_no_finite_number_are_not_known():
    page = 'a 1\na{b="} 3"} 2.5\nb NaN\nc +Inf\nd 1e308\nd 1e308\n# e 1\nf x\ng{h="i"} -1\nj'

    assert figures_in(page) == {"a": 3.5, "g": -1.0}


def test_setting_of_a_wrong_type_is_one_line_before_the_server_is_asked():
    with pytest.raises(InvalidConfig, match="left_out is 7, want array"):
        ServerOptions("http://127.0.0.1:1").learn({"left_out": 7}, inf, print)


def test_act_may_answer_with_a_text(run):
    with server_with(refused, pages={"/reset_prefix_cache": "Cache flushed."}) as url:
        assert run(url, (*ONE, Flush(), *ONE)).failure is None
