"""Needs the package vllm; no GPU, no model, no server.

From the package: VllmConfig, the scheduler with its cache manager, and the connector.  Replaced: the model runner,
which needs weights, and samples what ANSWERS says; and what copies KV, which needs another process or a GPU.
"""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from vllm.config import KVEventsConfig, ModelConfig, ParallelConfig, SpeculativeConfig
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.model_executor.models import ModelRegistry
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    maybe_convert_block_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from swarden.harness.engines.vllm.standalone.store import PromptStore
from swarden.harness.engines.vllm.standalone.worker import DRAFT_LEN, READS, Copier, Entry, Loads, Runner, answer
from swarden.harness.engines.vllm.transfers import BlockLoad, begin_copies
from swarden.harness.kit.standalone import run_script

NUM_BLOCKS = 97  # with the null block
MODEL_LEN = 512
ASYNCHRONOUS = False
RUNNER_V2 = ""  # VLLM_USE_V2_MODEL_RUNNER
BLOCK_SIZE = 16
DRAFTER = ""
IS_TEST = LOADS = COPIES = HAS_STATES = HAS_PAUSE = HAS_HASHES = HAS_STREAMS = HAS_EVENTS = HAS_PARENTS = HAS_STORE = (
    False
)
WAITS_FOR_EMPTY = False
MAX_STEPS = 200


# --- the case
def test_finding() -> None:
    engine = Engine()
    engine.add("1", [1, 2, 3], max_tokens=4)
    engine.finish()


class Batch(NamedTuple):
    output: Any
    entries: list[Entry]
    report: Any  # of the connector


class TinyModel(torch.nn.Module):
    """For the registry only."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()

    def forward(self, input_ids: Any, positions: Any) -> None: ...

    def embed_input_ids(self, input_ids: Any) -> None: ...

    get_input_embeddings = compute_logits = embed_input_ids


def tiny_model() -> Any:
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if RUNNER_V2:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = RUNNER_V2
    ModelRegistry.register_model("TinyModel", TinyModel)
    config: dict[str, Any] = {"architectures": ["TinyModel"], "model_type": "llama", "torch_dtype": "float32"}
    config |= {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    config |= {"num_hidden_layers": 2, "vocab_size": 1 << 20, "max_position_embeddings": 1 << 20}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        return ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True, max_model_len=MODEL_LEN)


def drafts_for(model: Any) -> Any:
    """Checked as n-grams are, because another method needs a model."""
    if DRAFT_LEN:
        config = SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=DRAFT_LEN,
            prompt_lookup_max=2,
            target_model_config=model,
            target_parallel_config=ParallelConfig(),
        )
        config.method = DRAFTER
        return config
    return None


def made(model: Any, speculative: Any) -> dict[str, Any]:
    """The configurations of the release."""
    return {"model": model, "speculative": speculative}


class Router:
    """Follows the events of the scheduler, which say which blocks of full attention are cached."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.requests: list[Any] = []
        self.hashes: set[Any] = set()
        scheduler.kv_event_publisher.publish = self.publish

    def publish(self, batch: Any) -> None:
        for event in batch.events:
            if isinstance(event, BlockStored):
                if HAS_PARENTS:
                    what = "a block is stored behind one that by the events was not stored"
                    assert event.parent_block_hash in {None, *self.hashes}, what
                self.hashes.update(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                self.hashes.difference_update(event.block_hashes)
            else:
                self.hashes.clear()

    def check_events(self) -> None:
        """The cached blocks of each request are known."""
        for request in self.requests:
            cached = self.scheduler.kv_cache_manager.get_computed_blocks(request)[1] // BLOCK_SIZE
            for number, key in enumerate(request.block_hashes[:cached]):
                what = f"block {number} of the prompt of request {request.request_id}"
                assert maybe_convert_block_hash(key) in self.hashes, f"{what} is cached, and by the events it is not"


class Engine:
    """A scheduler, its clients, and the batches in flight."""

    def __init__(self) -> None:
        if HAS_STORE:
            KVConnectorFactory._registry["PromptStore"] = lambda: PromptStore
        model = tiny_model()
        parts = made(model, drafts_for(model))
        config, cache = parts["vllm_config"], parts["kv_cache_config"]
        if HAS_EVENTS:
            config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
        config.scheduler_config.async_scheduling = ASYNCHRONOUS  # which a CPU platform changes
        config.scheduler_config.disable_hybrid_kv_cache_manager = False
        config.cache_config.num_gpu_blocks = NUM_BLOCKS
        block_size, hash_size = resolve_kv_cache_block_sizes(cache, config)
        config.cache_config.block_size = BLOCK_SIZE
        scheduler = config.scheduler_config.get_scheduler_cls()
        self.scheduler = scheduler(
            config, cache, StructuredOutputManager(config), block_size=block_size, hash_block_size=hash_size
        )
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.runner = Runner(self.pool)
        self.batches: list[Batch] = []
        self.clients: dict[str, list[int]] = {}
        init_none_hash(sha256)
        self.hasher: Any = None
        if HAS_EVENTS:
            self.router = Router(self.scheduler)
        if HAS_HASHES:
            self.hasher = get_request_block_hasher(hash_size, sha256)
        if LOADS:
            self.loads = Loads(self.runner.memory)
        if COPIES:
            self.connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache)
            self.copier = self.connector.connector_worker.worker = Copier(self.runner.memory)

    def add(self, request_id: str, prompt: list[int], **further: Any) -> None:
        """A request, or further input for one that is resumable; what is further is of its sampling, too."""
        names = ("priority", "cache_salt", "resumable")
        of_request = {name: further.pop(name) for name in names if name in further}
        lens = self.runner.prompt_lens
        request = Request(
            request_id=request_id,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(**further, ignore_eos=True, temperature=0.0, detokenize=False),
            pooling_params=None,
            arrival_time=float(len(lens)),
            block_hasher=self.hasher,
            **of_request,
        )
        lens.setdefault(request_id, len(prompt))
        self.runner.memory.salts[request_id] = request.cache_salt
        if HAS_EVENTS:
            self.router.requests.append(request)
        self.scheduler.add_request(request)

    def abort(self, request_ids: list[str]) -> None:
        for request_id in request_ids:  # the scheduler has a set, whose order differs from process to process
            self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def pause(self) -> None:
        self.scheduler.set_pause_state(PauseState.PAUSED_ALL)

    def resume(self) -> None:
        self.scheduler.set_pause_state(PauseState.UNPAUSED)

    def reset(self, running: bool = False, connector: bool = False) -> None:
        self.scheduler.reset_prefix_cache(running, connector)

    def step(self, count: int) -> None:
        """As EngineCore.step, or step_with_batch_queue with two batches."""
        for _ in range(count):
            if self.scheduler.has_requests():
                output = self.scheduler.schedule()
                self.launch(output)
                if ASYNCHRONOUS:
                    has_more = output.total_num_scheduled_tokens or (WAITS_FOR_EMPTY and self.scheduler.has_requests())
                    if len(self.batches) < 2 and has_more:
                        continue
            if self.batches:
                self.complete()

    def launch(self, output: Any) -> None:
        in_flight = {entry.request_id for batch in self.batches for entry in batch.entries}
        entries, report = self.runner.entries(output, in_flight), None
        if COPIES:
            report = self.copied(output)
        if LOADS:
            if HAS_STORE:
                for load in output.kv_connector_metadata.loads:
                    self.loads.begin(load)
                self.loads.saves |= {save.rid: 2 for save in output.kv_connector_metadata.saves}
            else:  # as NixlConnector
                report = self.loads.pass_batch() or KVConnectorOutput()
                for rid, meta in output.kv_connector_metadata.reqs_to_recv.items():
                    prompt = self.scheduler.requests[rid].prompt_token_ids
                    self.loads.begin(BlockLoad(rid, 0, len(prompt), list(prompt), meta.local_block_ids, is_late=True))
        self.batches.append(Batch(output, entries, report))

    def copied(self, output: Any) -> Any:
        """The worker's side of the connector, as the model runner calls it."""
        connector = self.connector
        self.copier.launched += 1  # behind the copies of states
        begin_copies(connector, output, self.copier.launch)
        sent, received = connector.get_finished(output.finished_req_ids)
        meta = connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        return KVConnectorOutput(finished_sending=sent, finished_recving=received, kv_connector_worker_meta=meta)

    def complete(self) -> None:
        """The oldest batch has been computed: its tokens go to the scheduler, and from there to the clients."""
        output, entries, report = self.batches.pop(0)
        for copy in getattr(output, "kv_cache_block_copies", None) or ():
            self.runner.memory.copy(copy.src_block_id, copy.dst_block_id)
        if READS and HAS_STATES and not DRAFT_LEN:
            self.runner.move_states(entries)
        if COPIES:
            self.copier.computed += 1
            self.copier.make()
        sampled = [self.runner.compute(entry) for entry in entries]
        if COPIES:
            self.copier.computed += 1
        if HAS_STORE:
            report = self.loads.pass_batch()
        ids = [entry.request_id for entry in entries]
        result = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=report,
        )
        for of_client in self.scheduler.update_from_output(output, result).values():
            for of_request in of_client.outputs:
                if not HAS_STREAMS:
                    self.take(of_request.request_id, of_request.new_token_ids)
        if HAS_EVENTS and not HAS_PARENTS:
            self.router.check_events()
        if DRAFT_LEN and not ASYNCHRONOUS:
            going_on = [request_id for request_id, tokens in zip(ids, sampled, strict=True) if tokens]
            drafts = [self.runner.drafts[request_id] for request_id in going_on]
            if entries:
                self.scheduler.update_draft_token_ids(DraftTokenIds(going_on, drafts))

    def take(self, request_id: str, new_tokens: list[int]) -> None:
        tokens = self.clients.setdefault(request_id, [])
        tokens += new_tokens
        sampled = [answer(request_id, place) for place in range(len(tokens))]
        assert tokens == sampled, f"the client of request {request_id} gets {tokens}, the model has sampled {sampled}"

    def unfinished(self) -> bool:
        """Whether a request waits for anything but its client."""
        if HAS_STREAMS:
            waits = RequestStatus.WAITING_FOR_STREAMING_REQ
            requests = self.scheduler.requests.values()
            return any(request.status != waits and not request.is_finished() for request in requests)
        return bool(self.scheduler.has_unfinished_requests())

    def finish(self) -> None:
        """All requests end, and all blocks become free."""
        if HAS_PAUSE:
            self.resume()
        for _ in range(MAX_STEPS):
            if self.unfinished():
                self.step(1)
        stuck = [
            f"request {request.request_id}: {request.status.name}, {request.num_computed_tokens} tokens computed"
            for request in self.scheduler.requests.values()
        ]
        free = f"with {self.pool.get_num_free_blocks()} of {NUM_BLOCKS - 1} blocks free"
        what = f"after {MAX_STEPS} more steps requests are unfinished, {free}: {'; '.join(stuck)}"
        assert not self.unfinished(), what
        if HAS_STREAMS:  # they end with their input
            for request_id in list(self.scheduler.requests):
                self.add(request_id, [0], max_tokens=1)
        for _ in range(MAX_STEPS):
            if self.scheduler.has_requests() or self.batches:
                self.step(1)
        self.scheduler.reset_prefix_cache()
        lost = NUM_BLOCKS - 1 - self.pool.get_num_free_blocks()
        assert not lost, f"all requests have ended, and {lost} blocks are not free"


if not IS_TEST:
    if __name__ == "__main__":
        run_script(test_finding)
