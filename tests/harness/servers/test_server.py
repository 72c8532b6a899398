"""Servers that are driven over HTTP."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from swarden.harness.core.driver import Driver
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Flush, Op, Pause, Recipe, Resume, Step, Submit
from swarden.harness.core.replay import Verdict, repeat, run_log
from swarden.harness.engines.server import adapter, target
from swarden.harness.engines.server.adapter import Judged, compared
from swarden.harness.engines.server.apis import APIS, Token, Wanted, api_of
from swarden.harness.engines.server.client import MOST_LINE, Address, Call
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.process import VARIABLE, Connection, Server, api_at
from swarden.harness.engines.server.program import program_of
from swarden.harness.report.program import program_text
from tests.harness.servers.some_servers import our_server, server_with

WITH_TOKENS = [name for name in APIS if name != "openai"]
SHARED = Recipe(path=(0, 0, 0, 0), stretch=10)
ONE = (Submit(), Step())
TRAFFIC = (
    Submit(recipe=SHARED, max_new_tokens=8),
    Submit(recipe=Recipe(path=(1, 1), stretch=40), max_new_tokens=4, seed=3, priority=1, namespace=1),
    Submit(recipe=SHARED, max_new_tokens=30),
    Abort(request=2),
    Step(),
    Flush(),
    Submit(recipe=Recipe(path=(0,), continues=0), max_new_tokens=4),
    Pause(),
    Step(),
    Resume(),
)
# A window that was evicted is read: two prompts, one that evicts their window, then one that begins like them.
EVICTS = (
    Submit(recipe=Recipe(path=(0, 0, 0, 1), stretch=10, cut=1)),
    Submit(recipe=SHARED, max_new_tokens=2),
    Submit(recipe=Recipe(path=(3,), stretch=1007), namespace=3),
    Submit(recipe=Recipe(path=(0, 0, 0, 0, 0), stretch=10), max_new_tokens=8),
    Step(),
)


@pytest.fixture
def run(monkeypatch):
    """Runs ops on a server: run(url, ops, **settings)."""

    def run(url: str, ops: Sequence[Op], **settings: object) -> Driver:
        return run_log(log_at(monkeypatch, url, ops, **settings))

    return run


def log_at(monkeypatch, url, ops, **settings) -> OpLog:
    """The op-log of these ops on the server there."""
    monkeypatch.setenv(VARIABLE, "")
    target.connection.cache_clear()
    Server(url).publish()
    return OpLog(Header(engine="server", configs=[{"last_token": 60, "model": "swarden", **settings}]), list(ops))


@pytest.mark.parametrize("api", WITH_TOKENS)
@pytest.mark.parametrize("concurrent", [False, True])
def test_healthy_server_passes(run, api, concurrent):
    with our_server() as url:
        driver = run(url, TRAFFIC, api=api, concurrent=concurrent, probe_len=1000)

    assert driver.failure is None
    tally = driver.counts.tally
    assert tally["logits_match_uncached_model"].evaluated == tally["server_is_empty_at_rest"].evaluated == 2


@pytest.mark.parametrize("api", WITH_TOKENS)
def test_wrong_answer_from_the_cache_is_found(run, api):
    with our_server("S9") as url:
        failure = run(url, EVICTS, api=api).failure

    assert failure is not None
    assert failure.fingerprints[0] == "logits_match_uncached_model/request/wrong_logits"


def test_replay_of_a_server_has_a_rate_and_is_not_called_nondeterministic(monkeypatch):
    with our_server("S9") as url:
        replays = repeat(log_at(monkeypatch, url, EVICTS))

    assert (replays.verdict, replays.failures, replays.is_nondeterministic) == (Verdict.FAILED, 3, False)


@pytest.mark.parametrize("api", WITH_TOKENS)
def test_finding_is_a_client_without_swarden(monkeypatch, tmp_path, api):
    client = tmp_path / "client.py"
    with our_server("S9") as url:
        client.write_text(program_text(program_of(log_at(monkeypatch, url, EVICTS, api=api))))
        broken = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)
    with our_server() as url:
        healthy = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)

    assert broken.returncode == 1, broken.stderr
    assert broken.stdout.startswith("BUG: round 1: token 0 is ")
    assert (healthy.returncode, healthy.stdout) == (0, "no bug\n"), healthy.stderr


@pytest.mark.parametrize("api", WITH_TOKENS)
def test_settings_of_a_server_are_learned_from_its_pages(api):
    with our_server() as url:
        found = learned(Connection(Server(url)), api_of(api), {})

    assert found.settings["max_context_len"] == 1024
    assert found.settings["last_token"] == 60  # of those tried, the last one within the vocabulary of 97
    assert found.settings["probe_len"] == 1022
    assert found.noise is not None
    assert found.noise <= found.settings["tolerance"] == 1e-3


def test_api_is_found_by_its_pages():
    with our_server() as url:
        assert api_at(Address(url)) == "vllm"
    with server_with(lambda _: None) as url:
        assert api_at(Address(url)) == "openai"


def garbage(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"<html>")


def another_object(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{}]}')


def endless_line(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * MOST_LINE)


def closed(handler):
    handler.connection.close()


def nothing(handler):
    handler.send_response(200)
    handler.end_headers()


def cut_short(handler):
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    handler.wfile.write(b'data: {"choices": [{"token_ids": [5]}]}\n\n')


def talkative(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"text": "more characters than tokens"}]}')


def error(handler):
    handler.send_error(500, "EngineDeadError")


def silent(handler):
    handler.rfile.read(1)


def refused(handler):
    handler.send_error(400)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (garbage, "unreadable"),
        (another_object, "unreadable"),
        (endless_line, "unreadable"),
        (closed, "unreadable"),
        (nothing, "unreadable"),
        (cut_short, "unreadable"),
        (error, "server_error"),
    ],
)
def test_server_that_misbehaves_is_found(run, answer, code):
    with server_with(answer) as url:
        failure = run(url, ONE).failure

    assert failure is not None
    assert failure.fingerprint == f"valid_requests_are_answered/request/{code}"


def test_characters_are_no_tokens(run):
    with server_with(talkative) as url:
        assert run(url, ONE, api="openai").failure is None


def test_paused_front_answers_when_it_resumes():
    with our_server() as url:
        address = Address(url)
        body = api_of("vllm").body(Wanted([5, 6], 2), "swarden")
        with ThreadPoolExecutor() as threads:
            Call(address).made("POST", "/pause", {})
            answer = threads.submit(Call(address).made, "POST", "/v1/completions", body)
            wait([answer], timeout=0.3)
            was_waiting = not answer.done()
            Call(address).made("POST", "/resume", {})

            assert answer.result().status == 200
    assert was_waiting


def test_server_may_refuse_a_request(run):
    with server_with(refused) as url:
        assert run(url, ONE).failure is None


def test_server_that_computes_nothing_hangs(run, monkeypatch):
    monkeypatch.setattr(adapter, "HANG_S", 1.0)
    with server_with(silent) as url:
        failure = run(url, ONE).failure

    assert failure is not None
    assert failure.fingerprint == "ServerHangs"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("127.0.0.1:8000", "want http://HOST:PORT"),
        ("http://user:hunter2@127.0.0.1:8000", "has a user or a query"),
        ("http://:hunter2@127.0.0.1:8000", "has a user or a query"),
        ("http://127.0.0.1:99999", "want http://HOST:PORT"),
        ("http://10.0.0.1:8000", "is not on this machine"),
    ],
)
def test_url_that_is_not_of_this_machine_is_refused(url, text):
    with pytest.raises(UsageError, match=text) as refused:
        Connection(Server(url))

    assert "hunter2" not in str(refused.value)


def test_secrets_of_the_launch_line_are_masked():
    command = (
        "env HF_TOKEN=abc http_proxy=abc serve --api-key abc abc --auth-token=abc -H 'Authorization: abc' --port 8000"
    )
    server = Server("http://127.0.0.1:1", f"{command} --max-num-batched-tokens 64 --tokenizer DIR")

    assert "abc" not in server.masked_restart
    assert server.masked_restart.endswith(" --port 8000 --max-num-batched-tokens 64 --tokenizer DIR")


def test_tokens_that_are_equally_likely_are_not_judged():
    mine = [Token(5, -1.0, 5, -1.0), Token(7, -0.5, 7, -0.5)]
    other = [Token(5, -1.0, 5, -1.0), Token(8, -0.5005, 8, -0.5005)]
    wrong = [Token(5, -1.0, 5, -1.0), Token(8, -0.6, 8, -0.6)]

    assert compared(mine, other, 1e-3, is_greedy=True) == Judged(0, 0.0, 5)
    found = compared(mine, wrong, 1e-3, is_greedy=True)
    assert found is not None
    assert (found.place, found.want) == (1, 8)
    assert compared(mine, wrong, 1e-3, is_greedy=False) == Judged(0, 0.0, 5)
