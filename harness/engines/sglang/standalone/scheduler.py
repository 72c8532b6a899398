"""Needs sglang and torch; no GPU, no model, no server.

From the package: the scheduler with its event loop and policies, the allocators, the pools and the prefix tree.
Replaced: the model, which answers as ANSWERS says; streams and copies, which end at once; the two triton kernels that
compute the slots of new tokens; metrics; and Scheduler.__init__, which starts sockets, a tokenizer and the worker with
its model: the scheduler gets the attributes that its methods read.
"""

import dataclasses
import os
import sys
import unittest
from array import array
from collections import deque
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt import server_args
from sglang.srt.disaggregation.kv_events import StorageMedium
from sglang.srt.managers import schedule_batch, scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.runtime_context import get_parallel
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.session import session_controller

from swarden.harness.engines.sglang.stand_ins import (
    beside_the_scheduler,
    replace_allocator_kernels,
    replace_devices,
    unpin_memory,
)
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.stand_ins import Missing, Silent
from swarden.harness.kit.standalone import run_script

ENVIRONMENT: dict[str, str] = {}
SETTINGS: dict[str, Any] = {}  # attributes that Scheduler.__init__ sets beside what it starts
SERVER_ARGS: dict[str, Any] = {}
IS_HYBRID = False
IS_TEST = HAS_HOST = HAS_UNCACHED = HAS_STATES = HAS_EVENTS = TOKENS = COMPUTED = CACHED = False
PAGE_SIZE = 1
STATE_CHUNK_LEN = 0  # of the model's kernels
STATE_GRID_LEN = 0
ANSWERS: dict[str, list[int]] = {}  # of the model, by request
NOT_SET: list[str] = []  # attributes that Scheduler.__init__ sets for what is replaced, and that are None
LOAD_BACK_THRESHOLD = 0
MAX_STEPS = 200
STEP_S = 0.4


# --- the case
class TestFinding(unittest.TestCase):
    def test_finding(self) -> None:
        engine = Engine()
        engine.generate(1, [1, 2, 3], 4)
        engine.finish()


def answer(rid: str, place: int) -> int:
    """The token that the model samples for a request at a place of its output."""
    tokens = ANSWERS.get(rid, [])
    return tokens[place] if 0 <= place < len(tokens) else 7 + max(0, place)


def made() -> dict[str, Any]:
    """The attributes of the scheduler that are objects of the release."""
    return {}


class Stream(Silent):
    """A stream or an event of a device on which each copy has ended at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(query=lambda: True, elapsed_time=lambda other: 0.0)


CLOCK = EngineClock()
DEVICE = SimpleNamespace(Stream=Stream, Event=Stream, stream=lambda stream: nullcontext(), current_stream=Stream)


def silent(*args: Any, **kwargs: Any) -> None:
    """Measures and informs nobody."""


class Ended(BaseException):
    """Ends the event loop."""


class Scheduler(scheduler.Scheduler):
    """The scheduler without its sockets and its model, which __init__ starts: it gets the attributes that are read."""

    def __init__(self, **attributes: Any) -> None:
        of_clients: dict[str, Any] = {"aborted": set(), "requests": {}, "waiting_queue": []}
        self.__dict__.update({**dict.fromkeys(NOT_SET), **of_clients, **attributes, "results": deque()})

    result_queue = property(lambda self: self.results, lambda self, _: None)  # each start of the loop sets it

    _record_step_counters = _record_scheduler_state_for_paused_engine = silent

    def run_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """The model: the next token of each request of the batch."""
        self.forward_ct += 1
        if batch.forward_mode.is_extend():
            ends = [start + count for start, count in zip(batch.prefix_lens, batch.extend_lens, strict=True)]
        else:
            ends = batch.seq_lens.tolist()
        if COMPUTED:
            what = "computed" if batch.forward_mode.is_extend() else "decoded"
            for req in batch.reqs:
                assert req.rid not in self.aborted, f"the prompt of {req.rid} is {what}, whose client has aborted it"
        if HAS_STATES:
            self.states.read(batch, ends)
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


class Engine:
    """The scheduler with its memory, and its clients."""

    def __init__(self) -> None:
        os.environ.update(ENVIRONMENT)
        modules = [module for name, module in sys.modules.items() if name.startswith("sglang.srt.")]
        CLOCK.serve([session_controller])
        replace_allocator_kernels(modules)
        replace_devices(modules, DEVICE)
        if HAS_STATES:
            unpin_memory([schedule_batch])
        args = server_args.ServerArgs(**SERVER_ARGS)
        server_args.set_global_server_args_for_scheduler(args)
        get_parallel()._overrides.update(pp_rank=0, tp_rank=0, attn_tp_rank=0)
        if HAS_STATES:
            args._mamba_cache_chunk_size = STATE_GRID_LEN
        self.scheduler: Any = Scheduler(**SETTINGS, **made(), server_args=args)
        self.tree = self.scheduler.tree_cache
        if HAS_STATES:
            self.scheduler.states = States(self.scheduler.req_to_token_pool)
        allocator = self.scheduler.token_to_kv_pool_allocator
        if IS_HYBRID:
            self.pools = {"full ": allocator.full_attn_allocator, "SWA ": allocator.swa_attn_allocator}
        else:
            self.pools = {"": allocator}
        self.tokens = {name: pool.available_size() for name, pool in self.pools.items()}
        self.tree.pretty_print = silent
        if HAS_HOST:
            self.tree.init_hicache(args, self.scheduler.params)
            self.tree.load_back_threshold = LOAD_BACK_THRESHOLD
            for entry in self.tree.host_pool_group.entries:
                entry.host_pool.backup_from_device_all_layer = silent
                entry.host_pool.load_to_device_per_layer = silent
        self.sessions = self.scheduler.session_controller = session_controller.SessionController(self.tree)
        self.ended: set[str] = set()
        self.on_host: set[int] = set()  # the hashes of the pages on the host, by the events
        self._set_up()

    def _set_up(self) -> None:
        """What the scheduler has beside its memory."""
        sender, attributes = SimpleNamespace(send_output=self._note_abort), vars(self.scheduler)
        attributes.update(
            **beside_the_scheduler(DEVICE.Stream, 1 << 30),
            send_to_tokenizer=sender,
            ipc_channels=SimpleNamespace(send_to_tokenizer=sender),
        )
        if HAS_STATES:
            self.scheduler.model_config.hf_text_config.mamba_chunk_size = STATE_CHUNK_LEN
        fields = {field.name: attributes.get(field.name) for field in dataclasses.fields(SchedulerBatchResultProcessor)}
        fields |= {"enable_overlap_mlx": False, "metrics_collector": Silent(), "logprob_result_processor": Silent()}
        self.scheduler.batch_result_processor = SchedulerBatchResultProcessor(**fields)

    def _note_abort(self, message: Any, req: Any = None) -> None:
        """Only a request that is aborted is sent like this."""
        if req is not None:
            self.scheduler.aborted.add(req.rid)

    def step(self, count: int = 1) -> None:
        """Make iterations of the event loop of the scheduler."""
        turns = iter(range(count))

        def ingest(*args: Any, **kwargs: Any) -> list[Any]:
            if next(turns, None) is None:
                raise Ended
            CLOCK.now_s += STEP_S
            self.sessions.maybe_reap(CLOCK.now_s)
            if CACHED:
                self.check_cached()
            if HAS_EVENTS:
                self.check_events()
            return []

        self.scheduler.ingest_requests = ingest
        with suppress(Ended):
            self.scheduler.event_loop_overlap() if self.scheduler.enable_overlap else self.scheduler.event_loop_normal()

    def generate(self, number: int, input_ids: list[int], max_new_tokens: int, **further: Any) -> None:
        """The further arguments are those of the request, `stop`, and the `session` with its `offset`."""
        stop, session, offset = (further.pop(name, None) for name in ("stop", "session", "offset"))
        uncached, rid = further.pop("uncached", False), f"request-{number:04d}"
        params = SamplingParams(max_new_tokens=max_new_tokens, stop_token_ids=stop, temperature=0.0)
        params.normalize(None)
        message = Missing(
            rid=rid,
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
                if uncached and req.rid == rid:
                    req.skip_radix_cache_insert = True  # as `Req` does with positional_embed_overrides

    def check_cached(self) -> None:
        """The KV of each request that has ended is cached."""
        for rid, req in self.scheduler.requests.items():
            if req.finished() and rid not in self.ended | self.scheduler.aborted:
                self.ended.add(rid)
                tokens = [*req.origin_input_ids, *req.output_ids[:-1]]
                key = RadixKey(array("q", tokens), req.extra_key)
                cached = self.tree.match_prefix(MatchPrefixParams(key=key)).device_prefix_len
                what = f"of its {len(tokens)} tokens with KV only the first {cached} are cached"
                assert cached >= len(tokens) // PAGE_SIZE * PAGE_SIZE, f"{rid} has ended, and {what}"

    def check_events(self) -> None:
        """The events report no more pages on the host than it has."""
        for event in self.tree.take_events():
            if getattr(event, "medium", None) == StorageMedium.CPU:
                stores = hasattr(event, "token_ids")
                (self.on_host.update if stores else self.on_host.difference_update)(event.block_hashes)
        nodes, held = [self.tree.root_node], 0
        for node in nodes:
            nodes += node.children.values()
            if node.component_data[ComponentType.FULL].host_value is not None:
                held += len(node.key) // PAGE_SIZE
        reported = len(self.on_host)
        assert reported <= held, f"the events report {reported} pages on the host, which has {held}"

    def abort(self, number: int | None = None) -> None:
        """Abort a request, or all."""
        rid = "" if number is None else f"request-{number:04d}"
        if COMPUTED:  # and before any output
            waiting = [req.rid for req in self.scheduler.requests.values() if not req.output_ids]
            self.scheduler.aborted.update(waiting if number is None else {rid}.intersection(waiting))
        self.scheduler.abort_request(Missing(rid=rid, abort_all=number is None))

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
        what = "the flush is refused, although no request has KV and no pass and no copy is in flight"
        assert is_done or not must, what

    def _unfinished(self) -> list[str]:
        requests = self.scheduler.requests.items()
        return [rid for rid, req in requests if rid not in self.scheduler.aborted and not req.finished()]

    def finish(self) -> None:
        """All requests end, and when the sessions are closed, all memory becomes free."""
        self.resume()
        for _ in range(MAX_STEPS):
            self.step()
            if not self._unfinished():
                break
        pools = self.pools.items()
        free = ", ".join(f"{pool.available_size()} of {self.tokens[name]} {name}tokens" for name, pool in pools)
        names = ", ".join(self._unfinished())
        assert not names, f"after {MAX_STEPS} more iterations {names} are unfinished; free are {free}"
        if TOKENS:
            for rid, req in self.scheduler.requests.items():
                take(rid, list(req.output_ids))
        for session in list(self.sessions.sessions):
            self.close_session(session)
        self.step(9)
        self.flush()
        names = ", ".join(self.sessions.sessions)
        assert not names, f"all requests have ended, and sessions are not closed: {names}"
        for name, pool in self.pools.items():
            lost = self.tokens[name] - pool.available_size()
            assert not lost, f"all requests have ended, and {lost} {name}tokens are not free"


def take(rid: str, got: list[int]) -> None:
    """The tokens of an answer are those of the model."""
    wanted = [answer(rid, place) for place in range(len(got))]
    assert got == wanted, f"the client of {rid} gets the tokens {got}, and the model has answered {wanted}"


class States:
    """In place of each recurrent state a number for the tokens that are in it."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.tokens: dict[int, list[int]] = {}  # by number

    def read(self, batch: Any, ends: list[int]) -> None:
        """Read the state of each request; write that behind its tokens, and the one that the batch tracks."""
        pool, is_prefill = self.rows.mamba_pool, batch.forward_mode.is_extend()
        slots = pool.mamba_cache.temporal[0, :, 0, 0, 0]
        if is_prefill:
            if batch.mamba_clear_indices is not None:
                pool.clear_slots(batch.mamba_clear_indices)
            if batch.mamba_cow_src_indices is not None:
                pool.copy_from(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
        for index, (req, stop) in enumerate(zip(batch.reqs, ends, strict=True)):
            tokens, start = [*req.origin_input_ids, *req.output_ids], stop - 1
            tokens += [answer(req.rid, place) for place in range(len(req.output_ids), stop)]
            if is_prefill:
                start = batch.prefix_lens[index]
            own = int(self.rows.req_index_to_mamba_index_mapping[int(batch.req_pool_indices[index])])
            held = int(slots[own])
            what = f"tokens {start} to {stop}, and its state has {len(self.tokens.get(held, []))} tokens in it"
            assert not start or held == self.number(req, tokens[:start]), f"{req.rid} computes {what}"
            slots[own] = self.number(req, tokens[:stop])
            if batch.mamba_track_mask is not None and batch.mamba_track_mask[index]:
                tracked = stop
                if is_prefill and (more := int(batch.mamba_track_seqlens[index]) - start) % STATE_CHUNK_LEN:
                    tracked = start + more // STATE_CHUNK_LEN * STATE_CHUNK_LEN
                slots[int(batch.mamba_track_indices[index])] = self.number(req, tokens[:tracked])

    def number(self, req: Any, tokens: list[int]) -> int:
        number = hash((req.extra_key, *tokens))
        self.tokens[number] = tokens
        return number


if __name__ == "__main__":
    if IS_TEST:
        unittest.main()
    else:
        run_script(TestFinding("test_finding").debug)
