"""An engine core of vLLM whose scheduler swarden does not watch: the release's own step functions, in a loop.

    python some_server.py [--bug] [--asynchronous] [--times] [--block-size N] [--blocks N] ... [then OPTIONS ...]

Each "then" begins another server, with its own options (some_servers.py). The release is the one that Python imports.
A formula takes the place of the model.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from swarden.harness.engines.vllm.boot import VllmRelease, boot
from swarden.harness.engines.vllm.config import FIRST_COME, PRIORITY, VllmConfig
from swarden.harness.engines.vllm.core import build
from swarden.harness.engines.vllm.runner import ResultFuture
from tests.engines.some_servers import hex_of, serve_each

NUM_OUTPUTS_AT_BUG = 4
CONTEXT_LEN, VOCABULARY = 4096, 64
RESET_AT = 3  # the request before which the cache is reset
FLAGS = {
    "asynchronous": "use the AsyncScheduler and a queue of batches",
    "windows-first": "five groups of one window before the one of full attention, as in Gemma 3",
    "priorities": "serve by priority; requests arrive in pairs, the second one before the first",
    "late-aborts": "abort some requests while a pass is computed",
    "mixed": "a group with a window, two of full attention, and one with another window",
}
DEFAULTS = {
    "block-size": 4,
    "blocks": 2048,
    "requests": 12,
    "running": 4,
    "chunk": 16,
    "new-tokens": 6,
    "scale": 1,  # of the lengths of prompts
}


class Executor:
    """The model: it samples a token for each request whose tokens are all computed, late in the step."""

    number_of = int  # the ids of a server are no numbers, and the release asks for none

    def __init__(self, release: VllmRelease) -> None:
        self._release = release
        self.scheduler: Any = None

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        rids = list(output.num_scheduled_tokens)
        reqs = [self.scheduler.requests[rid] for rid in rids]
        sampled = [[(req.num_computed_tokens * 7 + 3) % VOCABULARY] * _is_known(req) for req in reqs]
        self._result = self._release.make(
            "ModelRunnerOutput",
            req_ids=rids,
            req_id_to_index={rid: index for index, rid in enumerate(rids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        return ResultFuture(lambda: None, lambda: True) if rids else self._future()

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        return self._future() if non_block else self._result

    def _future(self) -> ResultFuture:
        result = self._result
        return ResultFuture(lambda: result, lambda: False)


def _is_known(req: Any) -> bool:
    return bool(req.num_computed_tokens >= req.num_tokens)


def plant_use_after_free(num_outputs: int = NUM_OUTPUTS_AT_BUG) -> Callable[[], None]:
    """Plant a bug: a decode frees the last whole block of the prompt of each request with so many outputs.

    Not a shared block, and only a cached one, which the free queue hands out last. Returns a function that removes it.
    """
    kind = import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
    full_attention = import_module("vllm.v1.kv_cache_interface").FullAttentionSpec
    allocate = kind.allocate_slots

    def broken(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = allocate(self, request, *args, **kwargs)
        if request.num_output_tokens == num_outputs and blocks is not None:
            tables = self.coordinator.single_type_managers
            table = next(one for one in tables if isinstance(one.kv_cache_spec, full_attention))
            index = request.num_prompt_tokens // table.block_size - 1
            block = table.req_to_blocks[request.request_id][index]
            if block.ref_cnt == 1 and block.block_hash is not None:
                self.block_pool.free_blocks([block])
        return blocks

    kind.allocate_slots = broken
    return lambda: setattr(kind, "allocate_slots", allocate)


@contextmanager
def use_after_free() -> Iterator[None]:
    """Plant the bug for a while."""
    remove = plant_use_after_free()
    try:
        yield
    finally:
        remove()


def rid_of(number: int) -> str:
    """The ids of a server: of a completion, and of one of several answers."""
    return (f"cmpl-{hex_of(number)}-0-{number:08x}", f"1_chatcmpl-{hex_of(number)}")[number % 2]


def request(release: VllmRelease, hasher: Any, number: int, options: argparse.Namespace) -> Any:
    scale, has_priorities = options.scale, options.priorities
    shared = [1 + token % 50 for token in range(8 * scale * (number % 4))]
    own = [(number * 13 + token) % 60 for token in range(scale * (5 + number % 11))]
    return release.make(
        "Request",
        request_id=rid_of(number),
        prompt_token_ids=shared + own,
        sampling_params=release.code("SamplingParams")(
            max_tokens=options.new_tokens,
            ignore_eos=True,
            temperature=0.0,
            detokenize=False,
            stop_token_ids=[17] * (number % 3 == 0),
        ),
        pooling_params=None,
        arrival_time=float((number - 1) ^ 1 if has_priorities else number),
        priority=number % 3 if has_priorities else 0,
        block_hasher=hasher,
    )


def serve(release: VllmRelease, options: argparse.Namespace, turns: list[float]) -> None:
    groups: dict[str, Any] = {"windows_first": True, "windows": (5,) * 5} if options.windows_first else {}
    if options.mixed:
        groups = {"windows_first": 1, "windows": (5, None, 9)}
    config = VllmConfig(
        **groups,
        asynchronous=options.asynchronous,
        policy=PRIORITY if options.priorities else FIRST_COME,
        block_size=options.block_size,
        num_blocks=options.blocks,
        max_running_requests=options.running,
        max_context_len=CONTEXT_LEN,
        chunk_len=options.chunk,
    )
    with use_after_free() if options.bug else nullcontext():
        executor = Executor(release)
        built = build(release, config, executor)
        executor.scheduler, core = built.scheduler, built.core
        step = core.step if core.batch_queue is None else core.step_with_batch_queue
        turn = 0
        while turn < 2 * options.requests or core.batch_queue or built.scheduler.has_requests():
            turn += 1
            number, is_odd = divmod(turn, 2)
            if number <= options.requests and not is_odd:
                if number == RESET_AT:
                    built.scheduler.reset_prefix_cache(reset_connector=True)  # no effect: a request has blocks
                core.add_request(request(release, built.hasher, number, options))
                if options.late_aborts:
                    core.aborts_queue.put([rid_of(number - 1)])
            if number <= options.requests and number % 5 == 0 and is_odd:
                core.abort_requests([rid_of(number)])
            waits = options.priorities and number <= options.requests and number % 2  # for the other of the pair
            if not waits and (core.batch_queue or built.scheduler.has_requests()):
                turns.append(time.process_time())
                step()
    assert not built.scheduler.requests, "the server has not served all requests"


def main() -> None:
    release = boot(version("vllm"))
    release.model_config  # noqa: B018  # once for all servers
    serve_each(partial(serve, release), FLAGS, DEFAULTS)


if __name__ == "__main__":
    main()
