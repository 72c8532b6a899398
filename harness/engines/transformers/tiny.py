"""A tiny Gemma3 of the release with random weights, in place of the stand-in; its answers are judged without cache."""

import importlib
from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.transformers.adapter import TransformersEngine
from swarden.harness.engines.transformers.boot import TransformersRelease
from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.kit.answers import Answers
from swarden.harness.kit.checkpoints import VOCABULARY, logprobs_without_cache, set_weights
from swarden.harness.kit.tags import with_namespace

GEMMA = "tiny-gemma3"
HEADS, HEAD_DIM, VALUE_BYTES = 2, 16, 4
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2 * HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "query_pre_attn_scalar": HEAD_DIM,
    "max_position_embeddings": 1 << 16,
    "tie_word_embeddings": False,
}
MOST_MODELS = 64  # that a process keeps: one for each sequence of layers and window


class Models(NamedTuple):
    """A model that serves with the cache of the release, and the same model without a cache."""

    served: Any
    alone: Any


@lru_cache(MOST_MODELS)
def models_of(release: TransformersRelease, layer_types: Sequence[str], window: int) -> Models:
    """The models of this process with such layers."""
    torch, gemma = release.torch, importlib.import_module("transformers.models.gemma3")  # that of the release
    config = gemma.Gemma3TextConfig(
        **SIZES,
        layer_types=list(layer_types),
        num_hidden_layers=len(layer_types),
        sliding_window=window,
        attn_implementation="eager",
    )
    served = gemma.Gemma3ForCausalLM(config).to(torch.float32).eval()
    set_weights(torch, served)
    models = Models(served, deepcopy(served))
    for model in models:
        model.register_forward_pre_hook(_read, with_kwargs=True)
    return models


def _read(model: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A model reads a token modulo its vocabulary."""
    return args, {**kwargs, "input_ids": kwargs["input_ids"] % VOCABULARY}


class TinyEngine(TransformersEngine):
    """The batch processor with a model; each answer is compared with the model without a cache when it ends."""

    vocabulary = 0  # it predicts no outputs
    reported = TransformersEngine.reported - {seen.Read.__name__} | {seen.Compared.__name__}

    def __init__(self, release: TransformersRelease, config: TransformersConfig) -> None:
        if config.decode_blocks:
            raise InvalidConfig(f"decode_blocks is {config.decode_blocks}, want 0 with a model: its kernels need a GPU")
        self._torch = release.torch
        self._models = models_of(release, tuple(config.layer_types), config.window)
        self._answers = Answers(partial(logprobs_without_cache, self._models.alone))
        super().__init__(release, config)

    def submit(self, submission: Submission) -> int:
        tokens = with_namespace(submission.tokens, submission.namespace) or []
        return self._answers.begin(super().submit(submission), submission._replace(tokens=tokens))

    def step(self) -> Sequence[Streamed]:
        with self._torch.no_grad():
            streamed = super().step()
            self.report(self._answers.compared(streamed, self.passes.last_launch))
        return streamed

    def _model(self, release: TransformersRelease, config: TransformersConfig) -> tuple[Any, int]:
        self._models.served.set_attn_implementation("eager")
        return self._models.served, 2 * HEADS * HEAD_DIM * VALUE_BYTES
