"""Answers that no honest server gives: they are refused, or all of their parts have types and limits."""

from contextlib import suppress

import msgspec
import pytest

from swarden.harness.core.errors import EngineGone, InvalidConfig
from swarden.harness.engines.server import client
from swarden.harness.engines.server.answers import Token, WrongForm
from swarden.harness.engines.server.apis import APIS, Wanted, read
from swarden.harness.engines.server.client import Reply
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.process import Connection, Server, figures
from swarden.harness.kit.settings import converted
from tests.harness.servers.hostile import hostile_server

ROUNDS = 6


@pytest.mark.parametrize("api", APIS.values(), ids=[*APIS])
def test_hostile_answers_are_refused_or_of_their_types(monkeypatch, api):
    monkeypatch.setattr(client, "QUICK_S", 5.0)
    config, wanted, accepted = ServerConfig(api=api.name), Wanted([4], 2), 0
    for seed in range(ROUNDS):
        with hostile_server(seed) as url:
            connection = Connection(Server(url))
            with suppress(WrongForm, InvalidConfig):
                known = {name: value for name, value in api.learn(connection.address).items() if value is not None}
                accepted += converted(known, ServerConfig).capacity < 2**40
            with suppress(EngineGone):
                connection.resume(api)
            assert all(abs(figure) < 1e309 for figure in figures(connection).values())
            [exchange] = connection.answers(api, config, [wanted])
            answer, cold = read(api, exchange.reply), connection.judge(api, config, wanted, [5, 6])
        for tokens in [answer.tokens, [] if isinstance(cold, Reply) else cold]:
            accepted += len(tokens)
            assert msgspec.convert([tuple(token) for token in tokens], list[Token]) is not None
            assert all(0 <= token.id < 2**63 for token in tokens)
        assert {type(answer.text), type(answer.reply.error)} == {str}
        assert answer.reply.error.isprintable()
    assert accepted
