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
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, SupportsHMA
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
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from swarden.harness.engines.vllm.standalone.worker import (
    DRAFT_LEN,
    GROUPS,
    IN_BACKGROUND,
    READS,
    SAVES,
    Copier,
    Entry,
    Load,
    Loads,
    Runner,
    answer,
)
from swarden.harness.kit.standalone import run_script

NUM_BLOCKS = 97  # with the null block
MODEL: dict[str, Any] = {"max_model_len": 512}
SCHEDULER: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "policy": "fcfs"}
CACHE: dict[str, Any] = {"block_size": 16, "enable_prefix_caching": True}
RETENTION: dict[str, Any] = {}  # of KVCacheConfig
ASYNCHRONOUS = False
RUNNER_V2 = ""  # VLLM_USE_V2_MODEL_RUNNER
CONNECTOR: dict[str, Any] = {}  # of KVTransferConfig
EXTERNAL_LEN = 0  # so many tokens of each prompt are in the store of the connector
DRAFTER = ""
IS_TEST = LOADS = COPIES = HAS_STATES = HAS_PAUSE = HAS_HASHES = HAS_STREAMS = HAS_EVENTS = False
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


def vllm_config() -> Any:
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if RUNNER_V2:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = RUNNER_V2
    ModelRegistry.register_model("TinyModel", TinyModel)
    config: dict[str, Any] = {"architectures": ["TinyModel"], "model_type": "llama", "torch_dtype": "float32"}
    config |= {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    config |= {"num_hidden_layers": 2, "vocab_size": 1 << 20, "max_position_embeddings": 1 << 20}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        model = ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True, **MODEL)
    parts: dict[str, Any] = {}
    if DRAFT_LEN:
        parts["speculative_config"] = SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=DRAFT_LEN,
            prompt_lookup_max=2,
            target_model_config=model,
            target_parallel_config=ParallelConfig(),
        )
        parts["speculative_config"].method = DRAFTER
    if EXTERNAL_LEN:
        CONNECTOR.update(kv_connector=StoreConnector.__name__, kv_connector_module_path=__name__)
    if CONNECTOR:
        parts["kv_transfer_config"] = KVTransferConfig(**CONNECTOR)
    if HAS_EVENTS:
        parts["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    whole = VllmConfig(
        model_config=model,
        scheduler_config=SchedulerConfig(enable_chunked_prefill=True, is_encoder_decoder=False, **MODEL, **SCHEDULER),
        cache_config=CacheConfig(**CACHE),
        device_config=DeviceConfig(device="cpu"),
        **parts,
    )
    whole.scheduler_config.async_scheduling = ASYNCHRONOUS  # which a CPU platform changes
    whole.scheduler_config.disable_hybrid_kv_cache_manager = False
    whole.cache_config.num_gpu_blocks = NUM_BLOCKS
    return whole


def kv_cache_config() -> Any:
    groups = [KVCacheGroupSpec([str(number)], spec(*group)) for number, group in enumerate(GROUPS)]
    tensors: list[Any] = []
    if COPIES:
        layers = [str(number) for number in range(len(GROUPS))]
        tensors = [KVCacheTensor(size=4096 * NUM_BLOCKS, layers=layers, layer_stride=0, block_stride=0)]
    return KVCacheConfig(num_blocks=NUM_BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=groups, **RETENTION)


def spec(window: int | None, size: int) -> Any:
    layer = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    if HAS_STATES:
        if window == 0:
            mode = {"mamba_cache_mode": CACHE["mamba_cache_mode"], "num_speculative_blocks": DRAFT_LEN}
            return MambaSpec(block_size=size, shapes=((1,),), dtypes=(torch.float32,), **mode)
    if window is not None:
        return SlidingWindowSpec(**layer, sliding_window=window)
    return FullAttentionSpec(**layer)


class StoreConnector(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's side of a connector whose store has the first EXTERNAL_LEN tokens of each prompt."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.loads: list[Load] = []
        self.starts: dict[str, int] = {}
        self.saves: list[str] = []

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        prompt_len, size = request.num_prompt_tokens, max(size for _, size in GROUPS)
        if IN_BACKGROUND and 1 < prompt_len <= EXTERNAL_LEN:
            count = prompt_len - num_computed_tokens  # the whole prompt, as NixlConnector
        else:
            count = min(EXTERNAL_LEN, prompt_len - 1) // size * size - num_computed_tokens
        self.starts[request.request_id] = num_computed_tokens
        return max(0, count), IN_BACKGROUND and count > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens > 0:
            start = self.starts[request.request_id]
            tables = [list(group) for group in blocks.get_block_ids()]
            self.loads.append(Load(request, range(start, start + num_external_tokens), tables))

    def build_connector_meta(self, scheduler_output: Any) -> list[Load | str]:
        """The loads that begin, and the requests whose KV is sent to the store."""
        begun: list[Load | str] = [*self.loads, *self.saves]
        self.loads, self.saves = [], []
        return begun

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        if SAVES:
            self.saves += [request.request_id] * any(block_ids)
        return SAVES and any(block_ids), None

    request_finished_all_groups = request_finished

    def reset_cache(self) -> bool:
        return True

    def start_load_kv(self, *args: Any, **kwargs: Any) -> None: ...

    wait_for_layer_load = save_kv_layer = wait_for_save = start_load_kv


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
                self.hashes.update(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                self.hashes.difference_update(event.block_hashes)
            else:
                self.hashes.clear()

    def check_events(self) -> None:
        """The cached blocks of each request are known."""
        for request in self.requests:
            cached = self.scheduler.kv_cache_manager.get_computed_blocks(request)[1] // CACHE["block_size"]
            for number, key in enumerate(request.block_hashes[:cached]):
                what = f"block {number} of the prompt of request {request.request_id}"
                assert maybe_convert_block_hash(key) in self.hashes, f"{what} is cached, and by the events it is not"


class Engine:
    """A scheduler, its clients, and the batches in flight."""

    def __init__(self) -> None:
        config, cache = vllm_config(), kv_cache_config()
        block_size, hash_size = resolve_kv_cache_block_sizes(cache, config)
        config.cache_config.block_size = min(size for _, size in GROUPS)
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
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

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
            if EXTERNAL_LEN:
                for one in output.kv_connector_metadata:
                    self.loads.begin(one)
            else:  # as NixlConnector
                report = self.loads.pass_batch() or KVConnectorOutput()
                for rid, meta in output.kv_connector_metadata.reqs_to_recv.items():
                    request = self.scheduler.requests[rid]
                    self.loads.begin(Load(request, range(request.num_prompt_tokens), meta.local_block_ids))
        self.batches.append(Batch(output, entries, report))

    def copied(self, output: Any) -> Any:
        """The worker's side of the connector, as the model runner calls it."""
        connector = self.connector
        connector.handle_preemptions(output.kv_connector_metadata)
        connector.bind_connector_metadata(output.kv_connector_metadata)
        loads_first = getattr(output, "has_sync_kv_loads", True)
        self.copier.launched += 1  # behind the copies of states
        if loads_first:
            connector.start_load_kv(None)
        self.copier.launched += 1
        if not loads_first:
            connector.start_load_kv(None)
        connector.wait_for_save()
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
        if EXTERNAL_LEN:
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
            for one in of_client.outputs:
                if not HAS_STREAMS:
                    self.take(one.request_id, one.new_token_ids)
        if HAS_EVENTS:
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
            return any(one.status != waits and not one.is_finished() for one in self.scheduler.requests.values())
        return bool(self.scheduler.has_unfinished_requests())

    def finish(self) -> None:
        """All requests end, and all blocks become free."""
        if HAS_PAUSE:
            self.resume()
        for _ in range(MAX_STEPS):
            if self.unfinished():
                self.step(1)
        stuck = [
            f"request {one.request_id}: {one.status.name}, {one.num_computed_tokens} tokens computed"
            for one in self.scheduler.requests.values()
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
