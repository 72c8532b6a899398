"""A configuration in the words of a release: the arguments and the options of a server, and lengths and limits."""

import json
import re
from pathlib import Path
from shlex import quote
from typing import Any

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import BOTH, NO_BUFFER, NO_TREE, WRITE_THROUGH, SglangConfig
from swarden.harness.engines.sglang.parts.storage import storage_args
from swarden.harness.engines.sglang.requests import SPARE_TOKENS
from swarden.harness.kit.stand_ins import Silent
from swarden.invariants.limits import Limits

DEVICE = "cpu"
BACKEND = "mooncake"  # the transfer backend by name; link.py replaces its classes
SPARE_OF_DRAFTS = 4  # entries of a row beside those for the tokens of a pass
NOT_SET = (None, False)


def wanted_args(config: SglangConfig) -> dict[str, Any]:
    """The arguments of a server that differ from their defaults, or that a scheduler reads."""
    return {
        "model_path": "dummy",
        "tokenizer_path": "dummy",
        "device": DEVICE,
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": not config.overlap,
        "speculative_algorithm": None if config.draft_len is None else "NGRAM",
        "speculative_num_draft_tokens": None if config.draft_len is None else config.draft_len + 1,
        "speculative_eagle_topk": None if config.draft_len is None else 1,  # drafts are a chain
        "disaggregation_mode": config.role,
        "disaggregation_transfer_backend": BACKEND if config.role != BOTH else None,
        "disaggregation_bootstrap_port": 1,
        "disaggregation_decode_retraction_backup": "cpu_tensor",  # as in all releases before there was a choice
        "num_reserved_decode_tokens": config.reserved_decode_tokens,
        "disable_radix_cache": not config.caches_prefixes,
        "disaggregation_decode_enable_radix_cache": config.decode_tree,
        "disaggregation_decode_enable_offload_kvcache": config.decode_offload,
        "grammar_backend": "none",
        "page_size": config.page_size,
        "chunked_prefill_size": config.chunk_len,
        "pp_max_micro_batch_size": config.max_running_requests,
        "max_running_requests": config.max_running_requests,
        "enable_priority_scheduling": config.preemption_threshold is not None,
        "schedule_low_priority_values_first": False,
        "enable_mixed_chunk": config.mixed_batches,
        "enable_hierarchical_cache": config.host_ratio is not None,
        "hicache_ratio": config.host_ratio or 1.0,
        "hicache_write_policy": config.write_policy,
        **storage_args(config),
        "enable_streaming_session": config.streaming_sessions,
        "mamba_radix_cache_strategy": config.state_strategy,
        "mamba_track_interval": config.state_interval,
    }


def state_grid(config: SglangConfig) -> int:
    """ServerArgs.mamba_cache_chunk_size; without buffers a state is cached after any token."""
    return 1 if config.state_strategy == NO_BUFFER else max(config.state_chunk_len, config.page_size)


def switches_of(config: SglangConfig) -> dict[str, str]:
    """The variables of the environment for these settings."""
    switches = {
        "SGLANG_SWA_EVICTION_INTERVAL": config.window_eviction_interval,  # 128 by default, from 0.5.17 on
        "SGLANG_SWA_EVICTION_INTERVAL_MULTIPLIER": 1.0,
        "SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW": config.releases_early,
        "SGLANG_OPT_RELEASE_PREFILL_SWA": config.releases_early,
        "SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT": config.splits_leaves,
    }
    return {name: str(value).lower() for name, value in switches.items()}


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


def settings_of(release: SglangRelease, config: SglangConfig) -> dict[str, Any]:
    """The attributes of a scheduler that follow from its configuration."""
    full = config.full_pages * config.page_size
    has_priority = config.preemption_threshold is not None
    ratio, floor = config.new_token_ratio, config.new_token_ratio_floor
    decay = (ratio - floor) / config.new_token_ratio_decay_steps
    tracker, algorithm = release.code("NewTokenRatioTracker"), release.code("SpeculativeAlgorithm")
    return {
        "page_size": config.page_size,
        "is_hybrid_swa": config.sliding_window is not None,
        "is_hybrid_ssm": config.state_slots is not None,
        "full_tokens_per_layer": full,
        "swa_tokens_per_layer": config.swa_pages * config.page_size,
        "max_total_num_tokens": full,
        "chunked_prefill_size": config.chunk_len,
        "max_prefill_tokens": config.max_prefill_tokens,
        "max_running_requests": config.max_running_requests,
        "max_prefill_bs": 0,
        "max_queued_requests": None,
        "kv_shard_widening": 1,
        "sliding_window_size": config.sliding_window,
        "enable_overlap": config.overlap,
        "enable_hierarchical_cache": config.host_ratio is not None,
        "enable_hicache_storage": config.storage_policy is not None,
        "is_mixed_chunk": config.mixed_batches,
        "spec_algorithm": _algorithm(algorithm, config),
        "disaggregation_mode": release.code("DisaggregationMode")(config.role),
        "new_token_ratio": ratio,
        "init_new_token_ratio": ratio,
        "min_new_token_ratio": floor,
        "new_token_ratio_decay": decay,
        "new_token_ratio_tracker": (
            Silent(current=ratio) if tracker is None else tracker(init=ratio, min=floor, decay=decay, current=ratio)
        ),
        "enable_priority_scheduling": has_priority,
        "enable_priority_preemption": has_priority,
        "priority_scheduling_preemption_threshold": config.preemption_threshold or 0,
        "schedule_low_priority_values_first": False,
        "abort_on_priority_when_disabled": False,
        "prefill_decode_interval": 0,
        "prefill_decode_interval_min_bs": 0,
        "_prefill_decode_interval_remaining": 0,
        "polling_count": 0,  # counts the polls of the decode side's transfers
        "polling_interval": 1,
    }


def _algorithm(kind: Any, config: SglangConfig) -> Any:
    if config.draft_len is not None:
        return kind.NGRAM
    return kind.from_string(None) if hasattr(kind, "from_string") else kind.NONE


def max_pool_len(release: SglangRelease, config: SglangConfig) -> int:
    """ModelRunner.max_token_pool_size: the tokens of the pool that bounds a request."""
    full, swa = config.full_pages * config.page_size, config.swa_pages * config.page_size
    return full if release.has("full_pool_bounds_requests") else min(full, swa)


def max_request_len(release: SglangRelease, config: SglangConfig) -> int:
    """Scheduler.max_req_len: the length in tokens that the context and the pools allow a request to have."""
    return min(config.max_context_len, max_pool_len(release, config)) - 1


def row_len(config: SglangConfig) -> int:
    """The length of a row of the request table, with entries for drafts: get_req_to_token_extra_context_len."""
    if config.draft_len is None:
        return config.max_context_len
    count = config.draft_len + 1
    of_two_passes = 2 * count + config.page_size - 1 if config.page_size > 1 else 0
    return config.max_context_len + max(SPARE_OF_DRAFTS + count, of_two_passes)


def limits_of(release: SglangRelease, config: SglangConfig) -> Limits:
    """The limits; a frontier lags by a page, by the steps between two slides, and by the interval of the eviction."""
    max_len, keeps_ended = max_request_len(release, config), not release.has("finishing_requests_left_out")
    lag = max(config.page_size, config.sliding_window or 0) + config.window_eviction_interval
    return Limits(
        page_size=config.page_size,
        max_running_requests=config.max_running_requests,
        max_context_len=max_len,
        chunk_len=config.chunk_len,
        window_slack=2 * config.page_size + lag,
        most_launches=2 if config.overlap else 1,
        decodes_after_abort=1 if config.overlap and keeps_ended else 0,
        reuses_in_launch_order=True,
        spare_len=SPARE_TOKENS + 1,
        shares_prefixes=config.role == BOTH and config.caches_prefixes,
        writes_through=config.host_ratio is not None and config.write_policy == WRITE_THROUGH,
        closes_idle_sessions=config.streaming_sessions and config.session_timeout_s is not None,
        draft_len=config.draft_len or 0,
        draft_row_len=0 if config.draft_len is None else row_len(config) - max_len,
    )
