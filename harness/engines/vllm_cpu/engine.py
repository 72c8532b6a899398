"""An engine core whose passes a release's own worker computes, with a tiny model.

The stand-in follows the outputs of the scheduler too: it has the tables, the tags and the events, so all laws hold here
as they do without a model.  The tokens are those of the model.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.vllm.adapter import REPORTED, VllmEngine
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.capture import VllmFacts
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.device import Device
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.engines.vllm.passes import UNKNOWN, VllmEntry, VllmPass
from swarden.harness.engines.vllm.runner import Runner
from swarden.harness.engines.vllm_cpu.memory import GroupKV
from swarden.harness.engines.vllm_cpu.model import RealModel
from swarden.harness.kit.answers import Answers
from swarden.harness.kit.first_kv import TOLERANCE
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.tags import ReadTags, chain
from swarden.invariants.reference import namespace_tag


class RealDevice(Device):
    """Samples what the model has sampled, and compares the KV in memory."""

    def __init__(self, config: VllmConfig, model: RealModel) -> None:
        super().__init__(config)
        self._model = model
        self._memories = [GroupKV(model, number, group) for number, group in enumerate(config.groups)]
        self._tags: dict[int, array[int]] = {}
        self.output: Any = None  # the output of the pass that was computed last
        self._from_model: dict[int, Sequence[int]] = {}
        self._rids: dict[int, str] = {}

    def compute(self, flight: VllmPass) -> list[list[int]]:
        if flight.entries:
            self.output = self._model.sample()
            results = zip(self.output.req_ids, self.output.sampled_token_ids, strict=True)
            self._from_model = {number_of(rid): tokens for rid, tokens in results}
            self._rids = {number_of(rid): rid for rid in self.output.req_ids}
        sampled = super().compute(flight)
        if flight.entries:
            wrong = [wrong_kv for entry in flight.entries for wrong_kv in self._wrong(entry)]
            flight.reports.append(seen.KVCompared(flight.launch, POOL, TOLERANCE, wrong))
        return sampled

    def lose_kv(self) -> None:
        super().lose_kv()
        self._model.lose()

    def _wrong(self, entry: VllmEntry) -> Sequence[seen.WrongKV]:
        tags = self._tags.setdefault(entry.request, array("q"))
        before = tags[-1] if tags else namespace_tag(self.namespaces[entry.request])
        tokens = self._tokens[entry.request]
        end = min(entry.end, len(tokens) - 1) if entry.drafts else entry.end  # behind the drafts that are right
        tags.extend(chain(before, tokens[len(tags) : end]))
        accepted = self.states.accepted(entry.request)
        return [
            wrong_kv
            for memory in self._memories
            for wrong_kv in memory.wrong(self._rids[entry.request], entry, tags[:end], accepted)
        ]

    def _sampled(self, entry: VllmEntry, reads: Sequence[ReadTags]) -> list[int]:
        """The tokens of the model, which returns none behind the first wrong draft."""
        sampled = self._from_model.get(entry.request, ())
        return [*sampled, *[UNKNOWN] * (1 + len(entry.drafts) - len(sampled))]


class RealRunner(Runner):
    """The executor of a release, beside the stand-in that follows it."""

    def __init__(self, release: VllmRelease, config: VllmConfig, facts: VllmFacts, model: RealModel) -> None:
        self._real = RealDevice(config, model)
        super().__init__(release, config, facts, self._real)
        self._model = model
        model.restart()

    def execute_model(self, output: Any, non_block: bool = False) -> Any:
        self._model.execute(output)
        return super().execute_model(output, non_block)

    def take_draft_token_ids(self) -> Any:
        return self._model.drafts()

    def _output(self, flight: VllmPass, sampled: Sequence[Sequence[int]]) -> Any:
        return self._real.output if flight.entries else super()._output(flight, sampled)


class RealEngine(VllmEngine):
    """The engine core; each answer is compared with the model without a cache, and none is predicted."""

    reported = REPORTED | names_of([seen.Compared, seen.KVCompared])
    vocabulary = 0

    def __init__(self, release: VllmRelease, config: VllmConfig, model: RealModel) -> None:
        self._model = model
        self._answers = Answers(model.logprobs_without_cache)
        super().__init__(release, config)

    def submit(self, submission: Submission) -> int:
        return self._answers.begin(super().submit(submission), submission)

    def step(self) -> Sequence[Streamed]:
        streamed = super().step()
        self.report(self._answers.compared(streamed, self.runner.last_launch))
        return streamed

    def take(self, number: int, output: Any) -> None:
        if output.new_logprobs is not None:
            self._answers.add_logprobs(number, output.new_logprobs.logprobs[:, 0].tolist())
        super().take(number, output)

    def make_runner(self, release: VllmRelease) -> Runner:
        return RealRunner(release, self.config, self, self._model)
