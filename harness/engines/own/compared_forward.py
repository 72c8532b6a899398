"""A forward whose every result is compared with the same model without a cache."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from swarden.engine_under_test.config import PoolSpec
from swarden.engine_under_test.ports import Computed, Forward, ForwardBatch, ForwardEntry, LogitsSpan, SlotLayout
from swarden.engine_under_test.scheduler.speculation import num_accepted
from swarden.fakes.places import written_pages
from swarden.harness.engines.own.without_cache import WithoutCache
from swarden.invariants.events import Compared, Written

TOLERANCE = 1e-9  # the largest difference of logits in float64 that counts as equal
LOGITS_PERIOD = 3  # one of so many entries returns no logits, so that passes with few logits run too


class ComparedForward:
    """Wraps a forward, requests the logits of most entries, and emits their distance from the expected logits.

    The expected logits follow from the tokens that clients sent and that passes sampled.  The tokens in the engine's
    own requests are not used.  The model reads a token modulo its vocabulary.
    """

    def __init__(self, steady: Forward, without_cache: WithoutCache, note: Callable[[NamedTuple], None]) -> None:
        self._steady = steady
        self._without_cache = without_cache
        self._note = note
        self._tokens: dict[int, list[int]] = {}  # by request, as the model reads them
        self._batches: dict[int, ForwardBatch] = {}

    def submitted(self, request_id: int, tokens: Sequence[int]) -> None:
        self._tokens[request_id] = self._read(tokens)

    def ended(self, request_id: int) -> None:
        """Stop comparing a finished request; later results of its passes are ignored."""
        self._tokens.pop(request_id, None)

    @property
    def model(self) -> str:
        return self._steady.model

    @property
    def vocab_size(self) -> None:
        """No limit: the model reads a token modulo its own vocabulary."""

    def layout(self, pool: PoolSpec) -> SlotLayout:
        return self._steady.layout(pool)

    def launch(self, batch: ForwardBatch) -> None:
        self._batches[batch.launch] = batch
        self._steady.launch(replace(batch, entries=[self._with_logits(batch.launch, entry) for entry in batch.entries]))

    def collect(self, launch: int) -> list[Computed] | None:
        computed = self._steady.collect(launch)
        if computed is None:
            return None
        batch = self._batches.pop(launch)
        self._emit_written(batch)
        prompts = [self._tokens[entry.request_id] for entry in batch.entries if entry.request_id in self._tokens]
        self._without_cache.remember(prompts)
        for entry, result in zip(batch.entries, computed, strict=True):
            if entry.request_id in self._tokens:
                self._compare(launch, entry, result)
        return [
            result if entry.sampling.return_logits else result._replace(logits=None)
            for entry, result in zip(batch.entries, computed, strict=True)
        ]

    def _with_logits(self, launch: int, entry: ForwardEntry) -> ForwardEntry:
        """The entry with its logits requested or not; the choice varies by pass and by request."""
        returns_logits = entry.sampling.return_logits or (launch + entry.request_id) % LOGITS_PERIOD > 0
        sampling = replace(entry.sampling, return_logits=returns_logits)
        return entry._replace(tokens=self._read(entry.tokens), sampling=sampling)

    def _read(self, tokens: Sequence[int]) -> list[int]:
        return [token % self._without_cache.vocabulary for token in tokens]

    def _emit_written(self, batch: ForwardBatch) -> None:
        for component, pool in enumerate(batch.pools):
            pages = written_pages(batch, pool, pool.pages.tolist())
            for entry, written in zip(batch.entries, pages, strict=True):
                stretch = (pool.name, entry.start, entry.end)
                self._note(Written(batch.launch, entry.request_id, *stretch, written, component))

    def _compare(self, launch: int, entry: ForwardEntry, computed: Computed) -> None:
        """Emit the distance of an entry: infinite if it computes tokens that were neither sent nor sampled.

        There is one comparison per accepted draft token, and one for the token sampled after them.
        """
        tokens, stretch = self._tokens[entry.request_id], (launch, entry.request_id, entry.start)
        num_drafts = max(0, entry.num_samples - 1)
        end = entry.end - num_drafts
        sampled = computed.tokens[0] if computed.tokens else None
        if end > len(tokens):
            self._note(Compared(*stretch, end, len(tokens), math.inf, TOLERANCE, sampled, None))
            return
        drafts = self._read(entry.tokens[len(entry.tokens) - num_drafts :])
        expected = self._without_cache.logits([*tokens[:end], *drafts], entry.start)
        position, difference = entry.start, None
        if computed.logits is not None:
            position, difference = _farthest(computed.logits, expected)
        accepted = num_accepted(drafts, computed.tokens)
        num_known = len(tokens) - end  # outputs of a discarded pass, which a retracted request samples again
        tokens += computed.tokens[: accepted + 1][num_known:]
        if sampled is None:
            self._note(Compared(*stretch, end, position, difference, TOLERANCE, None, None))
        for place, token in enumerate(computed.tokens[: accepted + 1], start=end):
            likeliest = _likeliest(expected[place - 1 - entry.start], token)
            self._note(Compared(*stretch, place, position, difference, TOLERANCE, token, likeliest))


def _farthest(computed: LogitsSpan, expected: torch.Tensor) -> tuple[int, float]:
    """The first position above the tolerance, else the one with the largest distance; and that distance."""
    differences = (computed.values.to(expected.device) - expected).abs().amax(-1)
    wrong = (~(differences <= TOLERANCE)).nonzero()
    index = int(wrong[0]) if len(wrong) else int(differences.argmax())
    return computed.start + index, differences[index].item()


def _likeliest(logits: torch.Tensor, token: int) -> int:
    """The token with the highest logit; `token` itself if its logit is equal within the tolerance."""
    best = int(logits.argmax())
    return token if logits[best] - logits[token] <= TOLERANCE else best
