"""A failing run of vLLM as a program: the settings of its engine core, and the calls that its scheduler got."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Pause
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.registry import target_for
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_LATE
from swarden.harness.engines.vllm.link import LINK_DELAY, LINK_FAILS
from swarden.harness.engines.vllm.parts.offload import CHUNKS
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.kit.calls import STEP, Call, Calls, intercept
from swarden.harness.kit.constructed import Constructions
from swarden.harness.kit.symptoms import EVENTS, PARENTS, READ, bug_of, driver_for, failure_of

SOURCE = Path(__file__).parent / "standalone/scheduler.py"


def program_of(log: OpLog, release: VllmRelease) -> Program:
    """The program that shows the failure of a log on a release.

    Raises NoProgram for a log that no program shows, UsageError for one that does not fail on the release.
    """
    making = Constructions()
    with making.recording(release.parts):
        driver = driver_for(log)
    recorders = [_Recorder(system) for system in driver.systems if isinstance(system, EngineSystem)]
    failure = failure_of(log, driver)
    config: VllmConfig = target_for(log.header).decode(log.header.configs[failure.engine])
    (checks, bug), recorder = bug_of(failure), recorders[failure.engine]
    for what, is_lacking in _lacking(config, {type(op) for op in log.ops}, recorder.constants).items():
        if is_lacking:
            raise NoProgram(f"the op-log has {what}, which the stand-ins of a program lack")
    constants = {
        **_constants(config),
        **recorder.constants,
        "RUNNER_V2": str(int(config.second_runner)) if release.has("second_runner") else "",
        "WAITS_FOR_EMPTY": release.has("failed_requests"),
        "CHECKS": checks,
        "BUG": bug,
        "READS": READ in checks,
        "HAS_EVENTS": EVENTS in checks or PARENTS in checks,
        "HAS_PARENTS": PARENTS in checks,
    }
    making.named[id(release.model_config)] = "model"
    if config.drafts.is_on:
        making.named[id(recorder.settings["vllm_config"].speculative_config)] = "speculative"
    return Program(SOURCE, constants, recorder.calls, making.text(recorder.settings))


def _lacking(config: VllmConfig, ops: set[type], recorded: Mapping[str, Any]) -> Mapping[str, bool]:
    """What the stand-ins lack, and whether a log has it: without it, a program could show another failure."""
    pair, store_len = config.pair, bool(config.store.external_len)
    return {
        "a side that sends KV": pair.sends,
        "several ranks": config.group.is_on,
        "pushes, or the clocks of both sides": pair.is_on and (pair.push or Pause in ops),
        "states from a store or another engine": config.states.is_on and (pair.is_on or store_len),
        "a connector of single blocks": config.offload.is_on and config.offload.offloader != CHUNKS,
        "two connectors": config.offload.is_on and store_len,
        "a second tier": config.tier.is_on,
        "structured output": config.grammars.is_on,
        "several workers": config.store.workers > 1,
        "a Mooncake store": config.mooncake.is_on,
        "chunks of LMCache": config.lmcache.is_on,
        "a load that fails within the step": store_len
        and bool(recorded["FAILED_LOADS"])
        and not config.store.late_loads,
    }


class _Recorder:
    """The calls that one scheduler gets, the answers of the model, and the loads that fail or are late."""

    def __init__(self, system: EngineSystem) -> None:
        self._reference, self._recorded = system.reference, Calls()
        self._crossings: dict[str, list[bool]] = defaultdict(list)
        self._right: list[int | None] = []
        engine: Any = system.port
        core, device = engine.built.core, engine.runner.device
        names = ("vllm_config", "kv_cache_config")
        self.settings = {name: getattr(engine.built.scheduler, name) for name in names}
        self._number_of, self._lens = engine.built.number_of, dict[str, int]()
        self._streams, self._sampled = set[str](), defaultdict[str, dict[int, int]](dict)
        record, scheduler = self._recorded.record, core.scheduler
        record(core, "step" if core.batch_queue is None else "step_with_batch_queue", lambda: {"name": STEP})
        record(scheduler, "add_request", self._added)
        record(scheduler, "finish_requests", lambda rids, _: {"name": "abort", "args": [[*rids]]})
        record(scheduler, "reset_prefix_cache", _reset)
        record(scheduler, "set_pause_state", lambda state: {"name": "pause" if state else "resume"})
        intercept(engine.faults, "fires", self._crossed)
        intercept(device.script, "next", self._proposed)
        intercept(engine.runner, "_output", self._computed)

    @property
    def calls(self) -> list[Call]:
        return self._recorded.in_order

    @property
    def constants(self) -> Mapping[str, Any]:
        answers = dict[str, list[int]]()
        for rid, prompt_len in self._lens.items():
            expected = self._reference.expectations[self._number_of(rid)]
            answers[rid] = list(expected.tokens[expected.prompt_len :])
            if rid in self._streams:  # by the position in all turns
                sampled = self._sampled[rid]
                answers[rid] = [sampled.get(position, 0) for position in range(prompt_len, max(sampled, default=0) + 1)]
        return {
            "ANSWERS": {rid: tokens for rid, tokens in answers.items() if tokens},
            "RIGHT": [right or 0 for right in self._right],
            "HAS_PAUSE": any(call["name"] in ("pause", "resume") for call in self.calls),
            "HAS_STREAMS": bool(self._streams),
            "FAILED_LOADS": self._fired(LOAD_FAILS, LINK_FAILS),
            "LATE_LOADS": self._fired(LOAD_LATE, LINK_DELAY),
        }

    def _added(self, request: Any) -> Call:
        self._lens.setdefault(request.request_id, len(request.prompt_token_ids))
        if getattr(request, "resumable", False):
            self._streams.add(request.request_id)
        sampling, params = request.sampling_params, deepcopy(request.kv_transfer_params)
        more = {
            "priority": request.priority,
            "cache_salt": request.cache_salt,
            "stop_token_ids": list(sampling.stop_token_ids or ()),
            "prompt_logprobs": sampling.prompt_logprobs,
            "resumable": getattr(request, "resumable", False),
            "extra_args": params and {"kv_transfer_params": params},
        }
        return {
            "name": "add",
            "args": [request.request_id, list(request.prompt_token_ids)],
            "max_tokens": request.max_tokens,
            **{name: value for name, value in more.items() if value},
        }

    def _crossed(self, original: Callable[[str], bool], fault: str) -> bool:
        self._crossings[fault].append(original(fault))
        return self._crossings[fault][-1]

    def _proposed(self, original: Callable[[], int | None]) -> int | None:
        self._right.append(original())
        return self._right[-1]

    def _computed(self, original: Callable[..., Any], flight: VllmPass, sampled: Sequence[Sequence[int]]) -> Any:
        for rid, entry, tokens in zip(flight.rids, flight.entries, sampled, strict=True):
            self._sampled[rid].update(enumerate(tokens, entry.end - len(entry.drafts)))
        return original(flight, sampled)

    def _fired(self, *faults: str) -> list[int]:
        """The numbers of the loads at which one of these faults fired."""
        return [number for fault in faults for number, fires in enumerate(self._crossings[fault], 1) if fires]


def _reset(running: bool = False, connector: bool = False) -> Call:
    """Arguments that are False at the end are left out."""
    return {"name": "reset", "args": [running, connector] if connector else [running] if running else []}


def _constants(config: VllmConfig) -> Mapping[str, Any]:
    has_store = config.store.is_on and not config.offload.is_on
    return {
        "GROUPS": [(0 if group.has_states else group.window, group.block_len) for group in config.groups],
        "NUM_BLOCKS": config.num_blocks + 1,
        "MODEL_LEN": config.max_context_len,
        "BLOCK_SIZE": min(group.block_len for group in config.groups),
        "ASYNCHRONOUS": config.asynchronous,
        "SAVES": config.store.saves,
        "CHUNK_BLOCKS": config.offload.chunk_blocks,
        "HAS_STORE": has_store,
        "LOADS": has_store or config.pair.is_on,
        "COPIES": config.offload.is_on,
        "DRAFT_LEN": config.drafts.count,
        "DRAFTER": config.drafts.method(config),
        "HAS_STATES": config.states.is_on,
        "HAS_HASHES": config.prefix_caching or bool(config.store.external_len),
    }
