"""A small model that proposes draft tokens for a large one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from swarden.engine_under_test.model.attention import Scoring, attention, visible
from swarden.engine_under_test.model.checkpoint import load_decoder
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.recurrent import Recurrence
from swarden.engine_under_test.model.runner import usable_device, usable_dtype
from swarden.engine_under_test.model.spec import LayerKind, ModelSpec
from swarden.engine_under_test.ports import Wanted
from swarden.engine_under_test.units import common_len

MIN_CAPACITY = 64  # tokens
CHUNK_LEN = 512  # tokens of a prompt in one pass
KEPT_STATES = 32  # the newest; rejected drafts beyond them cost a pass over the sequence


class DraftContext:
    """The `tokens` of one sequence, with their keys and values and the newest states, as the layers keep them.

    The KV is (layers, 2, capacity, kv_heads, head_dim).  It is outside the engine's pools, and is never shared.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.tokens: list[int] = []
        self._decoder = decoder
        self._kv = torch.empty(self._shape(0), dtype=decoder.dtype, device=decoder.device)
        self._states: dict[int, dict[int, torch.Tensor]] = {}  # by position, then by layer

    def next_token(self, tokens: Sequence[int]) -> int:
        """The likeliest token after `tokens`; only tokens that are not known are computed."""
        self._reserve(len(tokens))
        start = self._resumed_at(common_len(self.tokens, tokens[:-1]))
        while True:
            end = min(len(tokens), start + CHUNK_LEN)
            hidden = self._compute(tokens[start:end], start)
            if end == len(tokens):
                self.tokens = list(tokens)
                return int(self._decoder.logits(hidden)[0].argmax())
            start = end

    def _resumed_at(self, known: int) -> int:
        """The first position to compute, if the tokens before `known` are those of the sequence."""
        if self._decoder.spec.recurrence is None:
            return known
        self._states = {position: states for position, states in self._states.items() if position < known}
        return max(self._states, default=-1) + 1

    def _compute(self, new: Sequence[int], start: int) -> torch.Tensor:
        """Compute new tokens; the hidden state of the last one, (1, hidden_size)."""
        device, spec, end = self._decoder.device, self._decoder.spec, start + len(new)
        positions = torch.arange(start, end, device=device)
        last = torch.tensor([len(new) - 1], device=device)
        before = self._states.get(start - 1, {})
        after: dict[int, dict[int, torch.Tensor]] = {}
        if spec.recurrence is not None:
            after = {position: {} for position in range(max(start, end - KEPT_STATES), end)}
            self._states = dict([*self._states.items(), *after.items()][-KEPT_STATES:])
        cache = DraftPass(spec, self._kv[:, :, :end], before, after, positions)
        return self._decoder.hidden(torch.tensor(list(new), device=device), positions, cache, last)

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


class DraftPass:
    """The cache of one pass over the newest tokens of a context, at `positions`.

    `kv` ends with these tokens.  `before` has the states before them, by layer.  `after` has a dictionary for each
    position whose states are kept; the pass adds the state of each layer.
    """

    def __init__(
        self,
        spec: ModelSpec,
        kv: torch.Tensor,
        before: Mapping[int, torch.Tensor],
        after: dict[int, dict[int, torch.Tensor]],
        positions: torch.Tensor,
    ) -> None:
        self._layers, self._kv, self._before, self._after = spec.layers, kv, before, after
        self._start = kv.shape[2] - len(positions)
        keys = torch.arange(kv.shape[2], device=kv.device)
        self._masks = {kind: visible(positions, keys, spec.window_of(kind))[None, None] for kind in LayerKind}

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        kv = self._kv[layer]
        kv[0, self._start :], kv[1, self._start :] = k, v
        seen = kv.transpose(1, 2).unsqueeze(1)
        queries, mask = q.transpose(0, 1).unsqueeze(0), self._masks[self._layers[layer].kind]
        return attention(queries, seen[0], seen[1], mask=mask, scoring=scoring)[0].transpose(0, 1)

    def recur(self, layer: int, x: torch.Tensor, recurrence: Recurrence) -> torch.Tensor:
        before = self._before.get(layer)
        asked = [position - self._start for position in self._after]
        recurred = recurrence(x.unsqueeze(0), None if before is None else before.unsqueeze(0), asked)
        for states, state in zip(self._after.values(), recurred.states[0], strict=True):
            states[layer] = state
        return recurred.out[0]


class DraftModel:
    """Proposes the likeliest tokens of a small model, one after the other.

    A request gets no proposal if one of its tokens is not in the vocabulary, or if its drafts would exceed the context.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._contexts: dict[int, DraftContext] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        with torch.inference_mode():
            return [self._draft(request) for request in wanted]

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
    """The model of a checkpoint as a proposer; raises CheckpointError or ConfigError if it cannot be run."""
    return DraftModel(load_decoder(Path(directory), dtype=usable_dtype(dtype), device=usable_device(device)))
