"""What a server reports of itself, and what is measured before the first run: vocabulary, noise and capacity."""

import random
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Annotated, Any, NamedTuple

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server.apis import NOT_OF_FORM, OK, SLEEP, WAKE, Api, Wanted, read, text_of
from swarden.harness.engines.server.client import QUICK_S, Address, Call, Reply, text_at
from swarden.harness.engines.server.comparison import compared
from swarden.harness.engines.server.config import MOST_TOKENS, ServerConfig
from swarden.harness.engines.server.process import MISSING, Connection

SURE_TOKEN, MOST_TOKEN = 60, 20_000  # which each vocabulary has; special tokens are often the last ones
SAMPLE = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich: 1234567890; def naïve_façade(): λ → 北京 🦜"
PROMPTS, ANSWER_LEN = 6, 8
TIMES_NOISE = 10.0  # the tolerance is so many times the largest difference
NO_SLEEP = (400, MISSING, 405, 501)  # of a server that is made, or started, without
MOST_TEXTS = 16
MOST_SHARES = 5  # of the context, for the length of the probe


class _Meta(msgspec.Struct):
    n_vocab: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)] = 0


class _Model(msgspec.Struct):
    meta: _Meta | None = None


class _Models(msgspec.Struct):
    """What /v1/models says of the vocabulary: that of llama.cpp does."""

    data: list[_Model] = []


class _Tokenized(msgspec.Struct):
    tokens: list[int] = []


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
        known = f"context {settings['max_context_len']}, blocks of {settings['block_size']}"
        known += f", tokens to {settings['last_token']}"
        known += f" of {settings['vocabulary']}" if settings["vocabulary"] else ""
        known += f", room for {settings['capacity']}" if settings["capacity"] else ""
        if self.noise is None:
            judged = "without log-probabilities only tokens are compared"
        else:
            judged = f"log-probabilities differ by {self.noise:.1e} over {self.tokens} tokens, tolerance"
            judged += f" {settings['tolerance']:.1e}"
        missing = f"; it has no {', '.join(self.missing)}" if self.missing else ""
        return f"{known}; {judged}; cold prompts to {settings['probe_len']} tokens{missing}"


def learned(connection: Connection, api: Api, asked: Mapping[str, Any]) -> Learned:
    """Ask a server that is idle; `asked` are settings of the user, which win.  Raises UsageError if it answers none."""
    try:
        described = {name: value for name, value in api.learn(connection.address).items() if value is not None}
        if api.has_ids:
            described["vocabulary"] = _vocabulary(connection.address)
    except NOT_OF_FORM as error:
        url = connection.address.shown
        raise UsageError(f"{url} has other pages than {api.name}: {error!r}; name another with --api") from error
    left_out = {*described.pop("left_out", ()), *asked.get("left_out", ())}
    server = connection.server
    names = {"url": connection.address.shown, "launch": server.masked_restart, "header_names": [*server.headers]}
    described |= {"model": connection.address.secrets.masked(str(described.get("model", "")))}
    settings: dict[str, Any] = {"api": api.name, **names, **described, **asked}
    settings["left_out"] = tuple(sorted(left_out))
    if "last_token" not in settings:
        settings["last_token"] = _last_token(connection, api, ServerConfig(**settings))
    config = ServerConfig(**settings)
    differences, texts = _differences(connection, api, config)
    settings.setdefault("texts", texts)
    noise = max(differences) if differences else None
    if noise is not None and "tolerance" not in asked:
        settings["tolerance"] = max(api.least_tolerance, TIMES_NOISE * noise)
    if "probe_len" not in asked:
        settings["probe_len"] = _capacity(connection, api, config)
    missing = []
    for act, path in api.acts.items():
        if act not in (SLEEP, WAKE):
            missing += [path] * (connection.act(api, act).status == MISSING)
    if SLEEP in api.acts and "sleep" not in left_out and not _sleeps(connection, api):
        left_out.add("sleep")
        missing.append(api.acts[SLEEP])
    settings["left_out"] = tuple(sorted(left_out))
    described = {name: getattr(ServerConfig(**settings), name) for name in ServerConfig.learned}
    return Learned(described, noise, len(differences), missing)


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
            where, error = f"{connection.address.shown}{api.acts[act]}", reply.error[:300]
            raise UsageError(f"{where}: status {reply.status}: {error}; leave it out with --set 'left_out=[\"sleep\"]'")
    return True


def _vocabulary(address: Address) -> int:
    """The number of token ids that the server says it has; 0: it does not."""
    models = msgspec.json.decode(text_at(address, "/v1/models") or "{}", type=_Models).data or [_Model()]
    return models[0].meta.n_vocab if models[0].meta else 0


def _last_token(connection: Connection, api: Api, config: ServerConfig) -> int:
    """The largest token id of prompts: the last one of the vocabulary, or one that the server itself has made.

    No larger id is tried: a server need not survive a token that it does not have.
    """
    url = connection.address.shown
    [exchange] = connection.answers(api, config, [Wanted([config.first_token], ANSWER_LEN)])
    answer, reply = read(api, exchange.reply)
    if reply.status != OK:
        why = f"in the API of {api.name}: {reply.error[:300]}; name another with --api"
        raise UsageError(f"{url} answers no request {why}")
    if config.vocabulary:
        return min(config.vocabulary - 1, MOST_TOKEN)
    body = {"model": config.model, "prompt": SAMPLE, "content": SAMPLE}
    made = Call(connection.address).made("POST", "/tokenize", body, limit_s=QUICK_S)
    try:
        texts = msgspec.convert(made.chunks[:1], list[_Tokenized])
    except msgspec.ValidationError as error:
        raise UsageError(f"{url}/tokenize: {error}; give a token id of its vocabulary, --set last_token=N") from error
    known = [SURE_TOKEN, *(token.id for token in answer), *(token for text in texts for token in text.tokens)]
    return min(max(known), MOST_TOKEN)


def _differences(connection: Connection, api: Api, config: ServerConfig) -> tuple[list[float], tuple[str, ...]]:
    """Differences of log-probabilities between answers and their judges, alone and in a batch; and texts of answers."""
    draw = random.Random(0)
    low, high, longest = config.first_token, config.last_valid, max(2, config.max_context_len // 4)
    wanted = [
        Wanted([draw.randint(low, high) for _ in range(draw.randint(1, longest))], ANSWER_LEN, is_cold=True)
        for _ in range(PROMPTS)
    ]
    differences, characters = list[float](), set[str]()
    for exchange in [*connection.answers(api, config, wanted), *connection.answers(api, config, wanted, at_once=True)]:
        answer, reply = read(api, exchange.reply)
        if reply.status != 200:
            raise UsageError(f"{connection.address.shown} does not answer a valid request: {reply.error[:300]}")
        characters |= {*text_of(reply)}
        cold = connection.judge(api, config, exchange.wanted, [token.id for token in answer])
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
        length = config.max_context_len // share - 2
        if connection.probe(api, config, length) == (length, 200, 0):
            return length
    return 0
