"""A failing run of vLLM as a program: the settings of its engine core, and the calls that its scheduler got."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Pause, Submit, Turn
from swarden.harness.core.program import NoProgram, Program, check_single
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import driver_of
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_LATE
from swarden.harness.engines.vllm.layers import ALIGN
from swarden.harness.engines.vllm.link import LINK_DELAY, LINK_FAILS
from swarden.harness.engines.vllm.parts.offload import CHUNKS
from swarden.harness.engines.vllm.parts.pair import DECODE
from swarden.harness.kit.calls import STEP, Call, Calls, intercept
from swarden.harness.kit.settings import flat
from swarden.harness.kit.symptoms import exception_of, is_of_caches, is_of_ends

TEMPLATE = Path(__file__).with_name("program.py.j2")
FAILING, LATE = (LOAD_FAILS, LINK_FAILS), (LOAD_LATE, LINK_DELAY)


def program_of(log: OpLog, release: VllmRelease) -> Program:
    """The program that shows the failure of a log on a release.

    Raises NoProgram for a log that no program shows, UsageError for one that does not fail on the release.
    """
    header = log.header
    if header.mutant is not None or header.model or header.fixes:
        raise NoProgram("the op-log has a mutant, a model or fixes, and a program has the release alone")
    for op in log.ops:
        if isinstance(op, Submit) and (op.adapter or op.prompt_logprobs):
            raise NoProgram(
                "a request of the op-log has an adapter or asks for prompt_logprobs, and a program has neither"
            )
    check_single(log.ops)
    driver = driver_of(header)
    recorders = [_Recorder(system) for system in driver.systems if isinstance(system, EngineSystem)]
    for op in log.ops:
        driver.apply(op)
    if (failure := driver.failure) is None:
        raise UsageError(f"the op-log does not fail on {header.engine} {release.text}; name a release with the bug")
    if is_of_caches(failure):
        raise NoProgram(f"no program looks at {failure.fingerprint}; write it --as issue")
    config: VllmConfig = target_for(header).decode(header.configs[failure.engine])
    if config.streaming.is_on and Turn in map(type, log.ops):
        raise NoProgram("a request of the op-log streams its input, and a program sends whole requests")
    if config.pair.sends:
        raise NoProgram("the op-log fails on a side that sends its prompts' KV, for which no program is written")
    if config.pair.role == DECODE and (config.pair.push or Pause in map(type, log.ops)):
        raise NoProgram(
            "the op-log fails by pushes, or by the clocks of both sides, and a program has the decode side alone"
        )
    if config.states.is_on and (config.pair.role == DECODE or config.store.external_len):
        raise NoProgram("the op-log has states of Mamba layers from a store or another engine, and a program has none")
    if config.offload.sync_loads and config.state_mode == ALIGN:
        raise NoProgram(
            "in the op-log the worker copies states that are loaded within the step, and a program has no worker"
        )
    if config.offload.is_on and config.store.external_len:
        raise NoProgram("the op-log has two connectors below a MultiConnector, and a program has one")
    if config.store.saves:
        raise NoProgram("the store of the op-log gets the KV of ended requests, and that of a program does not")
    if config.tier.is_on:
        raise NoProgram("the op-log has a second tier behind CPU memory, and a program has CPU memory alone")
    if config.offload.offloader != CHUNKS:
        raise NoProgram("the op-log has the SimpleCPUOffloadConnector, and a program has the OffloadingConnector")
    recorded = recorders[failure.engine].values
    if recorded["failed_loads"] and config.store.external_len and not config.store.late_loads:
        raise NoProgram("a synchronous load of the op-log fails, and in a program only loads in the background do")
    return Program(TEMPLATE, {**_settings(config, release), **recorded, **_symptom(failure)})


class _Recorder:
    """The calls that one scheduler gets, the answers of the model, and the loads that fail or are late."""

    def __init__(self, system: EngineSystem) -> None:
        self._reference, self._calls = system.reference, Calls()
        self._crossings: dict[str, list[bool]] = defaultdict(list)
        self._right: list[int | None] = []
        engine: Any = system.port
        core, device = engine.built.core, engine.runner.device
        self._calls.record(
            core, "step" if core.batch_queue is None else "step_with_batch_queue", lambda: {"name": STEP}
        )
        self._calls.record(core.scheduler, "add_request", _added)
        self._calls.record(core.scheduler, "finish_requests", lambda ids, _: {"name": "abort", "request_id": ids[0]})
        self._calls.record(core.scheduler, "reset_prefix_cache", _reset)
        self._calls.record(core.scheduler, "set_pause_state", lambda state: {"name": "pause" if state else "resume"})
        self._calls.record(device.memory, "clear", lambda: {"name": "sleep"})
        intercept(engine.faults, "fires", self._crossed)
        intercept(device.script, "next", self._proposed)

    @property
    def values(self) -> Mapping[str, Any]:
        calls = self._calls.in_order
        answers = {
            str(number): expected.tokens[expected.prompt_len :]
            for number, expected in self._reference.expectations.items()
        }
        return {
            "calls": calls,
            "answers": {rid: list(tokens) for rid, tokens in answers.items() if tokens},
            "right": [right or 0 for right in self._right],
            "has_pause": any(call["name"] in ("pause", "resume") for call in calls),
            "failed_loads": self._fired(FAILING),
            "late_loads": self._fired(LATE),
        }

    def _crossed(self, original: Callable[[str], bool], fault: str) -> bool:
        self._crossings[fault].append(original(fault))
        return self._crossings[fault][-1]

    def _proposed(self, original: Callable[[], int | None]) -> int | None:
        self._right.append(original())
        return self._right[-1]

    def _fired(self, faults: tuple[str, ...]) -> list[int]:
        """The numbers of the loads at which one of these faults fired."""
        return [number for fault in faults for number, fires in enumerate(self._crossings[fault], 1) if fires]


def _added(request: Any) -> Call:
    return {
        "name": "add",
        "request_id": request.request_id,
        "prompt": list(request.prompt_token_ids),
        "max_tokens": request.max_tokens,
        "stop": list(request.sampling_params.stop_token_ids or ()),
        "priority": request.priority,
        "cache_salt": request.cache_salt,
        "kv_transfer_params": deepcopy(request.kv_transfer_params),
    }


def _reset(running: bool = False, connector: bool = False) -> Call:
    return {"name": "reset", "running": running, "connector": connector}


def _symptom(failure: Failure) -> Mapping[str, Any]:
    """The exception if the release raises one, and whether what is read must be compared."""
    error = exception_of(failure)
    return {"error": error, "content": not error and not is_of_ends(failure)}


def _settings(config: VllmConfig, release: VllmRelease) -> Mapping[str, Any]:
    if config.pair.role == DECODE:
        connector = "nixl"
    elif config.offload.is_on:
        connector = "offloading"
    else:
        connector = "store" if config.store.external_len else ""
    return {
        **flat(config),
        "has_runners": release.has("second_runner"),
        "connector": connector,
        "groups": [(0 if group.has_states else group.window, group.block_len) for group in config.groups],
        "state_mode": config.state_mode,
        "draft_len": config.drafts.count,
        "drafter": config.drafts.method(config),
        "waits_for_empty": release.has("failed_requests"),
        "failure_policy": config.failure_policy,
        "is_late": config.store.late_loads,
        "offloading": config.offload.extra_config,
    }
