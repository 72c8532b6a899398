"""References of the tests of models: a pass without a cache, and a model with layers of all kinds."""

from dataclasses import replace

import torch

from swarden.engine_under_test.model.attention import Scoring, attention, visible
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.recurrent import Recurrence
from swarden.engine_under_test.model.spec import LayerKind, LayerSpec, ModelSpec
from swarden.engine_under_test.model.tiny import tiny_spec


def tiny_spec_of_all_kinds() -> ModelSpec:
    """A made-up model: the recurrence of a RecurrentGemma beside both kinds of attention."""
    spec = tiny_spec("recurrent-gemma", num_hidden_layers=4)
    rope = spec.ropes[0]
    kinds = (LayerKind.RECURRENT, LayerKind.FULL, LayerKind.SLIDING, LayerKind.RECURRENT)
    ropes = {LayerKind.RECURRENT: None}
    layers = (LayerSpec(index, kind, ropes.get(kind, rope)) for index, kind in enumerate(kinds))
    return replace(spec, layers=tuple(layers))


def dense_logits(decoder: Decoder, token_ids: torch.Tensor) -> torch.Tensor:
    """Logits at each token of one sequence, (n, vocab_size), without a cache: the reference for paged runs."""
    decoder.reserve(len(token_ids))
    positions = torch.arange(len(token_ids), device=decoder.device)
    return decoder.logits(decoder.hidden(token_ids, positions, WholeSequenceCache(decoder.spec, positions)))


class WholeSequenceCache:
    """The cache of a pass over all tokens of one sequence: no key, value or state is kept."""

    def __init__(self, spec: ModelSpec, positions: torch.Tensor) -> None:
        self._layers = spec.layers
        self._masks = {kind: visible(positions, positions, spec.window_of(kind))[None, None] for kind in LayerKind}

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
        return attention(q, k, v, mask=self._masks[self._layers[layer].kind], scoring=scoring)[0].transpose(0, 1)

    def recur(self, layer: int, x: torch.Tensor, recurrence: Recurrence) -> torch.Tensor:
        return recurrence(x.unsqueeze(0), None, ()).out[0]
