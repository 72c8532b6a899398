"""Needs sglang and torch; no GPU, no model, no server.  Exit code 1 with the bug, 0 without it, 2 for all else.

From the package: the scheduler with its event loop and policies, the allocators, the pools and the prefix tree.
Replaced: the model, which answers as ANSWERS says; streams and copies, which end at once; the two triton kernels that
compute the slots of new tokens; metrics; the packages of ABSENT that are not installed; and Scheduler.__init__, which
starts sockets, a tokenizer and the worker with its model: the scheduler gets the attributes that its methods read.
"""

import atexit
import dataclasses
import importlib
import logging
import os
import sys
import warnings
from array import array
from collections.abc import Iterator
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from swarden.harness.engines.sglang.standalone.device import (
    CLOCK,
    IS_HYBRID,
    PAGE_SIZE,
    STATE_CHUNK_LEN,
    TREE,
    States,
    Stream,
    answer,
    replace_device,
    rows_with_states,
    silent,
)
from swarden.harness.kit.stand_ins import Missing, Silent
from swarden.harness.kit.standalone import Bug, as_bug, end

ABSENT = ("fastapi", "sgl_kernel", "torchvision", "triton", "uvicorn")  # for GPU kernels, images and HTTP
ENVIRONMENT: dict[str, str] = {}
TORCH = ("torch._dynamo", "torch._inductor.runtime.triton_compat", "torch._inductor.runtime.triton_heuristics")


class Absent(MetaPathFinder, Loader):
    """Lets the imports of packages that are not installed succeed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ABSENT else None

    def create_module(self, spec: ModuleSpec) -> Any:
        module = MagicMock(name=spec.name, __version__="99.0.0")
        module.driver.active.get_current_target.side_effect = RuntimeError("no GPU")
        module.cdiv, module.next_power_of_2 = lambda a, b: -(-a // b), lambda n: 1 << (n - 1).bit_length()
        module.jit = lambda function=None, **_: function if callable(function) else lambda decorated: decorated
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def name_absent() -> None:
    replaced = [name for name in ABSENT if isinstance(getattr(sys.modules.get(name), "__loader__", None), Absent)]
    if replaced:
        print(f"stand-ins: {', '.join(replaced)}", file=sys.stderr)


os.environ.update(ENVIRONMENT)
with suppress(ImportError):  # torch comes before the stand-in for triton
    importlib.import_module("torch.utils._triton").has_triton_package()
    for name in (*TORCH, "torch.utils.flop_counter"):
        importlib.import_module(name)
sys.meta_path.append(Absent())
atexit.register(name_absent)
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch
from sglang.srt import server_args
from sglang.srt.disaggregation.kv_events import StorageMedium
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers import schedule_batch, scheduler
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
from sglang.srt.mem_cache import memory_pool
from sglang.srt.mem_cache.allocator import paged
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import get_parallel
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.session import session_controller
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

SETTINGS: dict[str, Any] = {}  # attributes that Scheduler.__init__ sets beside what it starts
SERVER_ARGS: dict[str, Any] = {}
MAX_CONTEXT_LEN = 64
HAS_HOST = HAS_RESETS = HAS_UNCACHED = HAS_STATES = HAS_EVENTS = TOKENS = COMPUTED = CACHED = False
NOT_SET: list[str] = []  # attributes that Scheduler.__init__ sets for what is replaced, and that are None
LOAD_BACK_THRESHOLD = 0
MAX_STEPS = 200
STEP_S = 0.4


# --- the case
def run(engine: "Engine") -> Iterator[None]:
    """What the clients do; between their calls the event loop makes so many iterations."""
    engine.generate(1, [1, 2, 3], 4)
    yield from engine.finish()


def test_finding() -> None:
    engine = Engine()
    try:
        engine.loop(run(engine))
    except Exception as error:
        raise as_bug(error) from error


class Ended(BaseException):
    """Ends the event loop."""


class Scheduler(scheduler.Scheduler):
    """The scheduler without its sockets and its model, which __init__ starts: it gets the attributes that are read."""

    def __init__(self, **attributes: Any) -> None:
        of_clients: dict[str, Any] = {"aborted": set(), "requests": {}, "waiting_queue": []}
        self.__dict__.update({**dict.fromkeys(NOT_SET), **of_clients, **attributes})

    _record_step_counters = _record_scheduler_state_for_paused_engine = silent

    def run_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """The model: the next token of each request of the batch."""
        self.forward_ct += 1
        if batch.forward_mode.is_extend():
            ends = [start + count for start, count in zip(batch.prefix_lens, batch.extend_lens, strict=True)]
        else:
            ends = batch.seq_lens.tolist()
        if COMPUTED:
            for req in batch.reqs if batch.forward_mode.is_extend() else ():
                if req.rid in self.aborted:
                    raise Bug("computed", f"the prompt of {req.rid} is computed, whose client has aborted it")
        if HAS_STATES:
            self.states.compute(batch, ends)
        places = [end - len(req.origin_input_ids) for req, end in zip(batch.reqs, ends, strict=True)]
        tokens = [answer(req.rid, place) for req, place in zip(batch.reqs, places, strict=True)]
        batch.output_ids = torch.tensor(tokens, dtype=torch.int64)
        counts = {"num_correct_drafts": 0, "num_accepted_tokens": 0, "get_num_generated_tokens": lambda count: count}
        return Missing(next_token_ids=batch.output_ids, logits_output=Missing(), copy_done=Silent(), **counts)

    def on_idle(self) -> None:
        self.new_token_ratio_tracker.reset()

    def _add_request_to_queue(self, req: Any, *args: Any, **kwargs: Any) -> None:
        self.requests[req.rid] = req
        super()._add_request_to_queue(req, *args, **kwargs)


def name_of(number: int) -> str:
    return f"request-{number:04d}"


class Engine:
    """The scheduler with its memory, and its clients."""

    def __init__(self) -> None:
        replace_device()
        args = server_args.ServerArgs(**SERVER_ARGS)
        server_args.set_global_server_args_for_scheduler(args)
        get_parallel()._overrides.update(pp_rank=0, tp_rank=0, attn_tp_rank=0)
        one: Any = Scheduler(**SETTINGS, server_args=args)
        self.scheduler = one
        of_rows = {"size": one.max_running_requests, "max_context_len": MAX_CONTEXT_LEN, "device": "cpu"}
        if HAS_STATES:
            rows: Any = rows_with_states(args, **of_rows)
            one.states = States(rows)
        else:
            rows = memory_pool.ReqToTokenPool(**of_rows, enable_memory_saver=False)
        self.pools: dict[str, Any] = {}
        memory = {"req_to_token_pool": rows, "token_to_kv_pool_allocator": self._allocator(rows)}
        self.tokens = {name: pool.available_size() for name, pool in self.pools.items()}
        components = [ComponentType.FULL]
        if IS_HYBRID:
            components.append(ComponentType.SWA)
        if HAS_STATES:
            components.append(ComponentType.MAMBA)
        params = CacheInitParams(
            disable=args.disable_radix_cache,
            **memory,
            page_size=one.page_size,
            sliding_window_size=one.sliding_window_size,
            chunked_prefill_size=one.chunked_prefill_size,
            tree_components=tuple(components),
            tree_core_backend="python",
            **TREE,
        )
        self.tree = UnifiedRadixCache(params=params)
        self.tree.pretty_print = silent
        if HAS_HOST:
            self.tree.init_hicache(args, params)
            self.tree.load_back_threshold = LOAD_BACK_THRESHOLD
            for entry in self.tree.host_pool_group.entries:
                entry.host_pool.backup_from_device_all_layer = silent
                entry.host_pool.load_to_device_per_layer = silent
        self.sessions = session_controller.SessionController(self.tree)
        vars(one).update(memory, tree_cache=self.tree, session_controller=self.sessions)
        self.ended: set[str] = set()
        self.on_host: set[int] = set()  # the hashes of the pages on the host, by the events
        self._set_up()

    def _allocator(self, rows: Any) -> Any:
        """The allocator over the pools of KV, which it fills in."""
        num_tokens = self.scheduler.full_tokens_per_layer
        of_pool = {"dtype": torch.float32, "head_num": 1, "head_dim": 2, "device": "cpu"}
        sizes = {"size": num_tokens, "dtype": torch.float32, "device": "cpu", "need_sort": False}
        if IS_HYBRID:
            of_window = {"size_swa": self.scheduler.swa_tokens_per_layer, "page_size": PAGE_SIZE}
            layers = {"swa_attention_layer_ids": [0], "full_attention_layer_ids": [1]}
            pool: Any = SWAKVPool(size=num_tokens, **of_window, **layers, **of_pool)
            allocator = SWATokenToKVPoolAllocator(kvcache=pool, **of_window, **sizes)
            self.pools = {"full ": allocator.full_attn_allocator, "SWA ": allocator.swa_attn_allocator}
        else:
            sized: dict[str, Any] = {"page_size": PAGE_SIZE, "enable_memory_saver": False}
            if HAS_STATES:
                sized |= {"full_attention_layer_ids": [1], "mamba_pool": rows.mamba_pool}
                pool = memory_pool.HybridLinearKVPool(num_tokens, **sized, **of_pool)
            else:
                pool = memory_pool.MHATokenToKVPool(num_tokens, **sized, layer_num=1, **of_pool)
            if PAGE_SIZE == 1:
                allocator = TokenToKVPoolAllocator(kvcache=pool, **sizes)
            else:
                allocator = paged.PagedTokenToKVPoolAllocator(page_size=PAGE_SIZE, kvcache=pool, **sizes)
            self.pools = {"": allocator}
        return allocator

    def _set_up(self) -> None:
        """What the scheduler has beside its memory."""
        one: Any = self.scheduler
        ratio = one.init_new_token_ratio
        sender = SimpleNamespace(send_output=self._take)
        model = Missing(
            attn_backend=Missing(),
            kv_cache_dtype_str="auto",
            vocab_size=1 << 30,
            swa_max_total_num_tokens=one.swa_tokens_per_layer,
            effective_logical_max_total_num_tokens=one.max_total_num_tokens,
            hf_text_config=Missing(mamba_chunk_size=STATE_CHUNK_LEN),
        )
        informing = Silent(
            **dict.fromkeys(COUNTING, lambda *_, **__: 0),
            **dict.fromkeys(SAME, lambda batch=None, *_, **__: batch),
            **dict.fromkeys(("enable_metrics", "num_retracted_reqs", "current_scheduler_metrics_enabled"), 0),
            **dict.fromkeys(("is_stats_logging_rank", "num_generated_tokens", "forward_ct_decode"), 0),
            grammar_queue=[],
            enable_kv_cache_events=False,
        )
        if HAS_RESETS:
            one.dllm_manager = informing
        vars(one).update(
            **dict.fromkeys(INFORMING, informing),
            send_to_tokenizer=sender,
            ipc_channels=SimpleNamespace(send_to_tokenizer=sender),
            tp_worker=SimpleNamespace(is_hybrid_swa=one.is_hybrid_swa, model_runner=model),
            model_worker=Missing(war_fastpath_runner=Missing(), last_shared_read_runner=Missing()),
            model_config=model,
            schedule_stream=Stream(),
            forward_stream=Stream(),
            ps=Missing(**{name: value for name, value in SETTINGS.items() if name.endswith(("_size", "_rank"))}),
            spec_algorithm=SpeculativeAlgorithm.from_string(None),
            disaggregation_mode=DisaggregationMode.NULL,
            running_batch=schedule_batch.ScheduleBatch(reqs=[], batch_is_full=False),
            new_token_ratio_tracker=NewTokenRatioTracker(
                init=ratio, min=one.min_new_token_ratio, decay=one.new_token_ratio_decay, current=ratio
            ),
        )
        fields = {field.name: vars(one).get(field.name) for field in dataclasses.fields(SchedulerBatchResultProcessor)}
        fields |= {"enable_overlap_mlx": False, "metrics_collector": Silent(), "logprob_result_processor": Silent()}
        one.batch_result_processor = SchedulerBatchResultProcessor(**fields)
        one.policy = SchedulePolicy(
            one.schedule_policy, self.tree, one.enable_hierarchical_cache, one.enable_priority_scheduling, False
        )

    def _take(self, message: Any, req: Any = None) -> None:
        """Only a request that is aborted is sent like this."""
        if req is not None:
            self.scheduler.aborted.add(req.rid)

    def loop(self, calls: Iterator[None]) -> None:
        """The event loop of the scheduler; before each of its iterations it makes the calls up to the next `yield`."""

        def ingest(*args: Any, **kwargs: Any) -> list[Any]:
            if next(calls, Ended) is Ended:
                raise Ended
            CLOCK.now_s += STEP_S
            self.sessions.maybe_reap(CLOCK.now_s)
            self._look()
            return []

        self.scheduler.ingest_requests = ingest
        with suppress(Ended):
            self.scheduler.event_loop_overlap() if self.scheduler.enable_overlap else self.scheduler.event_loop_normal()

    def step(self, count: int) -> Iterator[None]:
        yield from [None] * count

    def generate(self, number: int, input_ids: list[int], max_new_tokens: int, **further: Any) -> None:
        """The further arguments are those of the request, `stop`, and the `session` with its `offset`."""
        stop, session, offset = (further.pop(name, None) for name in ("stop", "session", "offset"))
        uncached = further.pop("uncached", False)
        params = SamplingParams(max_new_tokens=max_new_tokens, stop_token_ids=stop, temperature=0.0)
        params.normalize(None)
        message = Missing(
            rid=name_of(number),
            input_ids=array("q", input_ids),
            sampling_params=params,
            session_params=Missing(id=str(session), offset=offset) if session is not None else None,
            return_hidden_states=False,
            logprob_start_len=-1,
            **further,
        )
        self.scheduler.handle_generate_request(message)
        if HAS_UNCACHED:
            for req in self.scheduler.waiting_queue:
                if uncached and req.rid == name_of(number):
                    req.skip_radix_cache_insert = True  # as `Req` does with positional_embed_overrides

    def _look(self) -> None:
        """At what an iteration has left."""
        if CACHED:
            for rid, req in self.scheduler.requests.items():
                if req.finished() and rid not in self.ended | self.scheduler.aborted:
                    self.ended.add(rid)
                    tokens = [*req.origin_input_ids, *req.output_ids[:-1]]
                    key = RadixKey(array("q", tokens), req.extra_key)
                    cached = self.tree.match_prefix(MatchPrefixParams(key=key)).device_prefix_len
                    if cached < len(tokens) // PAGE_SIZE * PAGE_SIZE:
                        what = f"of its {len(tokens)} tokens with KV only the first {cached} are cached"
                        raise Bug("cached", f"{rid} has ended, and {what}")
        if HAS_EVENTS:
            for event in self.tree.take_events():
                if getattr(event, "medium", None) == StorageMedium.CPU:
                    stores = hasattr(event, "token_ids")
                    (self.on_host.update if stores else self.on_host.difference_update)(event.block_hashes)
            nodes, held = [self.tree.root_node], 0
            for node in nodes:
                nodes += node.children.values()
                if node.component_data[ComponentType.FULL].host_value is not None:
                    held += len(node.key) // PAGE_SIZE
            if len(self.on_host) > held:
                raise Bug("events", f"the events report {len(self.on_host)} pages on the host, which has {held}")

    def abort(self, number: int) -> None:
        if COMPUTED:
            self.scheduler.aborted.add(name_of(number))
        self.scheduler.abort_request(Missing(rid=name_of(number), abort_all=False))

    def abort_all(self) -> None:
        self.scheduler.abort_request(Missing(rid="", abort_all=True))

    def open_session(self, session: str, timeout: float | None = None) -> None:
        self.sessions.open(Missing(session_id=session, capacity_of_str_len=0, streaming=True, timeout=timeout))

    def close_session(self, session: str) -> None:
        self.sessions.close(Missing(session_id=session))

    def pause(self, mode: str) -> None:
        self.scheduler.pause_generation(Missing(mode=mode))

    def resume(self) -> None:
        self.scheduler._engine_paused = False

    def flush(self) -> None:
        self.tree.evict(EvictParams(num_tokens=10**9, swa_num_tokens=10**9))

    def reset(self, must: bool = False) -> None:
        """Flush the cache."""
        is_done = self.scheduler.flush_cache(empty_cache=False)
        if must and not is_done:
            raise Bug("reset", "the flush is refused, although no request has KV and no pass and no copy is in flight")

    def _unfinished(self) -> list[str]:
        requests = self.scheduler.requests.items()
        return [rid for rid, req in requests if rid not in self.scheduler.aborted and not req.finished()]

    def finish(self) -> Iterator[None]:
        """All requests end, and when the sessions are closed, all memory becomes free."""
        self.resume()
        for _ in range(MAX_STEPS):
            yield
            if not self._unfinished():
                break
        else:
            pools = self.pools.items()
            free = ", ".join(f"{pool.available_size()} of {self.tokens[name]} {name}tokens" for name, pool in pools)
            names = ", ".join(self._unfinished())
            raise Bug("unfinished", f"after {MAX_STEPS} more iterations {names} are unfinished; free are {free}")
        if TOKENS:
            for rid, req in self.scheduler.requests.items():
                got = list(req.output_ids)
                wanted = [answer(rid, place) for place in range(len(got))]
                if got != wanted:
                    what = f"the client of {rid} gets the tokens {got}, and the model has answered {wanted}"
                    raise Bug("tokens", what)
        for session in list(self.sessions.sessions):
            self.close_session(session)
        for _ in range(9):
            yield
        self.flush()
        if names := ", ".join(self.sessions.sessions):
            raise Bug("memory", f"all requests have ended, and sessions are not closed: {names}")
        for name, pool in self.pools.items():
            if pool.available_size() != self.tokens[name]:
                lost = self.tokens[name] - pool.available_size()
                raise Bug("memory", f"all requests have ended, and {lost} {name}tokens are not free")


COUNTING = ("has_waiting_grammars", "pending_member_rows", "_get_num_pending_tokens")
SAME = ("maybe_prepare_mlp_sync_batch", "maybe_convert_decode_to_extend", "prepare_for_forward")
INFORMING = (
    *("dp_attn_adapter", "ngram_embedding_manager", "grammar_manager", "metrics_reporter", "output_streamer"),
    *("future_map", "beam_coordinator", "load_publisher", "load_inquirer", "kv_events_publisher"),
)


if __name__ == "__main__":
    end(test_finding)
