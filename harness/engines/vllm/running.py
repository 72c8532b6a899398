"""A scheduler of a running server: its memory and its configuration, as far as they are known."""

from collections.abc import Callable, Container
from typing import Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.layers import pool_len, specs_of
from swarden.harness.kit.calls import Wrap
from swarden.harness.strict.follow import UnknownScheduler, numbering

KEPT = 10_000
NOT_IN_A_REPLAY = {"enable_chunked_prefill": True, "prefill_schedule_interval": 1}


def built_of(release: VllmRelease, scheduler: Any, number_of: Callable[[str], int], wrap: Wrap) -> BuiltCore:
    """The scheduler with its memory, all of it free; raises UnknownScheduler if a part of it is not known."""
    for reason, is_unknown in REFUSALS.items():
        if is_unknown(release, scheduler):
            raise UnknownScheduler(reason)
    manager = scheduler.kv_cache_manager
    return BuiltCore(None, scheduler, manager, manager.block_pool, None, number_of, wrap)


REFUSALS: dict[str, Callable[[VllmRelease, Any], bool]] = {
    "its class is not one of the release's two": lambda release, scheduler: (
        type(scheduler) not in (release.code("Scheduler"), release.code("AsyncScheduler"))
    ),
    "it uses speculative decoding": lambda _, scheduler: bool(scheduler.num_spec_tokens),
    "it has a KV connector": lambda _, scheduler: scheduler.connector is not None,
    "it is one of several pipeline stages": lambda _, scheduler: scheduler.use_pp,
    "it has context parallelism": lambda _, scheduler: scheduler.dcp_world_size * scheduler.pcp_world_size > 1,
    "it serves a pooling model": lambda _, scheduler: scheduler.vllm_config.model_config.runner_type == "pooling",
    "it has other layers than full attention and sliding windows": lambda release, scheduler: (
        not {*map(type, specs_of(scheduler))} <= {release.code("FullAttentionSpec"), release.code("SlidingWindowSpec")}
    ),
    "it has no layers of full attention": lambda release, scheduler: (
        release.code("FullAttentionSpec") not in map(type, specs_of(scheduler))
    ),
    "its blocks are in use already": lambda _, scheduler: (
        scheduler.kv_cache_manager.block_pool.get_num_free_blocks() != pool_len(scheduler)
    ),
}


def config_of(release: VllmRelease, scheduler: Any) -> VllmConfig:
    """The configuration with which the adapter builds such a scheduler; raises UnknownScheduler if it cannot."""
    groups, full_attention = specs_of(scheduler), release.code("FullAttentionSpec")
    whole_at = [*map(type, groups)].index(full_attention)
    whole = groups.pop(whole_at)
    try:
        return VllmConfig(
            block_size=whole.block_size,
            num_blocks=pool_len(scheduler),
            windows=tuple([None if type(spec) is full_attention else spec.sliding_window for spec in groups]),
            window_block_sizes=tuple([spec.block_size for spec in groups]),
            windows_first=whole_at,
            max_running_requests=scheduler.max_num_running_reqs,
            max_context_len=scheduler.max_model_len,
            chunk_len=scheduler.max_num_scheduled_tokens,
            long_prefill_token_threshold=scheduler.scheduler_config.long_prefill_token_threshold,
            policy=scheduler.policy.value,
            prefix_caching=scheduler.kv_cache_manager.enable_caching,
            asynchronous=isinstance(scheduler, release.code("AsyncScheduler")),
            second_runner=release.has("second_runner") and bool(scheduler.use_v2_model_runner),
            retention_interval=getattr(scheduler.kv_cache_config, "prefix_cache_retention_interval", None),
            watermark=getattr(scheduler.scheduler_config, "watermark", 0.0),
        )
    except InvalidConfig as error:
        raise UnknownScheduler(f"its configuration cannot be built again: {error}") from error


def differences(scheduler: Any) -> list[str]:
    """The settings of a scheduler that its configuration lacks, which a replay does not have either."""
    config = scheduler.scheduler_config
    values = {name: getattr(config, name, usual) for name, usual in NOT_IN_A_REPLAY.items()}
    return [f"{name} {value}" for name, value in values.items() if value != NOT_IN_A_REPLAY[name]]


class RequestNumbers:
    """Numbers the requests from 1, and their namespaces; an id that is used again gets another number.

    The numbers of the newest KEPT requests are kept, and those of the requests in `live`.
    """

    def __init__(self, live: Container[str]) -> None:
        self._live = live
        self.of_namespace = numbering()
        self._numbers: dict[str, int] = {}
        self._last, self._most = 0, 2 * KEPT

    def __call__(self, rid: str) -> int:
        return self._numbers[rid] if rid in self._numbers else self.begin(rid)

    def begin(self, rid: str) -> int:
        """The number of a new request."""
        self._last += 1
        self._numbers[rid] = self._last
        if len(self._numbers) > self._most:
            oldest = self._last - KEPT
            self._numbers = {rid: n for rid, n in self._numbers.items() if n > oldest or rid in self._live}
            self._most = len(self._numbers) + KEPT
        return self._last
