"""A model without a cache: the reference logits of whole sequences."""

from collections.abc import Sequence

import torch

from swarden.engine_under_test.model.attention import Scoring
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.recurrent import Recurrence
from swarden.engine_under_test.model.spec import ModelSpec

MAX_CACHED = 20_000  # prefixes, each with a vector of the vocabulary size


class WithoutCache:
    """The logits of sequences, each computed from its first token on.

    The attention mask and the attention are implemented here independently of the engine.  Only the decoder around them
    and the recurrences are shared.  Logits are cached by prefix, because runs repeat prefixes.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.vocabulary = decoder.spec.vocab_size
        self._decoder = decoder
        self._longer: dict[tuple[int, int], int] = {}  # from a prefix, by its number, and a token to the next prefix
        self._logits: list[torch.Tensor] = []  # by prefix, (vocab,)

    def remember(self, sequences: Sequence[Sequence[int]]) -> None:
        """Compute and cache the sequences that are not cached, in one pass."""
        unknown = [tokens for tokens in sequences if len(self._prefixes(tokens)) < len(tokens)]
        if not unknown:
            return
        if len(self._logits) > MAX_CACHED:
            self._longer.clear()
            self._logits.clear()
        with torch.inference_mode():
            for tokens, logits in zip(unknown, self._computed(unknown), strict=True):
                self._keep(tokens, logits)

    def logits(self, tokens: Sequence[int], start: int) -> torch.Tensor:
        """The logits at positions from `start` to the end of a sequence, (n, vocab)."""
        self.remember([tokens])
        return torch.stack([self._logits[prefix] for prefix in self._prefixes(tokens)[start:]])

    def _prefixes(self, tokens: Sequence[int]) -> list[int]:
        """The numbers of the cached prefixes of a sequence, shortest first."""
        prefix, prefixes = -1, []
        for token in tokens:
            longer = self._longer.get((prefix, token))
            if longer is None:
                break
            prefix = longer
            prefixes.append(prefix)
        return prefixes

    def _keep(self, tokens: Sequence[int], logits: torch.Tensor) -> None:
        prefix = -1
        for token, row in zip(tokens, logits, strict=False):
            longer = self._longer.setdefault((prefix, token), len(self._logits))
            if longer == len(self._logits):
                self._logits.append(row.clone())
            prefix = longer

    def _computed(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits of padded sequences, (sequences, longest, vocab). The mask hides the padding from earlier tokens."""
        lines, longest = len(sequences), max(map(len, sequences))
        token_ids = torch.tensor([[*tokens, *[0] * (longest - len(tokens))] for tokens in sequences])
        positions = torch.arange(longest)
        cache = PaddedSequences(self._decoder.spec, lines, longest)
        logits = self._decoder.logits(self._decoder.hidden(token_ids.flatten(), positions.repeat(lines), cache))
        return logits.view(lines, longest, -1)


class PaddedSequences:
    """A cache that keeps nothing: `lines` sequences, padded to `longest` tokens, are computed in one pass."""

    def __init__(self, spec: ModelSpec, lines: int, longest: int) -> None:
        self._spec = spec
        self._shape = (lines, longest)
        self._distance = torch.arange(longest)[:, None] - torch.arange(longest)[None, :]

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        window = self._spec.window_of(self._spec.layers[layer].kind) or len(self._distance)
        is_hidden = (self._distance < 0) | (self._distance >= window)
        parts = [part.view(*self._shape, *part.shape[1:]) for part in (q, k, v)]
        return _attended(*parts, is_hidden=is_hidden, scoring=scoring).flatten(0, 1)

    def recur(self, layer: int, x: torch.Tensor, recurrence: Recurrence) -> torch.Tensor:
        return recurrence(x.view(*self._shape, -1), None, ()).out.flatten(0, 1)


def _attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_hidden: torch.Tensor, scoring: Scoring
) -> torch.Tensor:
    """The attention output, (sequences, tokens, heads, head_dim) as q; k and v have one head per group.

    `is_hidden` (tokens, tokens) masks, per query, the keys that it must not read.
    """
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    scores = torch.einsum("bthd,bshd->bhts", q, k) * scoring.scale
    if scoring.softcap is not None:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    scores = scores.masked_fill(is_hidden, float("-inf"))
    highest = scores.amax(-1, keepdim=True)
    if scoring.sinks is not None:
        highest = torch.maximum(highest, scoring.sinks[:, None, None])
    weights = torch.exp(scores - highest)
    total = weights.sum(-1, keepdim=True)
    if scoring.sinks is not None:
        total = total + torch.exp(scoring.sinks[:, None, None] - highest)
    return torch.einsum("bhts,bshd->bthd", weights / total, v)
