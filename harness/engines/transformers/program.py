"""A failing run as a program of transformers alone: a tiny model on the CPU, and the calls that the manager got."""

from pathlib import Path
from typing import Any

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.registry import target_for
from swarden.harness.engines.transformers.boot import TransformersRelease
from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.engines.transformers.core import CHILD
from swarden.harness.kit.calls import STEP, Call, Calls
from swarden.harness.kit.constructed import Constructions
from swarden.harness.kit.symptoms import bug_of, driver_for, failure_of

FORWARD = "_forward_process_and_sample"  # a model in it may raise another error than the stand-in
SOURCE = Path(__file__).parent / "standalone/manager.py"


def program_of(log: OpLog, release: TransformersRelease) -> Program:
    """The program that shows the failure of a log; raises NoProgram if none can, UsageError if the release passes."""
    making, calls = Constructions(), Calls()
    with making.recording(release.parts):
        driver = driver_for(log)
    system: Any = driver.systems[0]
    engine = system.port
    manager = engine.core.manager
    made = making.text({"config": making.of(release.code("Config"))})
    calls.record(manager, "add_request", lambda prompt, **options: _added(manager, prompt, **options))
    calls.record(manager, "cancel_request", lambda rid: {"name": "cancel", "args": [rid]})
    calls.record(manager, "_generation_loop_body", lambda *_, **__: {"name": STEP})
    failure = failure_of(log, driver)
    config: TransformersConfig = target_for(log.header).decode(log.header.configs[0])
    if config.decode_blocks:
        raise NoProgram("the op-log needs block tables of a GPU; write it --as issue")
    checks, bug = bug_of(failure)
    if FORWARD in bug:
        bug[FORWARD] = ""  # its type is that of the model
    added, answers = [call for call in calls.in_order if call["name"] == "add"], dict[str, list[int]]()
    for call in added:
        request_id = call["args"][0]
        for place in range(call.get("sequences", 1)):
            expected = driver.systems[0].reference.expectations[int(request_id) + place]
            name = f"{request_id}{CHILD}{place - 1}" if place else request_id
            answers[name] = list(expected.tokens[expected.prompt_len :])
    constants = {
        "MODEL": _model(config, max([1, *[token for call in added for token in call["args"][1]]]) + 1),
        "IS_ASYNCHRONOUS": config.asynchronous,
        "HAS_STREAMS": bool(config.asynchronous or config.cpu_blocks),
        "ANSWERS": answers,
        "CHECKS": checks,
        "BUG": bug,
    }
    return Program(SOURCE, constants, calls.in_order, made)


def _model(config: TransformersConfig, vocab_size: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "num_hidden_layers": config.num_layers,
        "layer_types": list(config.layer_types),
        "sliding_window": config.window if config.sliding_layers else None,
    }


def _added(manager: Any, prompt: list[int], **options: Any) -> Call:
    more = {"stop": tuple(options["eos_token_id"]) or None, "sequences": manager.num_return_sequences}
    return {
        "name": "add",
        "args": [options["request_id"], prompt, options["max_new_tokens"]],
        **{name: value for name, value in more.items() if value not in (None, 1)},
    }
