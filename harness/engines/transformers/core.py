"""The parts of a release that serve requests: its manager, batch processor, scheduler and cache, without its thread."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from swarden.harness.engines.transformers.boot import TransformersRelease
from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.kit.stand_ins import Silent

CHILD = "__child#"  # between the id of a request and the number of a further sequence, counted from 0
GIB = 1 << 30


class Core(NamedTuple):
    """One manager and what it has made; `allocators` are those of the groups of layers, in order."""

    manager: Any
    processor: Any
    scheduler: Any
    cache: Any
    allocators: Sequence[Any]

    @property
    def offloading(self) -> Any:
        return self.processor.offloading_manager

    @property
    def states(self) -> dict[int, Any]:
        """The release's objects for the requests in its queues, by number."""
        queues = (self.scheduler.waiting_requests, self.scheduler.active_requests)
        return {number_of(rid): state for queue in queues for rid, state in queue.items()}


def number_of(rid: str) -> int:
    """The number of a request: a further sequence has the next ones after the first."""
    base, _, child = rid.partition(CHILD)
    return int(base) + (int(child) + 1 if child else 0)


def build(release: TransformersRelease, config: TransformersConfig, model: Any, token_bytes: int) -> Core:
    """The manager with what it makes; `token_bytes` are those of the KV of a token in one layer."""
    block_bytes = token_bytes * config.page_size * config.num_layers
    batching = release.make(
        "Config",
        page_size=config.page_size,
        num_blocks=config.num_blocks,
        max_batch_tokens=config.chunk_len,
        max_requests_per_batch=config.max_running_requests,
        max_blocks_per_request=0,
        allow_block_sharing=config.block_sharing,
        use_async_batching=config.asynchronous,
        use_cuda_graph=False,
        scheduler_type=config.scheduler,
        safety_margin=config.safety_margin,
        cpu_offload_space=config.cpu_blocks * block_bytes / GIB,
        seed=0,
        auto_switch_to_flash=False,
    )
    generation = release.code("GenerationConfig")(do_sample=False)
    manager = release.code("Manager")(model, generation, batching)
    manager._wake_up_loop = Silent()  # which an idle loop waits for
    manager.continuous_batching_config.max_blocks_per_request = config.decode_blocks  # without a GPU, it is 0
    processor = manager.batch_processor = manager._create_batch_processor()
    manager.current_batch = 0
    cache = processor.cache
    return Core(manager, processor, processor.scheduler, cache, list(cache.cache_allocators.values()))
