"""Tokens per second of our engine against transformers' own continuous batching: one process, one checkpoint.

Both serve the same requests greedily on one CPU thread, each to its last token.  The baseline runs with its best
setting of `SWEEP`, after a warm-up request.  The time of a single request for one token is subtracted from its time.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple, TypeVar

import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages
from swarden.harness.core.imports import importing

REQUESTS = 32
FAMILIES = 4  # of requests with a common prefix
SHARED_LEN = 96
OWN_LENS = range(16, 48)
NEW_TOKENS = 32
ROUNDS = 3  # the result is their median
PAGE_SIZE = 16
SHAPES: dict[str, dict[str, int]] = {  # of Gemma 3: tied embeddings, one layer in three reads the whole prefix
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 1024},
    "100m": {"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 12, "vocab_size": 32_768},
}
WINDOW = 64
FigureT = TypeVar("FigureT")


class BaselineSetting(NamedTuple):
    """The settings of the baseline: attention, tokens per block, most tokens per batch."""

    attention: str
    page_size: int
    max_batch_tokens: int


SWEEP = [BaselineSetting(*values) for values in product(("sdpa", "paged|eager"), (16, 256), (64, 256, 1024))]
SWEPT_REQUESTS = 16  # of the load; the best setting then runs all of it


class Speed(NamedTuple):
    """Output tokens per second of CPU, and the outputs, request by request."""

    tokens_per_second: float
    outputs: list[list[int]]


@dataclass(frozen=True, slots=True)
class Race:
    """The speeds of both engines on one checkpoint and one load; `setting` is the best setting of the baseline."""

    checkpoint: str
    is_shared: bool
    ours: float
    theirs: float
    setting: BaselineSetting
    equal_outputs: int

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    def __str__(self) -> str:
        load = "shared prefixes" if self.is_shared else "no shared prefixes"
        return (
            f"{self.checkpoint}, {load}: {self.ratio:.2f} ({self.ours:.1f} / {self.theirs:.1f} output tokens a second "
            f"of CPU; {self.equal_outputs} of {REQUESTS} outputs equal; theirs best with {self.setting.attention}, "
            f"blocks of {self.setting.page_size}, {self.setting.max_batch_tokens} tokens a batch)"
        )


def prompts(vocab_size: int, *, is_shared: bool, seed: int = 0) -> list[list[int]]:
    """Prompts with or without common prefixes, of the same lengths; tokens 0 and 1 are reserved for the model."""
    random = Random(seed)

    def some(count: int) -> list[int]:
        return [random.randrange(2, vocab_size) for _ in range(count)]

    prefixes = [some(SHARED_LEN) for _ in range(FAMILIES)]
    return [
        [*(prefixes[index % FAMILIES] if is_shared else some(SHARED_LEN)), *some(OWN_LENS[index % len(OWN_LENS)])]
        for index in range(REQUESTS)
    ]


def race(checkpoint: str, directory: Path, *, is_shared: bool, rounds: int = ROUNDS) -> Race:
    """Run both engines in turns; each measurement is the median of the rounds."""
    load = prompts(SHAPES[checkpoint]["vocab_size"], is_shared=is_shared)
    models = {setting.attention: _baseline(directory, setting.attention) for setting in SWEEP}
    for model in models.values():
        _theirs(model, load[:1], SWEEP[0])
    _ours(directory, load[:1])
    sweep = {setting: _theirs(models[setting.attention], load[:SWEPT_REQUESTS], setting) for setting in SWEEP}
    best = max(sweep, key=lambda setting: sweep[setting].tokens_per_second)
    theirs, ours = [], []
    for _ in range(rounds):
        ours.append(_ours(directory, load))
        theirs.append(_theirs(models[best.attention], load, best))
    equal = sum(one == other for one, other in zip(ours[0].outputs, theirs[0].outputs, strict=True))
    return Race(
        checkpoint,
        is_shared,
        median(speed.tokens_per_second for speed in ours),
        median(speed.tokens_per_second for speed in theirs),
        best,
        equal,
    )


def race_all(*, rounds: int = ROUNDS) -> list[Race]:
    """Races on every checkpoint, without shared prefixes and with them."""

    def both(checkpoint: str, directory: Path) -> list[Race]:
        return [race(checkpoint, directory, is_shared=is_shared, rounds=rounds) for is_shared in (False, True)]

    return list(chain.from_iterable(on_each_checkpoint(both)))


def on_each_checkpoint(measure: Callable[[str, Path], FigureT]) -> list[FigureT]:
    """The measurements of all shapes, one checkpoint at a time; `measure` gets the checkpoint's name and folder."""
    measured = []
    for checkpoint in SHAPES:
        with made(checkpoint) as directory:
            measured.append(measure(checkpoint, directory))
    return measured


@contextmanager
def made(checkpoint: str) -> Iterator[Path]:
    """A temporary checkpoint with random weights, written by transformers."""
    transformers = _transformers()
    config = transformers.Gemma3TextConfig(
        **SHAPES[checkpoint],
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=SHAPES[checkpoint]["hidden_size"] // 8,
        query_pre_attn_scalar=SHAPES[checkpoint]["hidden_size"] // 8,
        sliding_window=WINDOW,
        layer_types=[
            "full_attention" if layer % 3 == 2 else "sliding_attention"
            for layer in range(SHAPES[checkpoint]["num_hidden_layers"])
        ],
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    with TemporaryDirectory(prefix="swarden-") as folder:
        transformers.Gemma3ForCausalLM(config).save_pretrained(folder)
        yield Path(folder)


def figures(races: Sequence[Race]) -> dict[str, Any]:
    """The figures for scripts: the ratios without and with shared prefixes."""
    return {
        "tokens_per_second_ratio": {one.checkpoint: round(one.ratio, 3) for one in races if not one.is_shared},
        "tokens_per_second_ratio_shared": {one.checkpoint: round(one.ratio, 3) for one in races if one.is_shared},
        "tokens_per_second": {
            f"{one.checkpoint}{' shared' * one.is_shared}": [round(one.ours, 1), round(one.theirs, 1)] for one in races
        },
    }


def text(races: Sequence[Race]) -> str:
    return "\n".join(["our engine against the continuous batching of transformers:", *map(str, races)])


def _ours(directory: Path, load: Sequence[Sequence[int]]) -> Speed:
    pages = sum(num_pages(len(prompt) + NEW_TOKENS + 1, PAGE_SIZE) for prompt in load)
    config = EngineConfig(page_size=PAGE_SIZE, full_pages=pages, max_running_requests=REQUESTS, max_context_len=1024)
    engine = create_engine(config, checkpoint=directory)

    return _speed(*_timed(lambda: [one.token_ids for one in engine.generate(load, SamplingParams(NEW_TOKENS))]))


def _theirs(model: Any, load: Sequence[Sequence[int]], setting: BaselineSetting) -> Speed:
    transformers = _transformers()
    batching = transformers.ContinuousBatchingConfig(
        page_size=setting.page_size,
        num_blocks=2 * sum(num_pages(len(prompt) + NEW_TOKENS, setting.page_size) for prompt in load),
        max_batch_tokens=setting.max_batch_tokens,
        auto_switch_to_flash=False,
    )

    def serve(some: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
        answers = model.generate_batch(
            [list(prompt) for prompt in some],
            generation_config=transformers.GenerationConfig(
                max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1
            ),
            continuous_batching_config=batching,
            warmup=False,
        )
        return [list(answer.generated_tokens) for answer in answers.values()]

    before, _ = _timed(lambda: serve(load[:1], 1))
    return _speed(*_timed(lambda: serve(load, NEW_TOKENS)), before=before)


def _timed(serve: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    """The CPU seconds of a run, and its outputs."""
    began = process_time()
    outputs = serve()
    return process_time() - began, outputs


def _speed(seconds: float, outputs: list[list[int]], *, before: float = 0.0) -> Speed:
    return Speed(sum(map(len, outputs)) / (seconds - before), outputs)


def _baseline(directory: Path, attention: str) -> Any:
    model = _transformers().Gemma3ForCausalLM.from_pretrained(directory, attn_implementation=attention)
    return model.eval()


def _transformers() -> Any:
    """The module of the baseline; raises UsageError if it is not installed."""
    with importing("the baseline of the benchmark"):
        transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("ContinuousBatchingLogger").setLevel(
        logging.CRITICAL
    )  # it warns about a missing psutil, which it does not need
    return transformers
