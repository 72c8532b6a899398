"""What each level of `swarden attach` costs a real scheduler: CPU time, in one process, on the same traffic.

    python -m tests.real.costs tiny-gemma3|tiny-gpt-oss [REPETITIONS]

Run with the engine and its packages on the path. A step's time is that of the engine core without its
executor; of several repetitions, in turns with the scheduler alone, the least counts for each step.
"""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from swarden.harness.kit.checkpoints import VOCABULARY
from tests.real.models import BLOCK, write_with_tokenizer
from tests.real.servers import ENVIRONMENT
from tests.real.traffic import FIRST_TOKEN, LENGTHS, NEW_TOKENS

LEVELS = ("alone", "sums", "audit", "census")
SETTINGS = {
    "dtype": "float32",
    "max_model_len": 512,
    "enforce_eager": True,
    "block_size": BLOCK,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 128,
    "num_gpu_blocks_override": 80,
    "scheduling_policy": "priority",
}
REQUESTS, MOST_ALIVE, RESET_EVERY, ABORT_EVERY = 120, 12, 60, 5
WARM_UP = 20  # steps that are left out


class Measured:
    """An engine core whose scheduler is made anew for each run."""

    def __init__(self, model: str) -> None:
        self._module = import_module("vllm.v1.core.sched.scheduler")
        self._kind = self._module.Scheduler
        self._attachment = import_module("swarden.harness.engines.vllm.live")
        self._originals = {name: getattr(self._kind, name) for name in self._attachment.CALLS}
        arguments: dict[str, Any] = {}
        construct = self._kind.__init__

        def keep(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            arguments.update(kwargs)
            construct(scheduler, *args, **kwargs)

        self._kind.__init__ = keep
        config = import_module("vllm.engine.arg_utils").EngineArgs(model=model, **SETTINGS).create_engine_config()
        executor = import_module("vllm.v1.executor.abstract").Executor.get_class(config)
        self._core = import_module("vllm.v1.engine.core").EngineCore(config, executor, log_stats=False)
        self._arguments = arguments
        gc.freeze()  # as vLLM does, so that a collection does not walk its modules

    def steps(self, level: str, out: str) -> list[float]:
        """The CPU seconds of each step with the check at this level."""
        for name, original in self._originals.items():
            setattr(self._kind, name, original)
        if level != "alone":
            self._attachment.wrap(self._module, {"level": level, "on_violation": "raise", "out": out})
        self._core.scheduler = self._kind(**self._arguments)
        return list(self._served(random.Random(5)))

    def _served(self, draws: random.Random) -> Iterator[float]:
        waiting, alive, number = list(_requests(draws)), dict[str, bool](), 0
        with _timed(self._core.model_executor) as in_executor:
            while waiting or self._core.scheduler.has_requests():
                while waiting and len(alive) < MOST_ALIVE:
                    fields, is_aborted = waiting.pop(0)
                    alive[fields["request_id"]] = is_aborted
                    self._core.add_request(self._request(fields))
                number += 1
                began = process_time() - in_executor()
                outputs, has_computed = self._core.step()
                self._core.post_step(has_computed)
                yield process_time() - in_executor() - began
                for of_client in (outputs or {}).values():
                    for output in of_client.outputs:
                        if output.finish_reason is not None:
                            alive.pop(output.request_id, None)
                if number % ABORT_EVERY == 0:
                    aborted = [rid for rid, is_aborted in alive.items() if is_aborted]
                    self._core.abort_requests(aborted)
                    alive = {rid: is_aborted for rid, is_aborted in alive.items() if not is_aborted}
                if number % RESET_EVERY == 0:
                    self._core.reset_prefix_cache()

    def _request(self, fields: Mapping[str, Any]) -> Any:
        sampling = {"temperature": 0.0, "ignore_eos": True, "detokenize": False}
        return import_module("vllm.v1.request").Request(
            **{name: value for name, value in fields.items() if name != "max_tokens"},
            sampling_params=import_module("vllm").SamplingParams(max_tokens=fields["max_tokens"], **sampling),
            pooling_params=None,
            block_hasher=self._core.request_block_hasher,
        )


def _requests(draws: random.Random) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """The fields of each request, and whether it is aborted."""
    prompts: list[list[int]] = []
    for number in range(REQUESTS):
        shared = draws.choice(prompts)[: draws.choice((BLOCK, 3 * BLOCK, BLOCK + 1, 17))] if prompts else []
        own = [draws.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(draws.choice(LENGTHS))]
        prompts = [*prompts[-20:], shared + own]
        fields = {"request_id": str(number), "prompt_token_ids": prompts[-1], "arrival_time": float(number)}
        more = {"max_tokens": draws.choice(NEW_TOKENS), "priority": draws.randrange(3)}
        yield fields | more, draws.random() < 0.15


@contextmanager
def _timed(executor: Any) -> Iterator[Callable[[], float]]:
    """A function that returns the CPU seconds spent in the executor so far."""
    spent, names = [0.0], ("execute_model", "sample_tokens")

    def timed(name: str) -> Callable[..., Any]:
        original = getattr(executor, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            began = process_time()
            try:
                return original(*args, **kwargs)
            finally:
                spent[0] += process_time() - began

        return call

    vars(executor).update({name: timed(name) for name in names})
    try:
        yield lambda: spent[0]
    finally:
        for name in names:
            delattr(executor, name)


def main(model: str, repetitions: int) -> None:
    os.environ.update(ENVIRONMENT, VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR")
    with TemporaryDirectory() as out:
        write_with_tokenizer(model, Path(out))
        measured = Measured(out)
        runs: dict[str, list[Sequence[float]]] = {level: [] for level in LEVELS}
        for _ in range(repetitions):
            for level in LEVELS:
                runs[level].append(measured.steps(level, out)[WARM_UP:])
    least = {level: [*map(min, zip(*of_level, strict=True))] for level, of_level in runs.items()}
    for level, steps in least.items():
        share = sum(steps) / sum(least["alone"])
        sys.stdout.write(f"{level}: {1e6 * sum(steps) / len(steps):.0f} us a step, {share:.2f} ({len(steps)} steps)\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5)
