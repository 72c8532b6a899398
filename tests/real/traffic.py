"""Concurrent random traffic to a real server on loopback: completions, aborts, resets of the cache, pauses, sleeps.

A round runs concurrently; it ends when each of its requests has been answered or abandoned.
"""

import http.client
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from swarden.harness.kit.checkpoints import VOCABULARY
from tests.real.models import BLOCK

TIMEOUT_S = 240  # of one answer, on a busy machine
FIRST_TOKEN = 3  # behind the special ones
CLIENTS = 10
LENGTHS = (1, 20, BLOCK - 1, 2 * BLOCK, 3 * BLOCK + 1, 150)
NEW_TOKENS = (1, 4, 16, 40)


class ServerError(Exception):
    """An answer with another status than OK."""


class Completion(NamedTuple):
    """A request; one with `events` is abandoned after so many events of its stream."""

    prompt: Sequence[int]
    max_tokens: int
    priority: int
    n: int
    events: int | None


class Api(NamedTuple):
    """Requests of a server, the tokens of an answer, the metric of preemptions, and calls beside a round, in turns.

    A query is the body of a call, too.
    """

    path: str
    body: Callable[[Completion], Mapping[str, Any]]
    num_tokens: Callable[[Any], int]
    preemptions: str
    calls: Sequence[Sequence[str]]


def _of_vllm(wanted: Completion) -> Mapping[str, Any]:
    fields = {"prompt": wanted.prompt, "max_tokens": wanted.max_tokens, "priority": wanted.priority, "n": wanted.n}
    return {**fields, "temperature": 1.0, "ignore_eos": True}


def _of_sglang(wanted: Completion) -> Mapping[str, Any]:
    sampling = {"max_new_tokens": wanted.max_tokens, "n": wanted.n, "temperature": 1.0, "ignore_eos": True}
    return {"input_ids": wanted.prompt, "sampling_params": sampling, "priority": wanted.priority}


def _num_tokens(answer: Any) -> int:
    return sum(one["meta_info"]["completion_tokens"] for one in (answer if isinstance(answer, list) else [answer]))


OF_VLLM = Api(
    *("/v1/completions", _of_vllm, lambda answer: int(answer["usage"]["completion_tokens"])),
    "vllm:num_preemptions_total",
    (
        ("/reset_prefix_cache",),
        ("/pause?mode=keep", "/resume"),
        ("/sleep?level=1&mode=wait", "/wake_up"),
        ("/reset_prefix_cache?reset_running_requests=true",),
    ),
)
OF_SGLANG = Api(
    *("/generate", _of_sglang, _num_tokens, "sglang:num_retracted_requests_total"),
    (
        ("/pause_generation?mode=retract", "/continue_generation"),
        ("/flush_cache?timeout=60",),  # waits for the end of the round
        ("/pause_generation?mode=in_place", "/continue_generation"),
    ),
)


class Client:
    """The traffic to one server. `answered` counts the requests by their ends, and the calls by their paths."""

    def __init__(self, port: int, api: Api, seed: int) -> None:
        self._port, self._api, self._random = port, api, random.Random(seed)
        self._prompts: list[Sequence[int]] = []
        self.answered: Counter[str] = Counter()

    def serve(self, num_rounds: int, calls: Sequence[Sequence[str]] | None = None, *, has_aborts: bool = True) -> None:
        """Make so many rounds, each beside some calls of the server's own functions.

        Raises ServerError, OSError or HTTPException if the server does not answer a request.
        """
        calls = self._api.calls if calls is None else calls
        with ThreadPoolExecutor(CLIENTS + 1) as threads:
            for number in range(num_rounds):
                ends = [threads.submit(self._complete, self._drawn(has_aborts)) for _ in range(CLIENTS)]
                called = threads.submit(self._call_all, calls[number % len(calls)])
                self.answered.update(end.result() for end in ends)
                called.result()

    def num_preemptions(self) -> int:
        """The number of preemptions, by the metrics of the server."""
        lines = self._call("GET", "/metrics").splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(self._api.preemptions))

    def is_ready(self) -> bool:
        try:
            self._call("GET", "/health")
        except (OSError, http.client.HTTPException, ServerError):
            return False
        return True

    def _drawn(self, can_be_aborted: bool) -> Completion:
        choose = self._random.choice
        before = choose(self._prompts)[: choose((BLOCK, 2 * BLOCK, BLOCK + 1, 100))] if self._prompts else ()
        own = [self._random.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(choose(LENGTHS))]
        self._prompts = [*self._prompts[-20:], [*before, *own]]
        events = choose((None, None, None, 1, 3)) if can_be_aborted else None
        return Completion(self._prompts[-1], choose(NEW_TOKENS), choose((0, 0, 1, 2)), choose((1, 1, 1, 2)), events)

    def _complete(self, wanted: Completion) -> str:
        """How the request ended."""
        body = {**self._api.body(wanted), "stream": wanted.events is not None}
        connection = self._connection()
        try:
            connection.request("POST", self._api.path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ServerError(response.read())
            if wanted.events is not None:
                for _ in range(2 * wanted.events):  # an event is a line and an empty one
                    response.readline()
                return "aborted"
            num_tokens = self._api.num_tokens(json.loads(response.read()))
            return "completed" if num_tokens == wanted.n * wanted.max_tokens else "ended early"
        finally:
            connection.close()

    def _call_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._call("POST", path)
            self.answered[path.partition("?")[0]] += 1

    def _call(self, method: str, path: str) -> str:
        connection = self._connection()
        try:
            body = json.dumps(dict(parse_qsl(urlsplit(path).query)))
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
            if response.status != http.client.OK:
                raise ServerError(f"{path}: {text}")
            return text
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
