"""A failing run of SGLang as the launch line of a server, and a client that sends the same requests."""

import json
import re
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import Any

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.port import Submission
from swarden.harness.core.program import NoProgram, Program, check_single
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.sglang.config import NO_BUFFER, NO_TREE, SglangConfig
from swarden.harness.kit.calls import STEP, Call, Calls

TEMPLATE = Path(__file__).with_name("program.py.j2")
NOT_SET = (None, False)
SEEN = ("work_makes_progress/", "stuck/", "requests_are_in_one_queue/request/lost")  # requests without an answer
LAUNCH = "python -m sglang.launch_server --model-path MODEL --skip-tokenizer-init"


def flags_of(config: SglangConfig, package: Path) -> list[str]:
    """The options of a server with this configuration, as far as the release in the folder `package` has them."""
    tokens = config.page_size * config.full_pages
    conservativeness = round(config.new_token_ratio / SglangConfig().new_token_ratio, 3)
    values = {
        "context_length": config.max_context_len,
        "page_size": config.page_size,
        "max_total_tokens": tokens,
        "swa_full_tokens_ratio": None if config.sliding_window is None else config.swa_pages / config.full_pages,
        "max_running_requests": config.max_running_requests,
        "chunked_prefill_size": config.chunk_len,
        "max_prefill_tokens": config.max_prefill_tokens,
        "schedule_policy": config.waiting_order,
        "schedule_conservativeness": conservativeness if conservativeness != 1 else None,
        "disable_overlap_schedule": not config.overlap,
        "enable_mixed_chunk": config.mixed_batches,
        "enable_priority_scheduling": config.preemption_threshold is not None,
        "priority_scheduling_preemption_threshold": config.preemption_threshold,
        "disable_radix_cache": config.tree == NO_TREE,
        "enable_streaming_session": config.streaming_sessions,
        "enable_hierarchical_cache": config.host_ratio is not None,
        "hicache_ratio": config.host_ratio,
        "hicache_write_policy": config.write_policy if config.host_ratio is not None else None,
        "hicache_storage_backend": "file" if config.storage_policy is not None else None,
        "hicache_storage_prefetch_policy": config.storage_policy,
        "hicache_storage_backend_extra_config": (
            None if config.storage_policy is None else json.dumps({"prefetch_threshold": config.prefetch_threshold})
        ),
        "max_mamba_cache_size": config.state_slots,
        "mamba_radix_cache_strategy": config.state_strategy if config.state_slots is not None else None,
        "mamba_track_interval": config.state_interval if config.state_strategy != NO_BUFFER else None,
        "speculative_algorithm": "NGRAM" if config.draft_len is not None else None,
        "speculative_num_draft_tokens": None if config.draft_len is None else config.draft_len + 1,
    }
    files = [package / "srt/server_args.py", *sorted((package / "srt/arg_groups").rglob("*.py"))]
    declared = set(re.findall(r"^    (\w+):", "\n".join(file.read_text() for file in files), re.MULTILINE))
    options = {name: value for name, value in values.items() if not any(value is unset for unset in NOT_SET)}
    return [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {quote(str(value))}")
        for name, value in options.items()
        if name in declared
    ]


def program_of(log: OpLog, flags: Sequence[str]) -> Program:
    """The program that shows the failure of a log to a server started with these options.

    Raises NoProgram for a log that a client of one server cannot show, UsageError for one that does not fail.
    """
    header = log.header
    if len(header.configs) > 1 or header.mutant is not None or header.fixes:
        raise NoProgram("the op-log has a pair, a mutant or fixes, and the client has one server of a release")
    check_single(log.ops)
    driver, calls = driver_of(header), Calls()
    system: Any = driver.systems[0]
    for method, noted in (
        ("submit", partial(_submitted, system.port.sessions)),
        ("abort", lambda number: {"name": "abort", "number": number}),
        ("step", lambda: {"name": STEP}),
        ("flush", lambda: {"name": "flush"}),
        ("pause", lambda: {"name": "pause"}),
        ("resume", lambda: {"name": "resume"}),
    ):
        calls.record(system.port, method, noted)
    if system.port.sessions is not None:
        calls.record(system.port.sessions, "open_session", lambda namespace=0: {"name": "open_session"})
        calls.record(system.port.sessions, "close_session", lambda number: {"name": "close_session", "session": number})
    for op in log.ops:
        driver.apply(op)
    if driver.failure is None:
        here = f"{header.engine} {target_for(header).version()}"
        raise UsageError(f"the op-log does not fail on {here}; name another release")
    if not _is_seen(driver.failure):
        raise NoProgram(
            f"the op-log fails with {driver.failure.fingerprint}, and a client sees only requests without an answer "
            "and a dead server; write it --as issue"
        )
    return Program(TEMPLATE, {"calls": calls.in_order, "launch": " ".join((LAUNCH, *flags))})


def _is_seen(failure: Failure) -> bool:
    return (failure.error is not None and bool(failure.frames)) or any(
        fingerprint.startswith(SEEN) for fingerprint in failure.fingerprints
    )


def _submitted(sessions: Any, submission: Submission) -> Call:
    """The call of a request.

    A turn has only the tokens that follow those of its session, and as `offset` the number of tokens that it keeps of
    them (None: all).
    """
    tokens, offset = list(submission.tokens), None
    if submission.session:
        history = sessions.history(submission.session)
        same = sum(takewhile(bool, (a == b for a, b in zip(history, tokens, strict=False))))
        offset = same if same < len(history) else None
        tokens = tokens[same:]
    return {
        "name": "generate",
        "input_ids": tokens,
        "max_new_tokens": submission.max_new_tokens,
        "stop_token_ids": list(submission.stop),
        "priority": submission.priority,
        "extra_key": str(submission.namespace) if submission.namespace else None,
        "session": submission.session,
        "offset": offset,
    }
