"""Token ids of prompts: those that the server has, and what a server does with others."""

import json

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.ops import Step, Submit
from swarden.harness.engines.server.apis import api_of
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.process import Connection, Server
from tests.harness.servers.some_servers import server_with
from tests.harness.servers.test_misbehaving import answers, error

SIZE = 97  # of the vocabulary
VALID, INVALID = (Submit(tokens=(SIZE - 1,)), Step()), (Submit(tokens=(SIZE,)), Step())


def fives(sent, token=5):
    """Answers each request with this token, which has the same log-probability everywhere, and notes what is sent."""

    def answer(handler):
        body = json.loads(handler.body)
        sent.append(max(body["prompt"]))
        count = body["max_tokens"]
        choice = {"token_ids": [token] * count, "logprobs": {"token_logprobs": [-1.0] * count}}
        choice["prompt_logprobs"] = [{str(token): {"logprob": -1.0}}] * len(body["prompt"])
        answers(json.dumps({"choices": [choice]}).encode())(handler)

    return answer


def as_json(pages):
    return {path: json.dumps(page) for path, page in pages.items()}


def leaves(handler):
    handler.server.shutdown()
    handler.server.server_close()


SHOWN = {"/v1/models": {"data": [{"id": "m", "meta": {"n_vocab": SIZE}}]}}


@pytest.mark.parametrize(
    ("pages", "token", "asked", "last", "most"),
    [
        pytest.param(SHOWN, 5, {}, SIZE - 1, SIZE - 1, id="shown"),
        pytest.param(SHOWN, 5, {"last_token": 500}, 500, SIZE - 1, id="asked for others"),
        pytest.param({"/v1/models": {"data": [{}]}, "/tokenize": {"tokens": [5, 200]}}, 5, {}, 200, 200, id="made"),
        pytest.param({}, 300, {}, 300, 300, id="answered"),
        pytest.param({}, 5, {}, 60, 60, id="unknown"),
        pytest.param({"/v1/models": {"data": [{"meta": {"n_vocab": 1 << 20}}]}}, 5, {}, 20_000, 20_000, id="large"),
    ],
)
def test_tokens_that_a_server_gets_while_it_is_learned_are_its_own(pages, token, asked, last, most):
    sent: list[int] = []
    with server_with(fives(sent, token), pages=as_json(pages)) as url:
        found = learned(Connection(Server(url)), api_of("vllm"), {"max_context_len": 64, **asked})

    assert found.settings["last_token"] == last
    assert max(sent) <= most


@pytest.mark.parametrize("tokens", [7, "abc", [[1]], ["x"], [1.5]])
def test_tokenizer_with_another_form_is_one_line(tokens):
    with (
        server_with(fives([]), pages=as_json({"/tokenize": {"tokens": tokens}})) as url,
        pytest.raises(UsageError, match=r"/tokenize: .*tokens"),
    ):
        learned(Connection(Server(url)), api_of("vllm"), {"max_context_len": 64})


@pytest.mark.parametrize(
    ("ops", "answer", "fingerprint"),
    [
        (VALID, error, "valid_requests_are_answered/request/server_error"),
        (INVALID, error, "InvalidRequest/status_500"),
        (VALID, leaves, "ServerDied/unknown"),
        (INVALID, leaves, "InvalidRequest/ServerDied/unknown"),
    ],
)
def test_death_by_an_invalid_request_has_a_name_of_its_own(run, ops, answer, fingerprint):
    with server_with(answer) as url:
        failure = run(url, ops, vocabulary=SIZE, last_token=500).failure

    assert failure is not None
    assert failure.fingerprint == fingerprint
    assert ("an invalid request (token 97, and the server has tokens to 96)" in str(failure.error)) == (ops is INVALID)


def test_server_may_answer_an_invalid_request_which_is_not_judged(run):
    sent: list[int] = []
    with server_with(fives(sent)) as url:
        assert run(url, INVALID, vocabulary=SIZE, last_token=500).failure is None

    assert sent == [SIZE]
