"""A scheduler process of SGLang that swarden does not build: the release's own `Scheduler.__init__` and event loop.

    python some_server.py [--bug] [--overlap] [--times] [--page-size N] [--slots N] ... [then OPTIONS ...]

Each "then" begins another server, with its own options (some_servers.py). The release is the one that Python imports.
The model worker samples from a formula, and a script takes the place of the sockets. Without a GPU the imports of a
release need swarden's stand-ins; swarden has no other part in the scheduler.
"""

import argparse
import json
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from swarden.harness.engines.sglang.boot import SglangRelease, boot
from swarden.harness.engines.sglang.requests import held
from swarden.harness.kit.released_code import known
from swarden.harness.kit.stand_ins import Silent
from tests.engines.some_servers import hex_of, serve_each

WINDOW, CONTEXT_LEN, VOCABULARY = 8, 4096, 64
NUM_OUTPUTS_AT_BUG = 4
TURNS_OF_A_TURN = 20  # of the event loop, for a turn of a session
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "vocab_size": VOCABULARY,
    "intermediate_size": 8,
    "max_position_embeddings": CONTEXT_LEN,
}
ALONE = SimpleNamespace(world_size=1, rank_in_group=0, is_first_rank=True, is_last_rank=True, cpu_group=None)
GROUPS = ("tp_group", "pp_group", "attn_tp_group", "attn_cp_group", "world_group")
RANKS = ("gpu_id", "tp_rank", "moe_ep_rank", "pp_rank", "attn_cp_rank", "moe_dp_rank")
OTHER_RANKS = ("attn_tp_rank", "attn_dp_rank")
DEFAULTS = {
    "page-size": 4,
    "slots": 256,
    "requests": 12,
    "running": 4,
    "chunk": 16,
    "new-tokens": 6,
    "scale": 1,  # of the lengths of prompts
    "sessions": 0,  # streaming sessions, of which each request is a turn
}


class EndOfScript(BaseException):
    """All requests of the script have ended."""


def server_args_of(release: SglangRelease, options: argparse.Namespace) -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(MODEL))
    args = release.code("ServerArgs")(
        model_path=str(folder),
        load_format="dummy",
        device="cpu",
        skip_tokenizer_init=True,
        attention_backend="torch_native",
        sampling_backend="pytorch",
        page_size=options.page_size,
        chunked_prefill_size=options.chunk,
        max_running_requests=options.running,
        pp_max_micro_batch_size=options.running,
        disable_overlap_schedule=not options.overlap,
        disable_cuda_graph=True,
        enable_streaming_session=bool(options.sessions),
    )
    release.code("publish_server_args")(args)
    return args


class Parts(SimpleNamespace):
    """An object whose other attributes are None: parts of a model runner that it has not."""

    def __getattr__(self, _name: str) -> None:
        return None


class Worker(Parts):
    """The model worker: the release's pools, and a formula as the model."""

    model_config = SimpleNamespace(use_ngram_embedding=False)

    def __init__(self, release: SglangRelease, options: argparse.Namespace) -> None:
        window = None if options.full else WINDOW
        super().__init__(
            _release=release, _slots=options.slots, is_hybrid_swa=not options.full, sliding_window_size=window
        )
        sizes = {"size": options.slots, "size_swa": options.slots // 2, "page_size": options.page_size}
        common = {"dtype": release.torch.float32, "device": "cpu"}
        layers = {"swa_attention_layer_ids": [0], "full_attention_layer_ids": [1], "enable_kvcache_transpose": False}
        layers |= {"layer_num": 2, "enable_memory_saver": False}
        pool = "MHATokenToKVPool" if options.full else "SWAKVPool"
        allocator = ("FullAllocator" if options.page_size == 1 else "PagedAllocator") if options.full else "Allocator"
        kind, of_slots = release.code(pool), release.code(allocator)
        kv = kind(**known(sizes | common | layers | {"head_num": 1, "head_dim": 2}, kind))
        rows = release.code("ReqToTokenPool")(options.running, CONTEXT_LEN, "cpu", False)
        self._memory = rows, of_slots(**known(sizes | common | {"kvcache": kv, "need_sort": False}, of_slots))
        embedding = SimpleNamespace(prepare_for_forward=lambda batch, **_: batch)
        self.model_runner = Parts(
            attn_backend=SimpleNamespace(), token_to_kv_pool=kv, ngram_embedding_manager=embedding
        )

    def get_tokens_per_layer_info(self) -> tuple[int, int]:
        return self._slots, self._slots // 2

    def get_memory_pool(self) -> tuple[Any, Any]:
        return self._memory

    def forward_batch_generation(self, batch: Any, **_: Any) -> Any:
        torch = self._release.torch
        logits = import_module("sglang.srt.layers.logits_processor").LogitsProcessorOutput
        return import_module("sglang.srt.managers.utils").GenerationBatchResult(
            logits_output=logits(next_token_logits=torch.empty(0)),
            next_token_ids=((batch.seq_lens * 7 + 3) % VOCABULARY).to(torch.int64),
            can_run_cuda_graph=False,
        )


def scheduler_of(release: SglangRelease, options: argparse.Namespace, turns: list[float]) -> Any:
    """The release's scheduler, without sockets, groups of ranks and watchdogs."""
    script = traffic(release, options)

    class ScriptedScheduler(release.code("Scheduler")):  # type: ignore[misc]  # the release has no types here
        def init_model_worker(self) -> None:
            worker = Worker(release, options)
            worker.model_runner.model_config = self.model_config
            self.__dict__.update(attributes(options), model_worker=worker, tp_worker=worker)

        def init_ipc_channels(self, _ports: Any) -> None:
            silent = SimpleNamespace(send_output=lambda *_: None)
            senders = {"send_to_tokenizer": silent, "send_to_detokenizer": silent}
            self.__dict__.update(senders, ipc_channels=Parts(**senders), recv_from_rpc=None, idle_sleeper=None)
            self.__dict__.update(load_snapshot_writer=None)

        def init_watch_dog_memory_saver_input_blocker(self) -> None:
            self.__dict__.update(recv_skipper=None, input_blocker=None, memory_saver_adapter=None)

        def init_rank_consensus_checker(self) -> None: ...

        def init_startup_timing_summary(self) -> None:
            """Nothing was loaded."""

        def init_request_receiver(self) -> None:
            self.__dict__.update(request_receiver=SimpleNamespace(recv_requests=lambda **_: self.recv_requests()))

        def recv_requests(self) -> list[Any]:
            turns.append(time.process_time())
            received: list[Any] | None = next(script, None)
            if received is None and self.is_fully_idle():
                raise EndOfScript
            return received or []

    ranks: dict[str, Any] = dict.fromkeys(RANKS, 0) | {"dp_rank": None}
    bootstrap = vars(sys.modules[release.code("Scheduler").__module__]).get("bootstrap")
    if bootstrap is not None:
        bootstrap.init_parallel_runtime = bootstrap.init_layer_runtime = lambda **_: None
        places = ranks | dict.fromkeys(OTHER_RANKS, 0) | dict.fromkeys(GROUPS, ALONE)
        release.code("get_parallel")()._overrides.update(places)
    server_args = server_args_of(release, options)
    return ScriptedScheduler(server_args, SimpleNamespace(nccl_port=0), **known(ranks, ScriptedScheduler))


def attributes(options: argparse.Namespace) -> Mapping[str, Any]:
    """The attributes that `Scheduler.init_model_worker` sets."""
    groups = ("tp_cpu_group", "attn_tp_cpu_group", "attn_cp_cpu_group", "dp_tp_cpu_group")
    absent = (
        "draft_worker",
        "min_free_slots_delayer",
        "external_corpus_manager",
        "max_queued_requests",
        "pad_input_ids_func",
    )
    max_req_len = min(CONTEXT_LEN, options.slots) - 1
    return {
        **dict.fromkeys((*groups, *absent)),
        **dict.fromkeys(("forward_stream", "schedule_stream"), Silent()),
        **dict.fromkeys(GROUPS, ALONE),
        "dp_tp_group": SimpleNamespace(world_size=1, first_rank=0, is_first_rank=True),
        "max_total_num_tokens": options.slots,
        "max_prefill_tokens": 16384,
        "max_running_requests": options.running,
        "max_req_len": max_req_len,
        "max_req_input_len": max_req_len - 5,
        "device": "cpu",
        "_war_barrier_enabled": False,
    }


def rid_of(number: int) -> str:
    """The ids of a server: of a request, of one of a batch, and of a look at the server's health."""
    return (f"{hex_of(number)}", f"{hex_of(number)}_{number}", f"HEALTH_CHECK_{hex_of(number)}")[number % 3]


def traffic(release: SglangRelease, options: argparse.Namespace) -> Iterator[list[Any]]:
    """The messages of each turn: a request in every second turn; they share prefixes, and some are aborted.

    A turn of a session begins when the turn before it has ended, and the sessions are closed in the end.
    """
    messages: Any = import_module("sglang.srt.managers.io_struct")
    params: Any = import_module("sglang.srt.sampling.sampling_params").SamplingParams
    sessions = [f"session {number}" for number in range(options.sessions)]
    opened = {"capacity_of_str_len": 0, "streaming": True, "timeout": None}
    yield [messages.OpenSessionReqInput(session_id=name, **opened) for name in sessions]
    for number in range(1, options.requests + 1):
        shared = [1 + token % 50 for token in range(8 * options.scale * (number % 4))]
        own = [(number * 13 + token) % 60 for token in range(options.scale * (5 + number % 11))]
        sampling = params(max_new_tokens=options.new_tokens, temperature=0.0, ignore_eos=number % 3 != 0)
        sampling.normalize(None)
        of_request = {
            "rid": rid_of(number),
            "input_text": "",
            "input_ids": array("q", shared + own) if release.has("token_arrays") else shared + own,
            "sampling_params": sampling,
            "return_logprob": False,
            "logprob_start_len": -1,
            "top_logprobs_num": 0,
            "stream": False,
        }
        if sessions:
            of_request["session_params"] = messages.SessionParams(id=sessions[number % len(sessions)])
        wanted = signature(messages.TokenizedGenerateReqInput).parameters.values()
        absent = dict.fromkeys([one.name for one in wanted if one.default is one.empty])
        yield [messages.TokenizedGenerateReqInput(**(absent | of_request))]
        yield [messages.AbortReq(rid=rid_of(number))] if number % 5 == 0 and not sessions else []
        yield from [[]] * (TURNS_OF_A_TURN if sessions else 0)
    yield [messages.CloseSessionReqInput(session_id=name) for name in sessions]


@contextmanager
def use_after_free() -> Iterator[None]:
    """The body runs with the bug of `plant_use_after_free`."""
    remove = plant_use_after_free()
    try:
        yield
    finally:
        remove()


def plant_use_after_free(num_outputs: int = NUM_OUTPUTS_AT_BUG) -> Callable[[], None]:
    """Plant a bug: a decode frees the page of the first private token of each request with so many outputs.

    Returns a function that removes it.
    """
    batch_class = import_module("sglang.srt.managers.schedule_batch").ScheduleBatch
    prepare = batch_class.prepare_for_decode

    def broken(self: Any) -> None:
        prepare(self)
        for req in self.reqs:
            if len(req.output_ids) == num_outputs:
                begin = held(req, "cache_protected_len")
                slots = self.req_to_token_pool.req_to_token[held(req, "req_pool_idx"), begin : begin + 1]
                allocator = self.token_to_kv_pool_allocator
                getattr(allocator, "full_attn_allocator", allocator).free(slots.long())

    batch_class.prepare_for_decode = broken
    return lambda: setattr(batch_class, "prepare_for_decode", prepare)


def serve(release: SglangRelease, options: argparse.Namespace, turns: list[float]) -> None:
    scheduler = scheduler_of(release, options, turns)
    with use_after_free() if options.bug else nullcontext(), suppress(EndOfScript):
        (scheduler.event_loop_overlap if options.overlap else scheduler.event_loop_normal)()


def main() -> None:
    release = boot(version("sglang"))
    import_module("sglang.srt.models.registry")  # all models, which each server would import
    serve_each(partial(serve, release), {"overlap": "run event_loop_overlap", "full": "full attention alone"}, DEFAULTS)


if __name__ == "__main__":
    main()
