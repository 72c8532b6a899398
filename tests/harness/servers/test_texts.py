"""Servers whose answers are texts: a token that differs may be as likely as the one that was expected."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.replay import run_log
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.engines.server import target
from swarden.harness.engines.server.apis import api_of
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.process import Connection, Server
from tests.harness.servers.some_servers import SERVES, free_port, log_at, server_with

WRONG = "outputs_match_uncached_model/request/wrong_token_sampled"
# Answers first with a, then with b, and one token alone with a: but a new server with the letter that is given.
POISONED = (
    """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    number = 0
    def do_GET(self):
        self.send({}, 200 if self.path == "/health" else 404)
    def do_POST(self):
        most = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["max_tokens"]
        Handler.number += 1
        alone = "a" if Handler.number > 1 else sys.argv[2]
        self.send({"choices": [{"text": alone if most == 1 else "ab"[Handler.number > 1] * most}]})
"""
    + SERVES
)


@contextmanager
def texts(answer: Callable[[int, int], str]) -> Iterator[str]:
    """The URL of a server whose answers depend on the number of a request, and on how many tokens it asks for."""
    numbers = count()

    def send(handler):
        if text := answer(next(numbers), json.loads(handler.body)["max_tokens"]):
            handler.send_response(200)
            handler.end_headers()
            handler.wfile.write(json.dumps({"choices": [{"text": text}]}).encode())
        else:
            handler.send_error(500)

    with server_with(send) as url:
        yield url


def differs_from(letter):
    """The answer a, and then another one; one token alone is this letter."""
    return lambda number, most: letter if most == 1 else "ab"[number > 0] * most


def run_on(monkeypatch, url: str, **options):
    log = log_at(monkeypatch, url, (Submit(max_new_tokens=4), Step()), api="openai")
    Server(url, **options).publish()
    driver = run_log(log)
    target.connection().close()
    return driver.failure and driver.failure.fingerprint


@pytest.mark.parametrize(("alone", "expected"), [("b", WRONG), ("a", None)], ids=["wrong", "tie"])
def test_reference_says_whether_a_text_is_a_tie(monkeypatch, alone, expected):
    with texts(lambda _, most: "a" * most) as url, texts(lambda _, most: alone if most == 1 else "b" * most) as other:
        assert run_on(monkeypatch, url, reference=other) == expected


def test_reference_that_fails_says_nothing(monkeypatch):
    with (
        texts(lambda _, most: "a" * most) as url,
        texts(lambda _, most: "" if most == 1 else "b" * most) as other,
        pytest.raises(TargetFault, match=r"--reference: .* does not judge"),
    ):
        run_on(monkeypatch, url, reference=other)


@pytest.mark.parametrize(("alone", "expected"), [("b", WRONG), ("a", None)], ids=["wrong-cache", "tie"])
def test_new_server_says_whether_a_text_is_a_tie(monkeypatch, tmp_path, alone, expected):
    monkeypatch.chdir(tmp_path)
    port = free_port()
    command = shlex.join([sys.executable, "-c", POISONED, str(port), alone])

    assert run_on(monkeypatch, f"http://127.0.0.1:{port}", restart=command) == expected


@pytest.mark.parametrize(
    ("alone", "expected"),
    [("b", WRONG), ("a", None), ("", "valid_requests_are_answered/request/server_error")],
    ids=["wrong", "not-judged", "fails"],
)
def test_server_alone_does_not_say_that_a_text_is_right(monkeypatch, alone, expected):
    with texts(differs_from(alone)) as url:
        assert run_on(monkeypatch, url) == expected


def test_checkpoint_does_not_judge_texts(tmp_path):
    (tmp_path / "config.json").touch()
    with (
        texts(lambda _, most: "a" * most) as url,
        pytest.raises(UsageError, match="--reference: a checkpoint reads token ids, openai has texts; give a URL"),
    ):
        learned(Connection(Server(url, reference=str(tmp_path))), api_of("openai"), {})
