"""A scheduler whose passes a release's own worker computes, with a tiny model.

The stand-in follows each pass, too: it has the tags and the events, so all laws hold here as they do without a model.
The tokens are those of the model.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.sglang.adapter import REPORTED, SglangEngine
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangPart
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.forward import SglangEntry
from swarden.harness.engines.sglang.worker_model import RealModel
from swarden.harness.kit.answers import Answers
from swarden.harness.kit.first_kv import TOLERANCE, FirstKV, ReadKV
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.tags import ReadTags, chain
from swarden.invariants.reference import namespace_tag


class RealPasses(SglangPart):
    """Computes each pass behind the stand-in, and compares the KV that it reads and writes."""

    def __init__(self, engine: SglangEngine, model: RealModel) -> None:
        shape = engine.config.shape
        self._model, self._page_size, self._pools = model, shape.page_size, shape.pools
        self._first = [FirstKV(model.torch) for _ in self._pools]
        self._tags: dict[int, array[int]] = {}
        self.last_launch = 0
        model.serve(engine.config, engine.memory)

    def launched(self, batch: Any, result: Any) -> None:
        flight = result.swarden_pass
        self.last_launch = flight.launch
        tokens = [token for entry in flight.entries for token in entry.request.tokens(entry.start, entry.end)]
        sampled = self._model.compute(batch, tokens)
        for component, pool in enumerate(self._pools):
            wrong = [kv for entry in flight.entries for kv in self._wrong(component, pool.window, entry)]
            flight.reports.append(seen.KVCompared(flight.launch, pool.name, TOLERANCE, wrong))
        for entry, token in zip(flight.entries, sampled, strict=True):
            entry.request.next_tokens[entry.end] = token
        result.next_token_ids = batch.output_ids = self._model.torch.tensor(sampled)

    def lose_kv(self) -> bool:
        self._model.lose()
        return False

    def _wrong(self, component: int, window: int | None, entry: SglangEntry) -> Iterator[seen.WrongKV]:
        """The first wrong slot of those that an entry has read or written in a pool, if any."""
        request = entry.request
        tags = self._tags.setdefault(request.id, array("q"))
        before = tags[-1] if tags else namespace_tag(request.namespace)
        tags.extend(chain(before, request.tokens(len(tags), entry.end)))
        first = ReadTags.first_of(window, entry.start)
        slots = entry.slots[component][first : entry.end]
        yield from self._first[component].wrong(
            ReadKV(request.id, first, tags[first : entry.end], self._model.kv(component, slots)),
            entry.start,
            lambda layer, row: (self._model.names[component][layer], *divmod(slots[row], self._page_size)),
        )


class RealEngine(SglangEngine):
    """The scheduler; each answer is compared with the model without a cache, and none is predicted."""

    reported = REPORTED | names_of([seen.Compared, seen.KVCompared])
    vocabulary = 0

    def __init__(self, release: SglangRelease, config: SglangConfig, model: RealModel) -> None:
        self._model, self._answers = model, Answers(model.logprobs_without_cache)
        super().__init__(release, config)

    def submit(self, submission: Submission) -> int:
        return self._answers.begin(super().submit(submission), submission)

    def step(self) -> Sequence[Streamed]:
        streamed = super().step()
        self.report(self._answers.compared(streamed, self._passes.last_launch))
        return streamed

    def of_model(self) -> Sequence[SglangPart]:
        self._passes = RealPasses(self, self._model)
        return [self._passes]
