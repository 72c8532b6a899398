"""What a server tells of itself, and what is measured before the first run: its vocabulary, its noise, its capacity."""

import random
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server.adapter import compared
from swarden.harness.engines.server.apis import NOT_AS_TOLD, Api, Wanted, read
from swarden.harness.engines.server.client import Call, Reply
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.process import MISSING, Connection

LAST_TOKENS = (20_000, 2_000, 250, 120, 60)  # tried in this order
PROMPTS, ANSWER_LEN = 6, 8
TIMES_NOISE = 10.0  # the tolerance is so many times the largest difference
MOST_SHARES = 5  # of the context, for the length of the probe


class Learned(NamedTuple):
    """The settings of all runs, the largest difference of log-probabilities, and of how many tokens.

    The server has not the pages `missing`: calls of them do nothing.
    """

    settings: Mapping[str, Any]
    noise: float | None
    tokens: int
    missing: Sequence[str] = ()

    @property
    def line(self) -> str:
        """What was measured, for people."""
        told = self.settings
        known = f"context {told['max_context_len']}, blocks of {told['block_size']}, tokens to {told['last_token']}"
        known += f", room for {told['capacity']}" if told["capacity"] else ""
        if self.noise is None:
            judged = "without log-probabilities only tokens are compared"
        else:
            judged = f"log-probabilities differ by {self.noise:.1e} over {self.tokens} tokens, tolerance"
            judged += f" {told['tolerance']:.1e}"
        missing = f"; it has no {', '.join(self.missing)}" if self.missing else ""
        return f"{known}; {judged}; cold prompts to {told['probe_len']} tokens{missing}"


def learned(connection: Connection, api: Api, asked: Mapping[str, Any]) -> Learned:
    """Ask a server that is idle; `asked` are settings of the user, which win.  Raises UsageError if it answers none."""
    try:
        told = {name: value for name, value in api.learn(connection.address).items() if value is not None}
    except NOT_AS_TOLD as error:
        url = connection.address.shown
        raise UsageError(f"{url} has other pages than {api.name}: {error!r}; name another with --api") from error
    server = connection.server
    names = {"url": connection.address.shown, "launch": server.masked_restart, "header_names": [*server.headers]}
    settings: dict[str, Any] = {"api": api.name, **names, **told, **asked}
    if "last_token" not in settings:
        settings["last_token"] = _last_token(connection, api, ServerConfig(**settings))
    config = ServerConfig(**settings)
    differences = _differences(connection, api, config)
    noise = max(differences) if differences else None
    if noise is not None and "tolerance" not in asked:
        settings["tolerance"] = max(api.least_tolerance, TIMES_NOISE * noise)
    if "probe_len" not in asked:
        settings["probe_len"] = _capacity(connection, api, config)
    told = {name: getattr(ServerConfig(**settings), name) for name in ServerConfig.learned}
    missing = [path for act, path in api.acts.items() if connection.act(api, act).status == MISSING]
    return Learned(told, noise, len(differences), missing)


def _last_token(connection: Connection, api: Api, config: ServerConfig) -> int:
    """The largest token id of those tried that the server accepts."""
    error = ""
    for token in LAST_TOKENS:
        body = api.body(Wanted([token], 1), config.model)
        reply = Call(connection.address).made("POST", api.path, body, limit_s=120)
        if reply.status == 200:
            return token
        error = reply.error
    url = connection.address.shown
    raise UsageError(f"{url} answers no request in the API of {api.name}: {error[:300]}; name another with --api")


def _differences(connection: Connection, api: Api, config: ServerConfig) -> list[float]:
    """Differences of log-probabilities between answers and their judges: alone, and in a batch."""
    draw = random.Random(0)
    low, high, longest = config.first_token, config.last_token, max(2, config.max_context_len // 4)
    wanted = [
        Wanted([draw.randint(low, high) for _ in range(draw.randint(1, longest))], ANSWER_LEN, is_cold=True)
        for _ in range(PROMPTS)
    ]
    found: list[float] = []
    for one in [*connection.answers(api, config, wanted), *connection.answers(api, config, wanted, at_once=True)]:
        told, reply = read(api, one.reply)
        if reply.status != 200:
            raise UsageError(f"{connection.address.shown} does not answer a valid request: {reply.error[:300]}")
        cold = connection.judge(api, config, one.wanted, [token.id for token in told])
        if isinstance(cold, Reply):
            raise UsageError(f"{connection.address.shown} refuses to judge an answer: {cold.error[:300]}")
        found += [
            abs(mine.logprob - other.logprob) for mine, other in zip(told, cold, strict=False) if mine.id == other.id
        ]
        if (last := compared(told, cold, 1.0, is_greedy=True)) is None or last.want != last.told:
            raise UsageError(f"{connection.address.shown} gives a new server's answer otherwise when it is asked again")
    return [one for one in found if not isnan(one)]


def _capacity(connection: Connection, api: Api, config: ServerConfig) -> int:
    """The longest cold prompt of those tried that the idle server answers without a preemption; 0 if none."""
    for share in range(1, MOST_SHARES):
        length = config.max_context_len // share - 2
        if connection.probe(api, config, length) == (length, 200, 0):
            return length
    return 0
