"""A configuration in the words of a release: the arguments of a server, and lengths and limits."""

from typing import Any

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import FIRST_COME, SglangConfig
from swarden.harness.engines.sglang.parts.host_tier import WRITE_BACK
from swarden.harness.engines.sglang.requests import SPARE_TOKENS
from swarden.harness.kit.part import merged
from swarden.harness.kit.stand_ins import Silent
from swarden.invariants.limits import ARRIVAL, PRIORITY, Ends, Limits, Replays

DEVICE = "cpu"


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
        "disable_radix_cache": not config.caches_prefixes,
        "grammar_backend": "none",
        "page_size": config.page_size,
        "chunked_prefill_size": config.chunk_len,
        "pp_max_micro_batch_size": config.max_running_requests,
        "max_running_requests": config.max_running_requests,
        "enable_priority_scheduling": config.has_priorities,
        "schedule_low_priority_values_first": False,
        "enable_mixed_chunk": config.mixed_batches,
        **merged(terms.server_args for terms in config.terms),
    }


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


def settings_of(release: SglangRelease, config: SglangConfig) -> dict[str, Any]:
    """The attributes of a scheduler that follow from its configuration."""
    full = config.full_pages * config.page_size
    ratio, floor = config.new_token_ratio, config.new_token_ratio_floor
    decay = (ratio - floor) / config.new_token_ratio_decay_steps
    tracker, algorithm = release.code("NewTokenRatioTracker"), release.code("SpeculativeAlgorithm")
    return {
        "page_size": config.page_size,
        "is_hybrid_swa": config.has_window,
        "is_hybrid_ssm": False,
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
        "enable_hierarchical_cache": False,
        "enable_hicache_storage": False,
        "is_mixed_chunk": config.mixed_batches,
        "spec_algorithm": algorithm.from_string(None) if hasattr(algorithm, "from_string") else algorithm.NONE,
        "disaggregation_mode": release.code("DisaggregationMode").NULL,
        "schedule_policy": config.waiting_order,
        "new_token_ratio": ratio,
        "init_new_token_ratio": ratio,
        "min_new_token_ratio": floor,
        "new_token_ratio_decay": decay,
        "new_token_ratio_tracker": (
            Silent(current=ratio) if tracker is None else tracker(init=ratio, min=floor, decay=decay, current=ratio)
        ),
        "enable_priority_scheduling": config.has_priorities,
        "enable_priority_preemption": config.has_priorities,
        "priority_scheduling_preemption_threshold": config.preemption_threshold or 0,
        "schedule_low_priority_values_first": False,
        "abort_on_priority_when_disabled": False,
        "prefill_decode_interval": 0,
        "prefill_decode_interval_min_bs": 0,
        "_prefill_decode_interval_remaining": 0,
        "polling_count": 0,  # counts the polls of the decode side's transfers
        "polling_interval": 1,
    }


def max_pool_len(release: SglangRelease, config: SglangConfig) -> int:
    """ModelRunner.max_token_pool_size: the tokens of the pool that bounds a request."""
    full, swa = config.full_pages * config.page_size, config.swa_pages * config.page_size
    return full if release.has("full_pool_bounds_requests") else min(full, swa)


def max_request_len(release: SglangRelease, config: SglangConfig) -> int:
    """Scheduler.max_req_len: the length in tokens that the context and the pools allow a request to have."""
    return min(config.max_context_len, max_pool_len(release, config)) - 1


def row_len(config: SglangConfig) -> int:
    """The length of a row of the request table."""
    return config.max_context_len + sum([terms.row_len for terms in config.terms])


def limits_of(release: SglangRelease, config: SglangConfig) -> Limits:
    """The limits; a frontier lags by a page, by the steps between two slides, and by the interval of the eviction."""
    max_len, keeps_ended = max_request_len(release, config), not release.has("finishing_requests_left_out")
    lag = max(config.page_size, config.sliding_window or 0) + config.window_eviction_interval
    # With a window, what is asked for is the end of each pass: for the pages before it no promise was found.
    keeps = Ends.PAGES if config.sliding_window is None else Ends.PASSES
    shares = not config.side.is_on and config.caches_prefixes
    return Limits(
        page_size=config.page_size,
        max_running_requests=config.max_running_requests,
        max_context_len=max_len,
        chunk_len=config.chunk_len,
        chunks_count_pages=True,  # 0.5.23: PrefillAdder.ceil_paged_tokens
        window_slack=2 * config.page_size + lag,
        most_launches=config.most_launches,
        decodes_after_abort=(config.most_launches - 1) * keeps_ended,
        reuses_in_launch_order=True,
        waits_by=(PRIORITY, ARRIVAL) if config.waiting_order == FIRST_COME else (),
        spare_len=SPARE_TOKENS + 1,
        draft_row_len=row_len(config) - max_len if config.drafts.is_on else 0,
        shares_prefixes=shares,
        evicts_longest_idle=shares and len(config.components) == 1 and config.host.write_policy != WRITE_BACK,
        replays=Replays(keeps) if shares and not config.states.is_on else None,
        **merged(capability.limits(config) for capability in config.capabilities),
    )
