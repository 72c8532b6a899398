"""Needs the packages transformers and torch; no GPU.

From the package: the manager, its batch processor, and a tiny model with random weights.  Replaced: what is sampled, by
ANSWERS; and the streams of a GPU, on which all is done at once.
"""

import sys
from typing import Any

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.generation.continuous_batching import input_outputs, offloading_manager
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchingManager

from swarden.harness.kit.stand_ins import Silent
from swarden.harness.kit.standalone import run_script

MODEL: dict[str, Any] = {}
IS_ASYNCHRONOUS = False
HAS_STREAMS = IS_TEST = False
ANSWERS: dict[str, list[int]] = {}  # the tokens of each answer
MOST_STEPS = 200


# --- the case
def test_finding() -> None:
    server = Server()
    server.finish()


def made() -> dict[str, Any]:
    """The settings of the manager."""
    return {}


class TorchWithoutGPU:
    Event = staticmethod(lambda *_, **__: Silent())  # on a stream without a GPU all is done at once

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return torch.empty(*args, **kwargs)


class Server:
    """A manager without its thread: each step is one turn of its loop."""

    def __init__(self) -> None:
        if HAS_STREAMS:
            input_outputs.torch = offloading_manager.torch = TorchWithoutGPU()
        if IS_ASYNCHRONOUS:
            input_outputs.create_device_stream = lambda device: Silent()
            input_outputs.ContinuousBatchingAsyncIOs._supported_device_types = ("cpu",)
            for name in ("input_outputs", "model_runner", "offloading_manager", "continuous_api"):
                module: Any = sys.modules[f"transformers.generation.continuous_batching.{name}"]
                module.stream_context = lambda stream: torch.no_grad()
        torch.manual_seed(0)
        torch.set_num_threads(1)
        sizes = {"hidden_size": 2, "intermediate_size": 4, "num_attention_heads": 1, "num_key_value_heads": 1}
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=2, attn_implementation="sdpa", **MODEL))
        self.manager = ContinuousBatchingManager(model, GenerationConfig(do_sample=False), made()["config"])
        self.manager._wake_up_loop.wait = lambda timeout: None
        self.processor = self.manager.batch_processor = self.manager._create_batch_processor()
        self.manager.current_batch = 0
        self.processor.model_runner._sample = self.sample
        self.is_bootstrapping = IS_ASYNCHRONOUS
        self.prompt_lens: dict[str, int] = {}
        self.unfinished: set[str] = set()

    def add(
        self, request_id: str, prompt: list[int], max_new_tokens: int, stop: tuple[int, ...] = (), sequences: int = 1
    ) -> None:
        self.manager.num_return_sequences = sequences
        for name in [request_id, *[f"{request_id}__child#{n}" for n in range(sequences - 1)]]:
            self.prompt_lens[name] = len(prompt)
            self.unfinished.add(name)
        self.manager.add_request(
            prompt, request_id=request_id, max_new_tokens=max_new_tokens, streaming=True, eos_token_id=list(stop)
        )

    def cancel(self, request_id: str) -> None:
        self.unfinished.discard(request_id)
        self.manager.cancel_request(request_id)

    def sample(self, scores: Any, output_ids: Any) -> None:
        ios = io = self.processor.inputs_and_outputs
        if IS_ASYNCHRONOUS:
            io = ios.io_pairs[ios.current_pair].host_io
        states = [scheduled.state for scheduled in io.requests_in_batch if scheduled.has_new_token]
        for row, state in enumerate(states):
            place = state.position_offset - self.prompt_lens[state.request_id]
            output_ids[0, row] = dict(enumerate(ANSWERS[state.request_id])).get(place, 0)

    def step(self, count: int) -> None:
        for _ in range(count):
            goes_on = self.manager._generation_loop_body(self.processor, bootstrapping=self.is_bootstrapping)
            self.is_bootstrapping &= goes_on
            outputs = self.manager.output_router.output_queue
            while not outputs.empty():
                output = outputs.get()
                if output.is_finished():
                    self.unfinished.discard(output.request_id)

    def finish(self) -> None:
        for _ in range(MOST_STEPS):
            if self.unfinished:
                self.step(1)
        what = f"requests {sorted(self.unfinished)} are not answered after {MOST_STEPS} further steps"
        assert not self.unfinished, what


if not IS_TEST:
    if __name__ == "__main__":
        run_script(test_finding)
