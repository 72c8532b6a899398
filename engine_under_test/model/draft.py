"""A small model that proposes draft tokens for a large one."""

from collections.abc import Sequence
from pathlib import Path

import torch

from engine_under_test.model.attention import Scoring, attention, visible
from engine_under_test.model.checkpoint import load_decoder
from engine_under_test.model.decoder import Decoder
from engine_under_test.model.runner import usable_device, usable_dtype
from engine_under_test.ports import Wanted
from engine_under_test.units import common_len

MIN_CAPACITY = 64  # tokens
CHUNK_LEN = 512  # tokens of a prompt in one pass


class DraftContext:
    """The KV of one sequence: its `tokens`, with their keys and values in every layer.

    The KV is (layers, 2, capacity, kv_heads, head_dim).  It is outside the engine's pools, and is never shared.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.tokens: list[int] = []
        self._decoder = decoder
        self._kv = torch.empty(self._shape(0), dtype=decoder.dtype, device=decoder.device)

    def next_token(self, tokens: Sequence[int]) -> int:
        """The likeliest token after `tokens`; only tokens without KV are computed."""
        self._reserve(len(tokens))
        known = common_len(self.tokens, tokens[:-1])
        while True:
            end = min(len(tokens), known + CHUNK_LEN)
            hidden = self._compute(tokens[known:end], known)
            if end == len(tokens):
                self.tokens = list(tokens)
                return int(self._decoder.logits(hidden)[0].argmax())
            known = end

    def _compute(self, new: Sequence[int], start: int) -> torch.Tensor:
        """Compute the KV of new tokens; the state of the last one, (1, hidden_size)."""
        device, spec, end = self._decoder.device, self._decoder.spec, start + len(new)
        positions, keys = torch.arange(start, end, device=device), torch.arange(end, device=device)
        masks = {
            is_sliding: visible(positions, keys, spec.sliding_window if is_sliding else None)[None, None]
            for is_sliding in {layer.is_sliding for layer in spec.layers}
        }

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
            kv = self._kv[layer]
            kv[0, start:end], kv[1, start:end] = k, v
            queries = q.transpose(0, 1).unsqueeze(0)
            seen = kv[:, :end].transpose(1, 2).unsqueeze(1)
            mask = masks[spec.layers[layer].is_sliding]
            return attention(queries, seen[0], seen[1], mask=mask, scoring=scoring)[0].transpose(0, 1)

        last = torch.tensor([len(new) - 1], device=device)
        return self._decoder.hidden(torch.tensor(list(new), device=device), positions, attend, last)

    def _reserve(self, length: int) -> None:
        """Make space for `length` tokens.  The capacity doubles, so that the KV is copied seldom."""
        before = self._kv.shape[2]
        if length > before:
            capacity = max(length, min(2 * before, self._decoder.spec.max_context_len), MIN_CAPACITY)
            self._decoder.reserve(capacity)
            larger = self._kv.new_empty(self._shape(capacity))
            larger[:, :, :before] = self._kv
            self._kv = larger

    def _shape(self, capacity: int) -> tuple[int, ...]:
        spec = self._decoder.spec
        return (len(spec.layers), 2, capacity, spec.num_kv_heads, spec.head_dim)


class DraftModel:
    """Proposes the likeliest tokens of a small model, one after the other.

    A request gets no proposal if one of its tokens is not in the vocabulary, or if its drafts would exceed the context.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._contexts: dict[int, DraftContext] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        with torch.inference_mode():
            return [self._draft(one) for one in wanted]

    def forget(self, request_id: int) -> None:
        self._contexts.pop(request_id, None)

    def _draft(self, wanted: Wanted) -> list[int]:
        spec, tokens = self._decoder.spec, list(wanted.tokens)
        if len(tokens) + wanted.most > spec.max_context_len or max(tokens) >= spec.vocab_size:
            return []
        context = self._contexts.setdefault(wanted.request_id, DraftContext(self._decoder))
        for _ in range(wanted.most):
            tokens.append(context.next_token(tokens))
        return tokens[len(wanted.tokens) :]


def draft_model(directory: str | Path, *, device: str = "cpu", dtype: str = "float32") -> DraftModel:
    """The model of a checkpoint as a proposer; raises CheckpointError or ConfigError for one that cannot be run."""
    return DraftModel(load_decoder(Path(directory), dtype=usable_dtype(dtype), device=usable_device(device)))
