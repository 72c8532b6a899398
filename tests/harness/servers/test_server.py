"""Servers that are driven over HTTP."""

import subprocess
import sys
from unittest.mock import ANY

import msgspec
import pytest

from swarden.fakes.front import http
from swarden.fakes.front.loop import EngineThread, text_of
from swarden.harness.core.ops import Abort, Flush, Pause, Recipe, Resume, Step, Submit
from swarden.harness.core.program import NoProgram
from swarden.harness.core.replay import Verdict, repeat
from swarden.harness.engines.own.models import VOCABULARY
from swarden.harness.engines.server import adapter
from swarden.harness.engines.server.adapter import ROUNDS_PER_PROBE, Round
from swarden.harness.engines.server.apis import APIS, Wanted, api_of, read
from swarden.harness.engines.server.client import Address, Call, Reply
from swarden.harness.engines.server.comparison import JudgedToken, compared
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.options import ServerOptions
from swarden.harness.engines.server.process import Connection, Server, api_at
from swarden.harness.engines.server.program import program_of
from swarden.harness.report.program import program_text
from tests.harness.servers.front_bugs import front_bug
from tests.harness.servers.some_servers import ONE, log_at, our_server, server_with
from tests.harness.servers.test_misbehaving import judged_by, never_judged, refused, two_tokens

WITH_TOKENS = [name for name in APIS if name != "openai"]
SHARED = Recipe(path=(0, 0, 0, 0), stretch=10)
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
        client.write_text(program_text(program_of(log_at(monkeypatch, url, EVICTS, api=api)), "", ""))
        broken = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)
    with our_server() as url:
        healthy = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)

    assert broken.returncode == 1, broken.stderr
    assert broken.stdout.startswith("BUG: round 1: token 0 is ")
    assert (healthy.returncode, healthy.stdout) == (0, "no bug\n"), healthy.stderr


def test_client_judges_stop_strings(run, monkeypatch, tmp_path):
    ops, client = (Submit(recipe=SHARED, max_new_tokens=30, stop=(VOCABULARY,)), Step()), tmp_path / "client.py"
    with front_bug("stop-string-is-ignored").planted(), our_server() as url:
        [whole] = run(url, ops).systems[0].streamed
        log = log_at(monkeypatch, url, ops, stops_by_text=True, texts=(text_of([whole.token_ids[5]]),))
        client.write_text(program_text(program_of(log), "", ""))
        broken = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)
    with our_server() as url:
        healthy = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)

    assert broken.returncode == 1
    assert broken.stdout.startswith("BUG: the answer goes on behind the stop string "), broken.stderr
    assert (healthy.returncode, healthy.stdout) == (0, "no bug\n"), healthy.stderr


def test_client_judges_the_number_of_tokens(monkeypatch, tmp_path):
    client = tmp_path / "client.py"
    with server_with(judged_by(refused, two_tokens)) as url:
        ops = (Submit(max_new_tokens=1), Step())
        client.write_text(program_text(program_of(log_at(monkeypatch, url, ops)), "", ""))
        broken = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)

    assert (broken.returncode, broken.stdout) == (1, "BUG: 2 tokens, 1 were requested\n"), broken.stderr


@pytest.mark.parametrize(
    ("answer", "name"), [(refused, "capacity_is_whole_at_rest"), (never_judged, "valid_requests.*/refused_again")]
)
def test_failure_that_a_client_does_not_judge_is_no_program(monkeypatch, answer, name):
    with server_with(answer) as url, pytest.raises(NoProgram, match=f"a client does not judge {name}"):
        program_of(log_at(monkeypatch, url, ONE * ROUNDS_PER_PROBE, probe_len=5))


def test_client_pauses_the_server_and_sends_it_to_sleep(monkeypatch, tmp_path):
    other, client = Submit(recipe=Recipe(path=(1, 1), stretch=40), max_new_tokens=4), tmp_path / "client.py"
    again = (Submit(recipe=SHARED, max_new_tokens=8), other, Step())
    with front_bug("sleep-keeps-the-cache").planted(), our_server() as url:
        log = log_at(monkeypatch, url, (*again, Pause(), *again), concurrent=True, paused=True, sleeps=True)
        client.write_text(program_text(program_of(log), "", ""))
        broken = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)
    with our_server() as url:
        healthy = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)

    assert broken.stdout.startswith("BUG: round "), broken.stderr
    assert (healthy.returncode, healthy.stdout) == (0, "no bug\n"), healthy.stderr


@pytest.mark.parametrize(("api", "capacity"), [("vllm", 72 * 16), ("sglang", 72 * 16), ("llama.cpp", 1024)])
def test_settings_of_a_server_are_learned_from_its_pages(api, capacity):
    with our_server() as url:
        found = learned(Connection(Server(url)), api_of(api), {})

    assert (found.settings["max_context_len"], found.settings["capacity"]) == (1024, capacity)
    assert found.settings["window"] == (40 if api == "vllm" else 0)
    assert found.settings["last_token"] == 60  # the server has answered no larger one
    assert found.settings["probe_len"] == 1023 - api_of(api).spare_len
    assert found.noise is not None
    assert found.noise <= found.settings["tolerance"] == api_of(api).least_tolerance


def test_api_is_found_by_its_pages():
    with our_server() as url:
        assert api_at(Address(url)) == "vllm"
    with server_with(lambda _: None) as url:
        assert api_at(Address(url)) == "openai"


@pytest.mark.parametrize("api", ["vllm", "sglang"])
@pytest.mark.parametrize("num_tokens", [1, 4])
def test_answer_that_fills_the_context_is_judged(api, num_tokens):
    wanted = Wanted([3 + place % 50 for place in range(1024 - num_tokens)], num_tokens)
    with our_server() as url:
        address = Address(url)
        told, *_ = read(api_of(api), Call(address).made("POST", api_of(api).dialect.path, api_of(api).body(wanted, "")))
        cold = api_of(api).cold(address, wanted, [token.id for token in told], "")

    assert not isinstance(cold, Reply)
    assert compared(told, cold, 1e-3, is_greedy=True) == JudgedToken(num_tokens - 1, ANY, told[-1].id, told[-1].id)


def test_answer_is_judged_as_far_as_a_prompt_takes_it_and_generated_beyond():
    prompt, answer, room = [5] * 20, [6] * 10, 26

    def scored(handler):
        asked = msgspec.json.decode(handler.body)
        new = asked["sampling_params"]["max_new_tokens"]
        known = [[-1.0, token, None] for token in asked["input_ids"]]
        made = [[-2.0, 6, None]] * new
        meta = {"input_token_logprobs": known, "input_top_logprobs": [[logprob] for logprob in known]}
        meta |= {"output_token_logprobs": made, "output_top_logprobs": [[logprob] for logprob in made]}
        handler.send_response(200 if len(known) <= room else 400)
        handler.end_headers()
        handler.wfile.write(msgspec.json.encode({"meta_info": meta}))

    with server_with(scored) as url:
        cold = api_of("sglang").cold(Address(url), Wanted(prompt, 10), answer, "")

    assert not isinstance(cold, Reply)
    assert [token.logprob for token in cold] == [-1.0] * 3 + [-2.0] * 7


def test_prompt_continues_an_answer_with_tokens_beyond_the_largest_of_a_prompt(run):
    rounds: list[Round] = []
    again = Submit(recipe=Recipe(path=(1,), stretch=3, continues=0))
    with our_server() as url:
        driver = run(url, (Submit(max_new_tokens=30), Step()), last_token=30)
        driver.systems[0].port.on_round = rounds.append
        answer = driver.systems[0].streamed[0].token_ids
        driver.apply(again)
        driver.apply(Step())

    [sent] = [request for begun in rounds for request in begun.requests]
    prompt = sent.wanted.prompt
    assert max(answer) > 30 >= max(prompt[34:])
    assert (len(prompt), prompt[4:34]) == (37, list(answer))


@pytest.mark.parametrize("api", WITH_TOKENS)
@pytest.mark.parametrize("mutant", [None, "S9"])
def test_each_of_several_answers_is_judged(run, api, mutant):
    several = msgspec.structs.replace(EVICTS[-2], sequences=3, seed=1)
    with our_server(mutant) as url:
        driver = run(url, (*EVICTS[:-2], several, Step()), api=api)

    subjects = [violation.subject.id for violation in driver.failure.violations] if driver.failure is not None else []
    assert [output.request_id for output in driver.systems[0].streamed][-3:] == [4, 5, 6]
    assert len({tuple(output.token_ids) for output in driver.systems[0].streamed[-3:]}) > 1
    others = [6] if api == "llama.cpp" else [5, 6]  # answers that are generated again with the first seed may differ
    assert subjects == ([4, *others] if mutant is not None else [])


def test_client_may_leave_before_the_first_token(run):
    rounds: list[Round] = []
    ops = (*[Submit(max_new_tokens=200)] * 4, Abort(request=3), Step())
    with our_server() as url:
        driver = run(url, ops[:-1], concurrent=True)
        driver.systems[0].port.on_round = rounds.append
        driver.apply(Step())

    assert driver.failure is None
    assert [request.reply.is_cut for request in rounds[0].requests] == [False] * 3 + [True]
    assert [len(output.token_ids) for output in driver.systems[0].streamed] == [200] * 3 + [0]


@pytest.mark.parametrize("api", WITH_TOKENS)
def test_answer_ends_with_a_stop_text_and_leaves_nothing_behind(run, api):
    ops = (Submit(recipe=SHARED, max_new_tokens=30, stop=(VOCABULARY,)), Step())
    with our_server() as url:
        [whole] = run(url, ops, api=api).systems[0].streamed
        text = text_of([whole.token_ids[5]])
        driver = run(url, ops, api=api, stops_by_text=True, texts=(text,))

    with front_bug("stop-string-is-ignored").planted(), our_server() as url:
        ignored = run(url, ops, api=api, stops_by_text=True, texts=(text,)).failure

    assert ignored is not None
    assert ignored.fingerprint == "valid_requests_are_answered/request/goes_on"
    [ended] = driver.systems[0].streamed
    place = whole.token_ids.index(whole.token_ids[5])
    assert driver.failure is None
    assert len(whole.token_ids) == 30
    assert ended.token_ids == whole.token_ids[: place + 1]
    assert driver.counts.tally["server_is_empty_at_rest"].evaluated == 1


def test_texts_of_answers_are_learned_and_a_server_that_does_not_sleep_is_not_sent_to(monkeypatch):
    monkeypatch.setattr(http, "CALLS", {name: act for name, act in http.CALLS.items() if act is not EngineThread.sleep})
    with our_server() as url:
        found = learned(Connection(Server(url)), api_of("vllm"), {"left_out": ("seed",)})

    assert 1 < len(found.settings["texts"]) <= 16
    assert {*found.settings["texts"]} <= {*text_of(range(VOCABULARY))}
    assert found.settings["left_out"] == ("seed", "sleep")
    assert "it has no /sleep?level=1" in found.line


@pytest.mark.parametrize("api", ["vllm", "sglang"])
def test_server_that_has_slept_answers_as_before(run, api):
    ops = (Submit(recipe=SHARED, max_new_tokens=8), Step(), Pause(), Submit(recipe=SHARED, max_new_tokens=8), Step())
    with our_server() as url:
        driver = run(url, ops, api=api, sleeps=True)
    with front_bug("sleep-keeps-the-cache").planted(), our_server() as url:
        failure = run(url, ops, api=api, sleeps=True).failure

    assert driver.failure is None
    assert [output.request_id for output in driver.systems[0].streamed] == [2]
    assert failure is not None
    assert failure.fingerprint == "logits_match_uncached_model/request/wrong_logits"


def test_fault_behind_the_front_leads_to_a_bug_that_no_client_reaches(run):
    crowd = [Submit(recipe=Recipe(path=(number,), stretch=60), max_new_tokens=12) for number in range(6)]
    with our_server(faults=("pool.refuses",)) as url:
        healthy = run(url, (*crowd, Step()), concurrent=True).failure
    with our_server("B77", faults=("pool.refuses",)) as url:
        failure = run(url, (*crowd, Step()), concurrent=True).failure

    assert healthy is None
    assert failure is not None
    assert failure.fingerprint.startswith("valid_requests_are_answered/")


def test_interrupt_does_not_leave_the_server_paused(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with our_server() as url:
        driver = run(url, (Submit(), Submit()), concurrent=True, paused=True)
        monkeypatch.setattr(adapter, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            driver.apply(Step())
        body = api_of("vllm").body(Wanted([5, 6], 2), "swarden")

        assert Call(Address(url)).made("POST", "/v1/completions", body, limit_s=20).status == 200


def test_next_run_resumes_a_server_that_was_left_paused(run):
    with our_server() as url:
        Call(Address(url)).made("POST", "/pause", {})

        assert run(url, ONE).failure is None


def test_settings_are_learned_from_a_server_that_was_left_paused(monkeypatch):
    with our_server() as url:
        log_at(monkeypatch, url, ONE)
        Call(Address(url)).made("POST", "/pause", {})

        assert ServerOptions(url).learn({"probe_len": 0}, 1.0, print).settings["api"] == "vllm"
