"""A failing run of a server as a client that needs no package: it sends the same requests and judges the answers."""

from pathlib import Path
from typing import Any

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.server.adapter import MOST_AT_ONCE, Round, RoundRequest
from swarden.harness.engines.server.apis import Api, api_of
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.kit.dialects import PAUSE, RESUME

NOT_JUDGED = (  # by a client: it has no new server, another judge, and does not look inside
    *("capacity_is_whole_at_rest", "CheckFailed"),
    "valid_requests_are_answered/request/refused_again",
)
SOURCE = Path(__file__).parent / "standalone/client.py"


def program_of(log: OpLog) -> Program:
    """The client program that shows the failure of a log; the log is run, because a prompt can continue an answer.

    Raises UsageError if it does not fail, NoProgram for a failure that a client does not judge.
    """
    config: ServerConfig = target_for(log.header).decode(log.header.configs[0])
    driver, rounds, api = driver_of(log.header), list[dict[str, Any]](), api_of(config.api)
    system: Any = driver.systems[0]
    system.port.on_round = lambda begun: rounds.append(_round(api, config.model, begun))
    for op in log.ops:
        driver.apply(op)
    if driver.failure is None:
        raise UsageError("the op-log does not fail on this server; nothing is written")
    if (name := driver.failure.fingerprint).startswith(NOT_JUDGED):
        raise NoProgram(f"a client does not judge {name}: replay the op-log on the server")
    constants = {
        "FOUND_AT": config.url,
        "LAUNCH": config.launch or "as it was started",
        "PATH": api.dialect.path,
        "ROUNDS": rounds,
        "CALLS_AT_ONCE": MOST_AT_ONCE if config.concurrent else 1,
        "HAS_IDS": api.has_ids,
        "TOLERANCE": config.tolerance,
        "EMPTY_AT_REST": [name for name in api.dialect.metrics.at_rest if name],
    }
    return Program(SOURCE, constants)


def _round(api: Api, model: str, begun: Round) -> dict[str, Any]:
    acts = api.dialect.acts
    return {
        "at_rest": [acts[act] for act in begun.at_rest],
        "paused": [acts[PAUSE], acts[RESUME]] if begun.is_paused else [],
        "calls": [{"path": acts[item]} if isinstance(item, str) else _call(api, model, item) for item in begun.items],
    }


def _call(api: Api, model: str, item: RoundRequest) -> dict[str, Any]:
    """A request of a round, and the same without the cache (for a client that stays)."""
    both = (item.wanted, item.wanted._replace(is_cold=True))
    body, cold = [msgspec.to_builtins(api.body(wanted, model)) for wanted in both]
    limits = {"most": item.wanted.max_new_tokens, "stop_texts": item.wanted.stop_texts}
    return {"body": body, "cold": cold, "cut_after": item.cut_after, **limits}
