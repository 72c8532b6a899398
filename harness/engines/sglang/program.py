"""A failing run of SGLang as a program: the settings of its scheduler, and the calls that it got."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.program import NoProgram, Program
from swarden.harness.core.registry import target_for
from swarden.harness.engines.sglang.boot import NATIVE_COPIES, SglangRelease
from swarden.harness.engines.sglang.config import SWA_TREE, SglangConfig
from swarden.harness.engines.sglang.options import switches_of, wanted_args
from swarden.harness.engines.sglang.requests import SglangRequest
from swarden.harness.kit.calls import STEP, Call, Calls
from swarden.harness.kit.constructed import Constructions
from swarden.harness.kit.symptoms import CACHED, COMPUTED, EVENTS, READ, RESET, TOKENS, bug_of, driver_for, failure_of

SOURCE = Path(__file__).parent / "standalone/scheduler.py"
NOT_SET = (  # read where the adapter is not: by handle_generate_request, in the event loop, and with fixes
    *("tokenizer", "return_health_check_ipcs", "load_snapshot_writer", "enable_fpm", "decode_offload_manager"),
    *("dynamic_chunk_sizer", "draft_worker", "rust_server", "hisparse_coordinator"),
)
BESIDE = ("ps", "tp_worker")  # attributes that are read, but do nothing
PARTS = {"host_tier", "kv_events", "resets", "sessions", "states"}  # that a program can have
SINCE = (0, 5, 23)  # the release whose scheduler the program has


def program_of(log: OpLog, release: SglangRelease) -> Program:
    """The program that shows the failure of a log; raises NoProgram if none can, UsageError if the release passes."""
    header = log.header
    if len(header.configs) > 1:
        raise NoProgram("the op-log has a pair, and a program has one scheduler")
    config: SglangConfig = target_for(header).decode(header.configs[0])
    parts = {type(capability).__module__.rpartition(".")[2] for capability in config.capabilities} - PARTS
    if config.tree == SWA_TREE or parts:
        raise NoProgram(
            f"a program has one thread and UnifiedRadixCache in Python, without {', '.join(sorted(parts)) or SWA_TREE}"
        )
    if release.version < SINCE:
        raise NoProgram(f"a program has the scheduler of 0.5.23 and later, not of {release.text}")
    making = Constructions()
    with making.recording(release.parts):
        driver = driver_for(log)
    system: Any = driver.systems[0]
    scheduler = system.port.built.scheduler
    settings, made = _settings(scheduler, config, release), _made(scheduler, making, release)
    unset = [name for name, value in vars(scheduler).items() if value is None]
    recorded = _recorded(system.port)
    failure = failure_of(log, driver)
    if fired := system.port.faults.fired:
        raise NoProgram(f"{', '.join(fired)} fired in the op-log, and a program has no faults: its copies end at once")
    (checks, bug), calls = bug_of(failure), recorded.in_order
    misplaced = _misplaced(system.port.requests.live.values()) if READ in checks else {}
    if RESET in checks:
        [call for call in calls if call["name"] == RESET][-1]["must"] = True
    constants = {
        **settings,
        "NOT_SET": sorted({*NOT_SET, *scheduler.swarden_missing, *unset}),
        "COMPUTED": COMPUTED in checks,
        "CACHED": CACHED in checks,
        "HAS_EVENTS": EVENTS in checks,
        "ANSWERS": {**_answers(system), **misplaced},
        "CHECKS": checks,
        "BUG": bug,
        "TOKENS": TOKENS in checks,
        "HAS_UNCACHED": any(call.get("uncached") for call in calls),
    }
    return Program(SOURCE, constants, calls, made)


def _recorded(port: Any) -> Calls:
    """The calls that a scheduler gets from its clients from now on."""
    scheduler, calls = port.built.scheduler, Calls()
    for owner, method, noted in (
        (port, "step", lambda: {"name": STEP}),
        (port, "resume", lambda: {"name": "resume"}),
        (port, "flush", lambda: {"name": "flush"}),
        (scheduler, "pause_generation", lambda sent: {"name": "pause", "args": [sent.mode]}),
        (port.resets, "_command", lambda _: {"name": RESET}),
        (scheduler, "init_req_max_new_tokens", lambda req: _generated(req, req.origin_input_ids)),
        (scheduler, "handle_generate_request", lambda sent: _generated(sent, sent.input_ids, sent.session_params)),
        (scheduler, "abort_request", _aborted),
    ):
        calls.record(owner, method, noted)
    if port.sessions is not None:
        for method, more in (("open", {"timeout": port.sessions.timeout_s}), ("close", {})):
            calls.record(port.sessions.controller, method, partial(_of_session, {"name": f"{method}_session", **more}))
    return calls


def _answers(system: Any) -> dict[str, list[int]]:
    """The answers of the model, by the name of the request."""
    expectations = system.reference.expectations.items()
    answers = {f"request-{number:04d}": expected.tokens[expected.prompt_len :] for number, expected in expectations}
    return {name: list(tokens) for name, tokens in answers.items() if tokens}


def _aborted(sent: Any) -> Call:
    return {"name": "abort", "args": [] if sent.abort_all else [int(sent.rid)]}


def _of_session(call: Call, sent: Any) -> Call:
    return call | {"args": [sent.session_id]}


def _generated(request: Any, tokens: Any, session: Any = None) -> Call:
    further = {
        "stop": sorted(request.sampling_params.stop_token_ids or ()) or None,
        "priority": request.priority,
        "extra_key": request.extra_key,
        "uncached": getattr(request, "skip_radix_cache_insert", False) or None,  # of a Req, not of a message
        "session": session.id if session is not None else None,
        "offset": session.offset if session is not None else None,
    }
    return {
        "name": "generate",
        "args": [int(request.rid), list(tokens), request.sampling_params.max_new_tokens],
        **{name: value for name, value in further.items() if value is not None},
    }


def _misplaced(requests: Iterable[SglangRequest]) -> Mapping[str, list[int]]:
    """By name, the answer of the model to each request of which the client got a token of another position."""
    answers = {}
    for request in requests:
        prompt_len, got = len(request.req.origin_input_ids), list(request.req.output_ids)
        answer = [token for position, token in sorted(request.next_tokens.items()) if position >= prompt_len]
        if got != answer[: len(got)]:
            answers[f"request-{request.id:04d}"] = answer
    return answers


def _settings(scheduler: Any, config: SglangConfig, release: SglangRelease) -> Mapping[str, Any]:
    """What a scheduler is built with: its attributes that are plain data, and the arguments of its server."""
    plain = {name: value for name, value in vars(scheduler).items() if type(value) in (bool, int, float, str)}
    names: Any = release.code("ServerArgs")
    return {
        "ENVIRONMENT": {NATIVE_COPIES: "1", **switches_of(config)},
        "SETTINGS": {name: value for name, value in plain.items() if not name.startswith("swarden_")},
        "SERVER_ARGS": {k: value for k, value in wanted_args(config).items() if k in names.__struct_fields__},
        "LOAD_BACK_THRESHOLD": config.host.load_back_threshold,
        "PAGE_SIZE": scheduler.page_size,
        "IS_HYBRID": scheduler.is_hybrid_swa,
        "HAS_STATES": config.states.is_on,
        "STATE_CHUNK_LEN": config.states.state_chunk_len,
        "STATE_GRID_LEN": getattr(scheduler.server_args, "_mamba_cache_chunk_size", 0),
        "HAS_HOST": scheduler.enable_hierarchical_cache,
    }


def _made(scheduler: Any, making: Constructions, release: SglangRelease) -> str:
    """What makes the attributes of a scheduler that the release's constructors make, and the parameters of its tree."""
    names = [name for name, value in vars(scheduler).items() if making.has(value) or name in BESIDE]
    made = {name: getattr(scheduler, name) for name in names if name != "session_controller"}
    return making.text({**made, "params": making.of(release.code("CacheInitParams"))})
