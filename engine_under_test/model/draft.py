"""A small model that guesses for a large one."""

from collections.abc import Sequence
from pathlib import Path

import torch

from engine_under_test.model.attention import Scoring, attention, visible
from engine_under_test.model.checkpoint import load_decoder
from engine_under_test.model.decoder import Decoder
from engine_under_test.model.runner import usable_device, usable_dtype
from engine_under_test.ports import Wanted
from engine_under_test.units import common_len

LEAST_ROOM = 64  # tokens that are made room for at once
MOST_AT_ONCE = 512  # tokens of a prompt that are read in one pass


class DraftContext:
    """What a decoder has read of one sequence: its `tokens`, and the keys and values of each, layer by layer.

    They lie apart from the engine's pools, (layers, 2, room, kv_heads, head_dim), where nobody shares them.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.tokens: list[int] = []
        self._decoder = decoder
        self._kv = torch.empty(self._shape(0), dtype=decoder.dtype, device=decoder.device)

    def next_token(self, tokens: Sequence[int]) -> int:
        """The likeliest token behind `tokens`, of which only what is not read yet is computed."""
        self._make_room(len(tokens))
        known = common_len(self.tokens, tokens[:-1])
        while True:
            end = min(len(tokens), known + MOST_AT_ONCE)
            hidden = self._read(tokens[known:end], known)
            if end == len(tokens):
                self.tokens = list(tokens)
                return int(self._decoder.logits(hidden)[0].argmax())
            known = end

    def _read(self, new: Sequence[int], start: int) -> torch.Tensor:
        """Read some more tokens; the state of the last of them, (1, hidden_size)."""
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

    def _make_room(self, length: int) -> None:
        """Room doubles, so that what was read is moved seldom; the decoder gets the rotations of as many positions."""
        before = self._kv.shape[2]
        if length > before:
            room = max(length, min(2 * before, self._decoder.spec.max_context_len), LEAST_ROOM)
            self._decoder.reserve(room)
            larger = self._kv.new_empty(self._shape(room))
            larger[:, :, :before] = self._kv
            self._kv = larger

    def _shape(self, room: int) -> tuple[int, ...]:
        spec = self._decoder.spec
        return (len(spec.layers), 2, room, spec.num_kv_heads, spec.head_dim)


class DraftModel:
    """Proposes what a small model says, token by token, likeliest first; it reads what requests say as they go on.

    It guesses nothing for who has a token that it does not know, or more tokens than it has positions.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._contexts: dict[int, DraftContext] = {}

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        with torch.inference_mode():
            return [self._guess(one) for one in wanted]

    def forget(self, request_id: int) -> None:
        self._contexts.pop(request_id, None)

    def _guess(self, wanted: Wanted) -> list[int]:
        spec, tokens = self._decoder.spec, list(wanted.tokens)
        if len(tokens) + wanted.most > spec.max_context_len or max(tokens) >= spec.vocab_size:
            return []
        context = self._contexts.setdefault(wanted.request_id, DraftContext(self._decoder))
        for _ in range(wanted.most):
            tokens.append(context.next_token(tokens))
        return tokens[len(wanted.tokens) :]


def draft_model(directory: Path, *, device: str = "cpu", dtype: str = "float32") -> DraftModel:
    """The model of a checkpoint as a proposer; raises CheckpointError or ConfigError for one that cannot be run."""
    return DraftModel(load_decoder(directory, dtype=usable_dtype(dtype), device=usable_device(device)))
