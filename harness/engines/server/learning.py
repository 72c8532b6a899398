"""The facts about a server before the first run: its own reports, and measured vocabulary, noise and capacity."""

import random
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server.answers import Model, Models, Tokenized
from swarden.harness.engines.server.apis import OK, Api, Wanted, from_page, object_at, read
from swarden.harness.engines.server.client import QUICK_S, Call, Reply
from swarden.harness.engines.server.comparison import compared
from swarden.harness.engines.server.config import LEARNED, MOST_TOKENS, ServerConfig
from swarden.harness.engines.server.process import MISSING, Connection
from swarden.harness.kit.dialects import SLEEP, WAKE
from swarden.harness.kit.settings import converted

SURE_TOKEN, MOST_TOKEN = 60, 20_000  # each vocabulary has it; the last tokens are often special ones
SAMPLE = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich: 1234567890; def naïve_façade(): λ → 北京 🦜"
PROMPTS, ANSWER_LEN = 6, 8
TIMES_NOISE = 10.0  # the tolerance is so many times the largest difference
NO_SLEEP = (400, MISSING, 405, 501)  # of a server that is made, or started, without
MOST_TEXTS = 16
MOST_SHARES = 5  # of the context, for the length of the probe


class Learned(NamedTuple):
    """The settings of all runs, and the largest difference of log-probabilities with the number of tokens compared.

    The server lacks the pages in `missing`: ops that would call them do nothing.
    """

    settings: Mapping[str, Any]
    noise: float | None
    tokens: int
    missing: Sequence[str] = ()

    @property
    def line(self) -> str:
        """What was measured, for people."""
        settings = self.settings
        facts = f"context {settings['max_context_len']}, blocks of {settings['block_size']}"
        facts += f", tokens to {settings['last_token']}"
        facts += f" of {settings['vocabulary']}" if settings["vocabulary"] else ""
        facts += f", room for {settings['capacity']}" if settings["capacity"] else ""
        if self.noise is None:
            judged = "without log-probabilities only tokens are compared"
        else:
            judged = f"log-probabilities differ by {self.noise:.1e} over {self.tokens} tokens, tolerance"
            judged += f" {settings['tolerance']:.1e}"
        missing = f"; it has no {', '.join(self.missing)}" if self.missing else ""
        return f"{facts}; {judged}; cold prompts to {settings['probe_len']} tokens{missing}"


def learned(connection: Connection, api: Api, asked: Mapping[str, Any]) -> Learned:
    """Ask a server that is idle; `asked` are settings of the user, which win.  Raises UsageError if it answers none."""
    reported = reported_by(connection, api)
    left_out = {*reported.pop("left_out", ()), *asked.get("left_out", ())}
    server = connection.server
    names = {"url": connection.address.shown, "launch": server.masked_restart, "header_names": [*server.headers]}
    reported["model"] = connection.address.secrets.masked(reported.get("model", ""))
    settings: dict[str, Any] = {"api": api.name, **names, **reported, **asked}
    settings["left_out"] = tuple(sorted(left_out))
    if "last_token" not in settings:
        settings["last_token"] = _last_token(connection, api, converted(settings, ServerConfig))
    config = converted(settings, ServerConfig)
    differences, texts = _differences(connection, api, config)
    settings.setdefault("texts", texts)
    noise = max(differences) if differences else None
    if noise is not None and "tolerance" not in asked:
        settings["tolerance"] = max(api.least_tolerance, TIMES_NOISE * noise)
    if "probe_len" not in asked:
        settings["probe_len"] = _capacity(connection, api, config)
    missing = []
    for act, path in api.dialect.acts.items():
        if act not in (SLEEP, WAKE):
            if not (reply := connection.act(api, act)).status:
                raise UsageError(f"{connection.address.shown}{path}: {reply.error}")
            missing += [path] if reply.status == MISSING else []
    if SLEEP in api.dialect.acts and "sleep" not in left_out and not _sleeps(connection, api):
        left_out.add("sleep")
        missing.append(api.dialect.acts[SLEEP])
    settings["left_out"] = tuple(sorted(left_out))
    described = {name: getattr(converted(settings, ServerConfig), name) for name in LEARNED}
    return Learned(described, noise, len(differences), missing)


def reported_by(connection: Connection, api: Api) -> dict[str, Any]:
    """The settings that the server reports; raises UsageError, which names the field that is none."""
    model = (object_at(connection.address, "/v1/models", Models).data or [Model()])[0]
    vocabulary = model.meta.n_vocab if model.meta and api.has_ids else None
    settings = api.learn(connection.address, model) | {"vocabulary": vocabulary}
    reported = {name: value for name, value in settings.items() if value is not None}
    if "max_context_len" in reported:
        reported["max_context_len"] = min(reported["max_context_len"], MOST_TOKENS)
    return reported


def _sleeps(connection: Connection, api: Api) -> bool:
    """Whether the server has a sleep, from which it wakes up; raises UsageError if one of the two calls fails."""
    asleep = awake = Reply(0)
    try:
        asleep = connection.act(api, SLEEP)
    finally:
        if asleep.status not in NO_SLEEP:  # SGLang dies of a call that wakes it up while it is awake
            awake = connection.act(api, WAKE)
    if asleep.status in NO_SLEEP:
        return False
    for act, reply in ((SLEEP, asleep), (WAKE, awake)):
        if reply.status != OK:
            where, error = f"{connection.address.shown}{api.dialect.acts[act]}", reply.error[:300]
            raise UsageError(f"{where}: status {reply.status}: {error}; leave it out with --set 'left_out=[\"sleep\"]'")
    return True


def _last_token(connection: Connection, api: Api, config: ServerConfig) -> int:
    """The largest token id of prompts: the last one of the vocabulary, or one that the server itself has made.

    No larger id is tried: a server need not survive a token that it does not have.
    """
    url = connection.address.shown
    [reply] = connection.replies(api, config, [Wanted([config.first_token], ANSWER_LEN)])
    answer = read(api, reply)
    if answer.reply.status != OK:
        why = f"in the API of {api.name}: {answer.reply.error[:300]}; name another with --api"
        raise UsageError(f"{url} answers no request {why}")
    if config.vocabulary:
        return min(config.vocabulary - 1, MOST_TOKEN)
    body = {"model": config.model, "prompt": SAMPLE, "content": SAMPLE}
    made = Call(connection.address).made("POST", "/tokenize", body, limit_s=QUICK_S)
    texts = [from_page(connection.address, "/tokenize", chunk, Tokenized) for chunk in made.chunks[:1]]
    ids = [SURE_TOKEN, *(token.id for token in answer.tokens), *(token for text in texts for token in text.tokens)]
    return min(max(ids), MOST_TOKEN)


def _differences(connection: Connection, api: Api, config: ServerConfig) -> tuple[list[float], tuple[str, ...]]:
    """Differences of log-probabilities between answers and their judges, alone and in a batch; and texts of answers."""
    draw = random.Random(0)
    low, high, longest = config.first_token, config.last_valid, max(2, config.max_context_len // 4)
    wanted = [
        Wanted([draw.randint(low, high) for _ in range(draw.randint(1, longest))], ANSWER_LEN, is_cold=True)
        for _ in range(PROMPTS)
    ]
    differences, characters = list[float](), set[str]()
    replies = [*connection.replies(api, config, wanted), *connection.replies(api, config, wanted, at_once=True)]
    for request, given in zip([*wanted, *wanted], replies, strict=True):
        answer, text, reply = read(api, given)
        if reply.status != 200:
            raise UsageError(f"{connection.address.shown} does not answer a valid request: {reply.error[:300]}")
        characters |= {*text}
        cold = connection.judge(api, config, request, [token.id for token in answer])
        if isinstance(cold, Reply):
            raise UsageError(f"{connection.address.shown} refuses to judge an answer: {cold.error[:300]}")
        differences += [
            abs(mine.logprob - other.logprob) for mine, other in zip(answer, cold, strict=False) if mine.id == other.id
        ]
        if (last := compared(answer, cold, 1.0, is_greedy=True)) is None or last.expected != last.answered:
            raise UsageError(f"{connection.address.shown} gives a new server's answer otherwise when it is asked again")
    texts = sorted(filter(str.isprintable, characters))[:MOST_TEXTS]
    return [number for number in differences if not isnan(number)], tuple(texts)


def _capacity(connection: Connection, api: Api, config: ServerConfig) -> int:
    """The longest cold prompt of those tried that the idle server answers without a preemption; 0 if none."""
    for share in range(1, MOST_SHARES):
        length = config.max_context_len // share - 1 - api.spare_len
        if connection.probe(api, config, length) == (length, 200, 0):
            return length
    return 0
