"""A tiny Gemma3 of the release with random weights, in place of the stand-in; its answers are judged without cache."""

import importlib
from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.transformers.adapter import TransformersEngine
from swarden.harness.engines.transformers.boot import TransformersRelease
from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.kit.tags import with_namespace

GEMMA = "tiny-gemma3"
VOCABULARY = 97  # a prime: tokens of prompts and namespaces differ modulo it
SEED, SPREAD = 5, 0.15  # seed and standard deviation of the weights
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
TOLERANCE = 2e-3  # the largest difference of log-probabilities in float32 that counts as equal


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
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in served.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * SPREAD)
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
        self._answers: dict[int, tuple[list[int], list[int]]] = {}
        super().__init__(release, config)

    def submit(self, submission: Submission) -> int:
        number = super().submit(submission)
        for sequence in range(number, number + submission.sequences):
            self._answers[sequence] = with_namespace(submission.tokens, submission.namespace) or [], []
        return number

    def step(self) -> Sequence[Streamed]:
        with self._torch.no_grad():
            streamed = super().step()
            for one in streamed:
                self._answers[one.request_id][1].extend(one.token_ids)
                if one.finish_reason is not None:
                    self._judge(one.request_id, *self._answers.pop(one.request_id))
        return streamed

    def _model(self, release: TransformersRelease, config: TransformersConfig) -> tuple[Any, int]:
        self._models.served.set_attn_implementation("eager")
        return self._models.served, 2 * HEADS * HEAD_DIM * VALUE_BYTES

    def _judge(self, request: int, prompt: Sequence[int], answer: Sequence[int]) -> None:
        """Each token is the likeliest one; the event is of the first that is not, or of the last."""
        if not answer:
            return
        tokens = self._torch.tensor([[*prompt, *answer[:-1]]])
        logits = self._models.alone(input_ids=tokens, use_cache=False).logits[0, len(prompt) - 1 :]
        best = logits.log_softmax(-1)
        missing = best.amax(-1) - best[range(len(answer)), list(answer)]
        place = next((place for place, less in enumerate(missing.tolist()) if not less <= TOLERANCE), len(answer) - 1)
        end, is_wrong = len(prompt) + place, not missing[place] <= TOLERANCE
        want = int(best[place].argmax()) if is_wrong else answer[place]
        at = (self.passes.last_launch, request, len(prompt), end, end)
        self.log.notice(seen.Compared(*at, None, TOLERANCE, answer[place], want))
