"""Checkpoints with random weights, and two ways to serve the same requests of one, whose outputs must be equal."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.pair import Pair
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages
from swarden.harness.bench.timing import Measured, Paired, in_turns, timed
from swarden.harness.core.imports import importing

SHAPES: dict[str, dict[str, int]] = {  # of Gemma 3: tied embeddings, one layer in three reads the whole prefix
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 1024},
    "100m": {"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 12, "vocab_size": 32_768},
}
WINDOW = 64
PAGE_SIZE = 16
Prompts = Sequence[Sequence[int]]


class Checkpoint(NamedTuple):
    """A name in `SHAPES`, and the folder of the checkpoint."""

    name: str
    directory: Path

    def tokens(self, random: Random, count: int) -> list[int]:
        """Random tokens; 0 and 1 are reserved for the model."""
        return [random.randrange(2, SHAPES[self.name]["vocab_size"]) for _ in range(count)]


class Served(NamedTuple):
    """The CPU seconds of serving all requests, and the output of each."""

    seconds: float
    outputs: list[list[int]]


@dataclass(frozen=True, slots=True)
class Race:
    """Tokens per second of CPU of both ways, pair by pair, and which requests have equal outputs."""

    speeds: Paired
    are_equal: Sequence[bool]

    def measured(self, case: str, notes: str, figures: Mapping[str, Any]) -> Measured:
        first, second = self.speeds.sides
        return Measured(
            f"{case}: {self.speeds.ratio:.2f} ({first:.1f} / {second:.1f} {notes}; "
            f"{sum(self.are_equal)} of {len(self.are_equal)} outputs equal)",
            figures,
            is_wrong=not all(self.are_equal),
        )


def race(first: Callable[[], Served], second: Callable[[], Served], *, tokens: int, pairs: int) -> Race:
    """Serve the same requests both ways in turns; `tokens` are counted for the speed."""
    rounds = list(islice(in_turns(first, second), pairs))
    speeds = Paired([[tokens / served.seconds for served in both] for both in rounds])
    ours, theirs = rounds[-1]
    return Race(speeds, [one == other for one, other in zip(ours.outputs, theirs.outputs, strict=True)])


def serve(engine: Engine | Pair, load: Prompts, new_tokens: int) -> Served:
    """Serve greedily, each request to its last token."""
    seconds, generations = timed(lambda: engine.generate(load, SamplingParams(new_tokens)))
    return Served(seconds, [generation.token_ids for generation in generations])


def config_for(load: Prompts, new_tokens: int) -> EngineConfig:
    """A configuration with memory for all requests at once."""
    longest = max(map(len, load)) + new_tokens
    return EngineConfig(
        page_size=PAGE_SIZE,
        full_pages=len(load) * num_pages(longest, PAGE_SIZE),
        max_running_requests=len(load),
        max_context_len=longest,
    )


def on_each_checkpoint(head: str, measure: Callable[..., Iterator[Measured]], *, pairs: int) -> Iterator[Measured]:
    """The measurements of all shapes after their headline, one checkpoint at a time."""
    yield Measured(head)
    for name in SHAPES:
        with made(name) as checkpoint:
            yield from measure(checkpoint, pairs=pairs)


@contextmanager
def made(name: str) -> Iterator[Checkpoint]:
    """A temporary checkpoint with random weights, written by transformers."""
    module, shape = transformers(), SHAPES[name]
    config = module.Gemma3TextConfig(
        **shape,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=shape["hidden_size"] // 8,
        query_pre_attn_scalar=shape["hidden_size"] // 8,
        sliding_window=WINDOW,
        layer_types=[
            "full_attention" if layer % 3 == 2 else "sliding_attention" for layer in range(shape["num_hidden_layers"])
        ],
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    with TemporaryDirectory(prefix="swarden-") as folder:
        module.Gemma3ForCausalLM(config).save_pretrained(folder)
        yield Checkpoint(name, Path(folder))


def transformers() -> Any:
    """The module, without its output; raises UsageError if it is not installed."""
    with importing("the baseline of the benchmark"):
        module = import_module("transformers")
    module.logging.set_verbosity_error()
    module.logging.disable_progress_bar()
    # It warns about a missing psutil, which it does not need.
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    return module
