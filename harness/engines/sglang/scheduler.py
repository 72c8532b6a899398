"""Builds the scheduler of a release, with its own pools, tree and policies, but without model, sockets and metrics."""

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, NamedTuple

from swarden.harness.core.port import NAMESPACES_PER_ADAPTER
from swarden.harness.engines.sglang.attributes import attributes
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.memory import memory_of, server_args_of, set_environment
from swarden.harness.engines.sglang.parts.pair import BOTH, DECODE, PREFILL
from swarden.harness.engines.sglang.pools import BuiltScheduler
from swarden.harness.engines.sglang.requests import ADAPTER
from swarden.harness.kit.released_code import known
from swarden.harness.kit.stand_ins import Silent
from swarden.harness.kit.streams import Devices

SILENT: Mapping[str, str] = {  # methods by class that only inform others or measure; none of them moves KV
    "Scheduler": (
        "stream_output log_batch_result_stats report_prefill_stats report_decode_stats log_prefill_stats "
        "log_decode_stats log_prefill_stats_late maybe_collect_routed_experts maybe_collect_indexer_topk "
        "stream_output_generation maybe_collect_customized_info _maybe_update_reasoning_tokens _maybe_clear_mm_inputs "
        "maybe_send_health_check_signal update_device_timer _emit_forward_pass_metrics _abort_on_waiting_timeout "
        "_abort_on_running_timeout update_spec_metrics reset_metrics _maybe_log_idle_metrics "
        "_record_step_counters publish_load_snapshot cancel_bubble_timer process_input_requests "
        "launch_batch_sample_if_needed _record_scheduler_state_for_paused_engine"
    ),
    "BatchResultProcessor": (
        "_maybe_collect_routed_experts _maybe_collect_indexer_topk _maybe_collect_customized_info "
        "_maybe_update_reasoning_tokens _validate_pp_skip_output_comm _get_prefill_hidden_capture_mode "
        "materialize_sampling_mask_output"
    ),
}
INTAKES = ("recv_requests", "ingest_requests")  # the first call of each turn of the event loop
IDLE_WORK = ("on_idle", "self_check_during_idle")

LOOPS = {  # the event loop by disaggregation mode, without and with overlap
    (BOTH, False): methodcaller("event_loop_normal"),
    (BOTH, True): methodcaller("event_loop_overlap"),
    (PREFILL, False): methodcaller("event_loop_normal_disagg_prefill"),
    (PREFILL, True): methodcaller("event_loop_overlap_disagg_prefill"),
    (DECODE, False): methodcaller("event_loop_normal_disagg_decode"),
    (DECODE, True): methodcaller("event_loop_overlap_disagg_decode"),
}


class TurnEnded(BaseException):
    """Ends the release's endless event loop after one turn."""


def number_of(extra_key: str | None) -> int:
    """The number of a namespace, from the extra key of a request, to which a release appends the adapter."""
    salt, _, adapter = (extra_key or "").partition(ADAPTER)
    return int(salt or 0) + int(adapter or 0) * NAMESPACES_PER_ADAPTER


class Passes(NamedTuple):
    """The stand-in for the model: `launch` begins a batch, `complete` is called before its result is processed."""

    launch: Callable[[Any], Any]
    complete: Callable[[Any], None]


def build(
    release: SglangRelease,
    config: SglangConfig,
    *,
    passes: Passes,
    on_message: Callable[..., None],
    notice: Callable[[NamedTuple], None],
) -> BuiltScheduler:
    """A scheduler and its memory; `on_message` gets its messages to clients, `notice` the moves of pages."""
    set_environment(config)
    server_args = server_args_of(release, config)
    memory = memory_of(release, config, server_args, notice)
    scheduler = _scheduler_class(release)()
    scheduler.__dict__.update(
        attributes(release, config, memory, on_message), server_args=server_args, swarden_passes=passes
    )
    for capability in config.capabilities:
        capability.equip(release, scheduler)
    scheduler.batch_result_processor = _result_processor(release, scheduler)
    policy = release.code("SchedulePolicy")
    scheduler.policy = policy(**known({**vars(scheduler), "policy": scheduler.schedule_policy}, policy))
    scheduler.request_receiver = SimpleNamespace(recv_requests=partial(_take_in, scheduler))  # from 0.5.14 on
    scheduler.result_queue = deque()  # the event loop makes it before it takes the first request, or a flush
    return BuiltScheduler(scheduler, memory, number_of)


def turn(scheduler: Any) -> None:
    """Make one iteration of the release's own event loop."""
    scheduler.swarden_turns = 0
    loop = LOOPS[scheduler.disaggregation_mode.value, bool(scheduler.enable_overlap)]
    with Devices.stream(scheduler.schedule_stream), suppress(TurnEnded):
        loop(scheduler)


def _outliving_turns(name: str) -> property:
    """An attribute that the start of the event loop sets only once."""

    def get(scheduler: Any) -> Any:
        return scheduler.__dict__[name]

    def set_unless_starting(scheduler: Any, value: Any) -> None:
        if scheduler.swarden_turns or name not in scheduler.__dict__:
            scheduler.__dict__[name] = value

    return property(get, set_unless_starting)


def is_prebuilt(batch: Any) -> bool:
    """Whether a batch stands for prompts that the prefill side computed, which need no pass."""
    return bool(batch.forward_mode.is_prebuilt()) if hasattr(batch.forward_mode, "is_prebuilt") else False


@cache
def _scheduler_class(release: SglangRelease) -> type:
    base = release.code("Scheduler")

    class Scheduler(base):  # type: ignore[misc, valid-type]  # the release has no types here
        """The release's scheduler; the start of the loop in each turn cannot reset `result_queue` and `last_batch`."""

        def __init__(self) -> None:
            self.swarden_missing: set[str] = set()
            self.swarden_turns = 0

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            self.swarden_missing.add(name)
            self.__dict__[name] = None

        result_queue = _outliving_turns("result_queue")
        last_batch = _outliving_turns("last_batch")

        def run_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
            if is_prebuilt(batch):
                return super().run_batch(batch, *args, **kwargs)
            self.forward_ct += 1
            return self.swarden_passes.launch(batch)

        def process_batch_result(self, batch: Any, result: Any) -> None:
            if not is_prebuilt(batch):
                self.swarden_passes.complete(result)
            super().process_batch_result(batch, result)

        def maybe_prepare_mlp_sync_batch(self, batch: Any = None, *args: Any, **kwargs: Any) -> Any:
            return batch

        _maybe_prepare_ngram_embedding = maybe_prepare_mlp_sync_batch

        def _get_num_pending_tokens(self, *args: Any, **kwargs: Any) -> int:
            return 0

    def idle(self: Any) -> None:
        self.new_token_ratio = self.init_new_token_ratio
        self.new_token_ratio_tracker.reset()

    silent = dict.fromkeys(SILENT["Scheduler"].split(), _silent)
    for name, method in {**silent, **dict.fromkeys(INTAKES, _take_in), **dict.fromkeys(IDLE_WORK, idle)}.items():
        setattr(Scheduler, name, method)
    return Scheduler


def _take_in(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Receive nothing; ends the event loop when it is called a second time."""
    self.swarden_turns += 1
    if self.swarden_turns > 1:
        raise TurnEnded
    return []


def _silent(self: Any, *args: Any, **kwargs: Any) -> None:
    return None


def _result_processor(release: SglangRelease, scheduler: Any) -> Any:
    """The release's own processor of results, from 0.5.14 on; before, it was a part of the scheduler."""
    kind = release.code("BatchResultProcessor")
    if kind is None:
        return None
    quiet = type("Processor", (kind,), dict.fromkeys(SILENT["BatchResultProcessor"].split(), _silent))
    fields = {field.name: scheduler.__dict__.get(field.name) for field in dataclasses.fields(kind)}
    fields |= {
        "is_generation": True,
        "enable_overlap_mlx": False,
        "metrics_collector": Silent(),
        "logprob_result_processor": Silent(),
        "output_streamer": Silent(),
        "abort_request": scheduler.abort_request,
        "model_worker": Silent(),
    }
    return quiet(**{name: value for name, value in fields.items() if name in kind.__dataclass_fields__})
