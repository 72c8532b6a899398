"""swarden serve: swarden's own engine behind a small HTTP front."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.model.runner import ModelForward
from swarden.fakes.front.faults import ALL, RandomFaults, ports_with
from swarden.fakes.front.http import Front
from swarden.fakes.front.loop import EngineThread
from swarden.harness.commands.console import ERR
from swarden.harness.commands.fuzz import settings_of
from swarden.harness.commands.help import memory_option
from swarden.harness.core.changes import Changes
from swarden.harness.core.errors import UsageError
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.own.models import tiny_model

SMALL: dict[str, Any] = {"page_size": 16, "full_pages": 256, "max_running_requests": 8, "max_context_len": 1024}
WINDOWED: dict[str, Any] = {"swa_pages": 96, "sliding_window": 40}


def serve(
    *,
    checkpoint: Annotated[Path | None, typer.Option(help="directory with config.json and weights")] = None,
    model: Annotated[str | None, typer.Option(help="a tiny model with random weights, such as tiny-gemma3")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of the loopback address; 0 for a free one")] = 8000,
    settings: Annotated[
        list[str] | None,
        memory_option("--set", help="a setting of the engine, in JSON, such as full_pages=64", metavar="NAME=VALUE"),
    ] = None,
    mutant: Annotated[str | None, typer.Option(help="plant the bug with this id, as in 'swarden mutants'")] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(help=f"of a tiny model, at random, from the first flush on: {', '.join(ALL)}", metavar="NAME"),
    ] = None,
) -> None:
    """Serve a model with swarden's own engine on the loopback address, in the APIs of vLLM, SGLang and llama.cpp.

    Prompts are token ids.  It is a small server for the tests of clients, not one for production.
    """
    if (checkpoint is None) == (model is None):
        raise UsageError("model: give either --checkpoint DIR or --model NAME")
    if unknown := [name for name in fault or () if name not in ALL or checkpoint is not None]:
        raise UsageError(f"--fault: {unknown[0]!r}; want one of {', '.join(ALL)}, and --model")
    target = target_of(OWN)
    with Changes(mutant).planted(target):
        faults = RandomFaults(fault or ())
        engine, eos = _engine(checkpoint, model or "", settings_of(settings or [], [OWN]), faults)
        front = Front(EngineThread(engine, faults), port, eos=eos)
        ERR.print(f"serves at {front.url}; Ctrl-C ends it")
        front.serve()


def _engine(
    checkpoint: Path | None, model: str, settings: dict[str, Any], faults: RandomFaults
) -> tuple[Engine, list[int]]:
    if checkpoint is not None:
        spec = read_spec(checkpoint)
        return create_engine(_config({**SMALL, **settings}), checkpoint=checkpoint), [*spec.eos_token_ids]
    if model not in (models := target_of(OWN).machines["engine"].models):
        raise UsageError(f"--model: {model!r} is not one of {', '.join(models)}")
    config = _config({**SMALL, **WINDOWED, **settings})
    forward = ModelForward(tiny_model(model, config).decoder)
    return create_engine(config, ports=ports_with(faults, forward)), []


def _config(settings: dict[str, Any]) -> EngineConfig:
    try:
        return msgspec.convert(settings, EngineConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"--set: {error}") from error
