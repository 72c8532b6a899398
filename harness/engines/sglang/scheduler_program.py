"""A failing run of SGLang as a program: the settings of its scheduler, and the calls that it got."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.sglang.attributes import POOL_LENS
from swarden.harness.engines.sglang.boot import NEEDS_NO_GPU, SglangRelease
from swarden.harness.engines.sglang.config import BOTH, SWA_TREE, SglangConfig
from swarden.harness.engines.sglang.memory import row_len, switches_of, wanted_args
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, max_request_len
from swarden.harness.engines.sglang.scheduler import SILENT_METHODS, SILENT_PROCESSOR_METHODS
from swarden.harness.kit.calls import STEP, Call, Calls

TEMPLATE = Path(__file__).with_name("scheduler_program.py.j2")
OF_ENDS = {"work_makes_progress", "stuck", "drained_engine_is_empty"}  # the laws that a program checks


def program_of(log: OpLog, release: SglangRelease) -> Program:
    """Raises NoProgram for a log that no program shows, UsageError for one that does not fail on the release."""
    header = log.header
    if len(header.configs) > 1 or header.mutant is not None or header.twin is not None or header.fixes:
        raise NoProgram(
            "the op-log has a pair, a mutant, a twin or fixes, and a program has one scheduler of a release"
        )
    config: SglangConfig = header.target.decode(header.configs[0])
    if config.role != BOTH or config.tree == SWA_TREE or config.state_slots or config.draft_len or config.rust_core:
        raise NoProgram("a program has UnifiedRadixCache in Python, without drafts, states and disaggregation")
    if not release.has("full_attention_alone") or not release.has("batch_plan"):
        raise NoProgram(f"a program has the scheduler of 0.5.21 and later, not of {release.text}")
    driver = driver_of(header)
    system: Any = driver.systems[0]
    recorder = _Recorder(system, config)
    for op in log.ops:
        driver.apply(op)
    if (failure := driver.failure) is None:
        raise UsageError(f"the op-log does not fail on {header.engine} {release.text}; name a release with the bug")
    if system.port.faults.fired:
        raise NoProgram("a fault fired in the op-log, and a program has none")
    return Program(TEMPLATE, {**_settings(config, release), **recorder.values, "error": _error_of(failure)})


class _Recorder:
    """The calls that a scheduler gets from its clients, and the answers of the model."""

    def __init__(self, system: Any, config: SglangConfig) -> None:
        port, self._reference, self._calls = system.port, system.reference, Calls()
        scheduler, sessions = port.built.scheduler, port.sessions
        self._calls.record(port, "step", lambda: {"name": STEP})
        self._calls.record(scheduler, "init_req_max_new_tokens", _added)
        self._calls.record(scheduler, "handle_generate_request", _sent)
        self._calls.record(scheduler, "abort_request", lambda sent: {"name": "abort", "number": int(sent.rid)})
        self._calls.record(scheduler, "pause_generation", lambda _: {"name": "pause"})
        for name in ("resume", "flush"):
            self._calls.record(port, name, lambda name=name: {"name": name})
        if sessions is not None:
            timeout = config.session_timeout_s
            self._calls.record(
                sessions._controller,
                "open",
                lambda sent: {"name": "open_session", "session": sent.session_id, "timeout": timeout},
            )
            self._calls.record(
                sessions._controller, "close", lambda sent: {"name": "close_session", "session": sent.session_id}
            )

    @property
    def values(self) -> Mapping[str, Any]:
        answers = {number: one.tokens[one.prompt_len :] for number, one in self._reference.expectations.items()}
        return {
            "calls": self._calls.in_order,
            "answers": {f"request-{number:04d}": list(tokens) for number, tokens in answers.items() if tokens},
        }


def _added(req: Any) -> Call:
    return _generated(req, req.origin_input_ids)


def _sent(message: Any) -> Call:
    params = message.session_params
    return _generated(message, message.input_ids) | {"session": params.id, "offset": params.offset}


def _generated(request: Any, tokens: Any) -> Call:
    return {
        "name": "generate",
        "number": int(request.rid),
        "input_ids": list(tokens),
        "max_new_tokens": request.sampling_params.max_new_tokens,
        "stop": sorted(request.sampling_params.stop_token_ids or ()),
        "priority": request.priority,
        "extra_key": request.extra_key,
        "session": None,
        "offset": None,
    }


def _error_of(failure: Failure) -> str:
    """The name of the exception that the release raises; "" if a law of ends fails.  Raises NoProgram for another."""
    if failure.error is not None and failure.frames:
        return type(failure.error).__name__
    if not {fingerprint.partition("/")[0] for fingerprint in failure.fingerprints} & OF_ENDS:
        raise NoProgram(f"the op-log fails with {failure.fingerprint}; a program sees memory, ends and exceptions")
    return ""


def _settings(config: SglangConfig, release: SglangRelease) -> Mapping[str, Any]:
    tokens = config.full_pages * config.page_size
    swa_tokens = config.swa_pages * config.page_size
    ratio, floor = config.new_token_ratio, config.new_token_ratio_floor
    return {
        "environment": NEEDS_NO_GPU | switches_of(config),
        "page_size": config.page_size,
        "num_tokens": tokens,
        "swa_tokens": swa_tokens,
        "sliding_window": config.sliding_window,
        "max_running_requests": config.max_running_requests,
        "max_context_len": row_len(config),
        "chunk_len": config.chunk_len,
        "server_args": wanted_args(config),
        "has_host": config.host_ratio is not None,
        "load_back_threshold": config.load_back_threshold,
        "overlap": config.overlap,
        "waiting_order": config.waiting_order,
        "has_priority": config.preemption_threshold is not None,
        "ratio": ratio,
        "ratio_floor": floor,
        "ratio_decay": (ratio - floor) / config.new_token_ratio_decay_steps,
        "pool_lens": list(POOL_LENS),
        "silent": [*SILENT_METHODS, "self_check_during_idle"],
        "silent_of_results": list(SILENT_PROCESSOR_METHODS),
        "scalars": _scalars(config, max_request_len(release, config)),
    }


def _scalars(config: SglangConfig, max_len: int) -> Mapping[str, Any]:
    """The attributes of a scheduler that are plain numbers and switches."""
    tokens, swa_tokens = config.full_pages * config.page_size, config.swa_pages * config.page_size
    has_priority = config.preemption_threshold is not None
    return {
        "page_size": config.page_size,
        "is_generation": True,
        "is_hybrid_swa": config.sliding_window is not None,
        "full_tokens_per_layer": tokens,
        "swa_tokens_per_layer": swa_tokens,
        "sliding_window_size": config.sliding_window,
        "max_total_num_tokens": tokens,
        "max_req_len": max_len,
        "max_req_input_len": max_len - SPARE_TOKENS,
        "chunked_prefill_size": config.chunk_len,
        "max_prefill_tokens": config.max_prefill_tokens,
        "max_running_requests": config.max_running_requests,
        "max_prefill_bs": 0,
        "kv_shard_widening": 1,
        "enable_overlap": config.overlap,
        "enable_hierarchical_cache": config.host_ratio is not None,
        "is_mixed_chunk": config.mixed_batches,
        "enable_priority_scheduling": has_priority,
        "enable_priority_preemption": has_priority,
        "priority_scheduling_preemption_threshold": config.preemption_threshold or 0,
        "prefill_decode_interval": 0,
        "prefill_decode_interval_min_bs": 0,
        "_prefill_decode_interval_remaining": 0,
        "forward_ct": 0,
        "_war_barrier_enabled": True,
    }
