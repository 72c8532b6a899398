"""Servers that misbehave, and those that may do what they do."""

from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import count
from math import inf
from threading import Event

import pytest

from swarden.fakes.front import http
from swarden.fakes.front.loop import EngineDied
from swarden.harness.core.errors import UsageError
from swarden.harness.core.ops import Flush, Step, Submit
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.replay import Verdict, repeat, run_log
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.engines.server import adapter, client, process
from swarden.harness.engines.server.apis import api_of
from swarden.harness.engines.server.client import MOST_LINE, Address, Call, Reply
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.process import Connection, Server
from swarden.harness.nightly import shards
from swarden.harness.nightly.shards import _confirmed, close_lanes, settle
from swarden.harness.search.findings import Reporting
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from tests.harness.servers.some_servers import ONE, log_at, our_server, server_with

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def sends(head, piece=b"", *, kind="text/event-stream"):
    """Sends the end of a head and the begin of a body, then a piece without end."""

    def send(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s" % (kind.encode(), head))
        while piece:
            handler.wfile.write(piece)

    return send


def answers(body, *, kind="application/json"):
    return sends(b"\r\n" + body, kind=kind)


def error(handler):
    handler.send_error(500, "EngineDeadError")


def refused(handler):
    handler.send_error(400)


def silent(handler):
    handler.rfile.read(1)


def closed(handler):
    handler.connection.close()


def trickling(handler):
    answers(b"")(handler)
    while True:
        handler.wfile.write(b" ")
        Event().wait(0.1)


def judged_by(judge, answer):
    """Answers requests, but not those of the judge."""
    return lambda handler: (judge if b"prompt_logprobs" in handler.body else answer)(handler)


ONE_TOKEN = b'data: {"choices": [{"token_ids": [5]}]}\n\n'
answered = answers(b'{"choices": [{"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}}]}')
two_tokens = answers(b'{"choices": [{"token_ids": [5, 5], "logprobs": {"token_logprobs": [-1.0, -1.0]}}]}')
never_judged, silent_judge = judged_by(refused, answered), judged_by(silent, answered)


def long_answers_fail(handler):
    (error if b'"max_tokens":9' in handler.body else refused)(handler)


REFUSED = b'data: {"meta_info": {"finish_reason": {"type": "abort", "message": "full", "status_code": 503}}}\n\n'


def test_sglang_refuses_a_request_in_an_answer_of_status_200():
    with server_with(sends(b"\r\n" + REFUSED)) as url:
        reply = Call(Address(url)).made("POST", "/generate", {})

    assert (reply.status, reply.error) == (503, "full")


def unchanged():
    return "vllm:prompt_tokens_total 1\n"


def fail(acts, path, _):
    acts.append(path)
    raise EngineDied


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        *(
            pytest.param(answers(body), "unreadable", id=name)
            for name, body in (
                ("no-json", b"<html>"),
                ("nothing", b""),
                ("choice-of-nothing", b'{"choices": [{}]}'),
                ("choices-5", b'{"choices": 5}'),
                ("choices-null", b'{"choices": null}'),
                ("choices-of-text", b'{"choices": ["x"]}'),
                ("logprobs-of-text", b'{"choices": [{"token_ids": [5], "logprobs": "abc"}]}'),
                ("logprob-of-text", b'{"choices": [{"token_ids": [5], "logprobs": {"token_logprobs": ["abc"]}}]}'),
                ("token-of-text", b'{"choices": [{"token_ids": ["x"]}]}'),
                ("nested", b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
            )
        ),
        *(
            pytest.param(sends(head, piece), "unreadable", id=name)
            for name, head, piece in (
                ("endless line", b"\r\n", b"x" * MOST_LINE),
                ("endless lines", b"\r\n", b":\n" * MOST_LINE),
                ("endless objects", b"\r\n", ONE_TOKEN * 1000),
                ("endless body", b"Content-Length: 9999999999\r\n\r\n", b" " * MOST_LINE),
                ("endless interim answers", b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
                ("endless chunks", CHUNKED, b"1\r\n:\r\n" * 1000),
                ("endless trailers", CHUNKED + b"0\r\n", b"T: x\r\n" * 1000),
            )
        ),
        (closed, "unreadable"),
        pytest.param(sends(b"\r\n" + ONE_TOKEN), "unreadable", id="cut short"),
        (error, "server_error"),
        (never_judged, "refused_again"),
    ],
)
def test_server_that_misbehaves_is_found(run, monkeypatch, answer, code):
    monkeypatch.setattr(client, "MOST_CHUNKS", 1 << 10)
    monkeypatch.setattr(client, "MOST_LINES", 1 << 12)
    with server_with(answer) as url:
        failure = run(url, ONE).failure

    assert failure is not None
    assert failure.fingerprint == f"valid_requests_are_answered/request/{code}"


def test_answer_has_its_time_however_often_a_byte_comes():
    with server_with(trickling) as url:
        reply = Call(Address(url)).made("POST", "/v1/completions", {}, limit_s=0.5)

    assert reply == Reply(0, error="no whole answer in 0.5 s")


def test_call_is_cut_in_its_answer():
    with server_with(trickling) as url, ThreadPoolExecutor() as threads:
        call = Call(Address(url))
        made = threads.submit(call.made, "POST", "/v1/completions", {}, limit_s=inf)
        wait([made], timeout=0.5)
        call.cut()

        assert not made.result(timeout=30).chunks


def test_act_that_fails_is_found(run):
    with server_with(answered, acts=500) as url:
        failure = run(url, (Flush(), *ONE)).failure

    assert failure is not None
    assert failure.fingerprint == "valid_requests_are_answered/server/server_error"


@pytest.mark.parametrize("path", ["/sleep", "/wake_up"])
def test_sleep_that_fails_is_one_line(monkeypatch, path):
    monkeypatch.setitem(http.CALLS, path, partial(fail, [], path))
    with (
        our_server() as url,
        pytest.raises(UsageError, match=rf"{path}\S*: status 500: .*; leave it out with --set 'left_out"),
    ):
        learned(Connection(Server(url)), api_of("vllm"), {"last_token": 60})


def test_server_is_woken_up_though_its_sleep_fails(monkeypatch):
    acts: list[str] = []
    monkeypatch.setattr(http, "CALLS", {path: partial(fail, acts, path) for path in http.CALLS})
    with our_server() as url, pytest.raises(UsageError, match="status 500"):
        learned(Connection(Server(url)), api_of("vllm"), {"last_token": 60})

    assert acts[-2:] == ["/sleep", "/wake_up"]


def test_failure_in_some_runs_is_flaky(monkeypatch):
    calls = iter(range(99))
    with server_with(lambda handler: (error, closed, error)[next(calls)](handler)) as url:
        replays = repeat(log_at(monkeypatch, url, ONE))

    assert (replays.verdict, replays.failures, replays.is_nondeterministic) == (Verdict.FAILED, 3, False)

    with server_with(lambda handler: (refused, error, refused)[next(calls) - 3](handler)) as url:
        replays = repeat(log_at(monkeypatch, url, ONE))

    assert (replays.verdict, replays.failures, replays.is_nondeterministic) == (Verdict.FLAKY, 1, False)


def test_finding_that_does_not_fail_again_is_not_confirmed(monkeypatch, tmp_path):
    name = "valid_requests_are_answered/request/server_error"
    close_lanes()  # a worker of an earlier test does not know the server
    with server_with(refused) as url:
        finding = Finding(name, log_at(monkeypatch, url, ONE).as_regression(name), 0.0, "server")
        reported = Reporting(tmp_path, ShrinkBudget(cpu_seconds=60)).report(finding)
        again = _confirmed(finding.repeated(Verdict.FAILED, 1, 1), ProcessLimits(60.0))
    close_lanes()

    for one, runs in ((reported, 5), (again, 3)):
        assert one.why_flaky
        assert (one.failures, one.runs) == (0, runs)


def test_failure_that_needs_no_concurrency_is_shrunk_without_it_first(monkeypatch, tmp_path):
    name = "valid_requests_are_answered/request/server_error"
    with server_with(error) as url:
        log = log_at(monkeypatch, url, (Submit(), *ONE), concurrent=True).as_regression(name)
        reported = Reporting(tmp_path, ShrinkBudget(executions=1)).report(Finding(name, log, 0.0, "server"))

    assert [config["concurrent"] for config in reported.log.header.configs] == [False]
    assert "5 of 5 runs" in str(reported.story)


def test_other_failures_do_not_confirm_a_finding(monkeypatch):
    name = "valid_requests_are_answered/request/server_error"
    calls = count()
    close_lanes()  # a worker of an earlier test does not know the server
    with server_with(lambda handler: (closed, refused)[next(calls) % 2](handler)) as url:
        finding = Finding(name, log_at(monkeypatch, url, ONE).as_regression(name), 0.0, "server")
        again = _confirmed(finding.repeated(Verdict.FAILED, 1, 1), ProcessLimits(60.0))
    close_lanes()

    assert (again.verdict, again.failures, again.runs) == (Verdict.FLAKY, 0, 3)


def test_rate_of_a_failure_does_not_count_other_failures(monkeypatch):
    name = "valid_requests_are_answered/request/server_error"
    calls = count()
    with server_with(lambda handler: (closed, error, refused)[next(calls) % 3](handler)) as url:
        replays = repeat(log_at(monkeypatch, url, ONE).as_regression(name))

    assert (replays.verdict, replays.failures, replays.runs) == (Verdict.FLAKY, 1, 3)
    assert replays.fingerprints == (name,)


@pytest.mark.parametrize(("seconds", "num_ops"), [(0.0, 4), (900.0, 2)], ids=["spent", "enough"])
def test_shrink_of_a_night_has_a_bound(monkeypatch, seconds, num_ops):
    name = "valid_requests_are_answered/request/server_error"
    monkeypatch.setattr(shards, "SETTLE_S", seconds)
    close_lanes()
    ops = (*ONE, Submit(max_new_tokens=9), Step())
    with server_with(long_answers_fail) as url:
        finding = Finding(name, log_at(monkeypatch, url, ops).as_regression(name), 0.0, "server")
        [settled] = settle(finding, "server", ProcessLimits(60.0))
    close_lanes()

    assert len(settled.log.ops) == num_ops
    assert settled.fingerprint == name


def test_request_that_fails_at_rest_is_found(run):
    calls = count()
    with server_with(
        lambda handler: (error if next(calls) else refused)(handler), metrics=lambda: "vllm:num_requests_running 1\n"
    ) as url:
        failure = run(url, ONE).failure

    assert failure is not None
    assert failure.fingerprint == "valid_requests_are_answered/server/server_error"


def test_server_that_hangs_before_the_first_run_is_one_line(monkeypatch):
    monkeypatch.setattr(process, "ANSWER_S", 0.2)  # of each of its calls
    with server_with(silent) as url, pytest.raises(UsageError, match="answer a valid request: no whole answer"):
        learned(Connection(Server(url)), api_of("vllm"), {"last_token": 60})


def test_server_whose_metrics_grow_does_not_hang(run, monkeypatch):
    monkeypatch.setattr(adapter, "LOOK_S", 0.05)
    monkeypatch.setattr(adapter, "HANG_S", 0.1)
    looks = count()
    until = Event()

    def metrics():
        number = next(looks)
        if number > 4:
            until.set()
        return f"vllm:prompt_tokens_total {number}\n"

    def late(handler):
        until.wait()
        refused(handler)

    with server_with(late, metrics=metrics) as url:
        assert run(url, ONE).failure is None


def test_last_object_may_have_no_choices(run):
    usage = sends(b"\r\n" + ONE_TOKEN + b'data: {"choices": [], "usage": {}}\n\ndata: [DONE]\n\n')
    with server_with(judged_by(refused, usage)) as url:
        failure = run(url, ONE).failure

    assert failure is not None
    assert failure.fingerprint == "valid_requests_are_answered/request/refused_again"  # by the judge: it was read


def test_characters_are_no_tokens(run):
    with server_with(answers(b'{"choices": [{"text": "more characters than tokens"}]}')) as url:
        assert run(url, ONE, api="openai").failure is None


def test_server_may_refuse_a_request(run):
    with server_with(refused) as url:
        assert run(url, ONE).failure is None


@pytest.mark.parametrize(
    ("answer", "limit", "metrics"),
    [
        (silent, "SILENT_S", None),
        (silent, "HANG_S", unchanged),
        (silent_judge, "SILENT_S", None),
        (silent_judge, "LONE_HANG_S", unchanged),
    ],
)
def test_server_that_computes_nothing_hangs(run, monkeypatch, answer, limit, metrics):
    monkeypatch.setattr(adapter, limit, 0.2)
    with server_with(answer, metrics=metrics) as url:
        failure = run(url, ONE).failure

    assert failure is not None
    assert failure.fingerprint == "ServerHangs"


def test_dead_reference_is_not_blamed_on_the_server(monkeypatch):
    with server_with(answered) as url:
        log = log_at(monkeypatch, url, ONE)
        Server(url, reference="http://127.0.0.1:1").publish()
        with pytest.raises(TargetFault, match=r"--reference: http://127\.0\.0\.1:1 does not judge"):
            run_log(log)


def test_flush_without_its_page_is_not_done(run):
    with server_with(answered, acts=404) as url:
        assert run(url, (Flush(),)).counts.noops
