"""A request on its way through the engine, and what its client sees of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from engine_under_test.ports import Computed, LogitsSpan
from engine_under_test.reasons import FinishReason
from engine_under_test.sampling import SamplingParams
from engine_under_test.units import Owner, request_owner


class Output(NamedTuple):
    """What one step has for one client: new token ids and, once, why the request ended.

    `cached_tokens` of the prompt were not computed when the request first began, but found, or loaded.  `logits`
    are those computed since the last output, for who asked for them: of the prompt's positions behind the cached
    ones, then of each output's; what was computed again after a retraction comes again.
    """

    request_id: int
    token_ids: tuple[int, ...]
    finish_reason: str | None
    cached_tokens: int
    num_retractions: int
    logits: tuple[LogitsSpan, ...] = ()


@dataclass(slots=True)
class Generation:
    """All that one client got, step by step; `finish_reason` is None until the end."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    cached_tokens: int = 0
    num_retractions: int = 0
    _logits: list[LogitsSpan] = field(default_factory=list)

    def add(self, output: Output) -> None:
        self.token_ids += output.token_ids
        self.finish_reason = output.finish_reason
        self.cached_tokens = output.cached_tokens
        self.num_retractions = output.num_retractions
        self._logits += output.logits

    @property
    def logits(self) -> dict[int, torch.Tensor]:
        """By position the logits (vocabulary,) of the token behind it, as they were computed last."""
        return {span.start + index: row for span in self._logits for index, row in enumerate(span.values.unbind())}


@dataclass(slots=True)
class Setbacks:
    """How often a request had to give its KV back: to others, or because a pass failed with it in it."""

    retractions: int = 0
    failures: int = 0


@dataclass(slots=True)
class Unsent:
    """What has come of a request since its client heard of it last."""

    token_ids: list[int] = field(default_factory=list)
    logits: list[LogitsSpan] = field(default_factory=list)


class Belonging(NamedTuple):
    """The session whose turn a request is, or the transfer that links its two engines; 0 where there is none."""

    session: int = 0
    transfer_id: int = 0


ALONE = Belonging()


@dataclass(slots=True, eq=False)
class Request:
    """What was asked for, and what has come of it; its KV is a record of its own."""

    id: int
    prompt_len: int
    tokens: list[int]  # the prompt and every output token, in order
    sampling: SamplingParams
    namespace: int = 0
    priority: int = 0
    arrival_ms: int = 0
    part_of: Belonging = ALONE
    cached_tokens: int | None = None
    setbacks: Setbacks = field(default_factory=Setbacks)
    finish_reason: str | None = None
    unsent: Unsent = field(default_factory=Unsent)

    @property
    def owner(self) -> Owner:
        return request_owner(self.id)

    @property
    def session(self) -> int:
        return self.part_of.session

    @property
    def transfer_id(self) -> int:
        return self.part_of.transfer_id

    @property
    def num_outputs(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def tokens_left(self) -> int:
        """Output tokens that may still come."""
        return max(0, self.sampling.max_new_tokens - self.num_outputs)

    def begin(self, cached_len: int) -> None:
        """Computing begins behind what was cached; only the first time counts."""
        if self.cached_tokens is None:
            self.cached_tokens = cached_len

    def receive(self, computed: Computed) -> bool:
        """Take in what was computed, up to the last token that the client wants, which sets the finish reason.

        Is there something for the client?
        """
        for token in computed.tokens:
            self.tokens.append(token)
            self.unsent.token_ids.append(token)
            if token in self.sampling.stop_token_ids:
                self.finish_reason = FinishReason.STOP
            elif not self.tokens_left:
                self.finish_reason = FinishReason.LENGTH
            if self.finish_reason is not None:
                break
        if (logits := computed.logits) is not None:
            wanted_len = len(self.tokens) - 1 - logits.start if computed.tokens else len(logits.values)
            self.unsent.logits.append(logits._replace(values=logits.values[:wanted_len]))
        return bool(computed.tokens) or logits is not None

    def send(self) -> Output:
        """What the client has not seen yet."""
        unsent, self.unsent = self.unsent, Unsent()
        return Output(
            self.id,
            tuple(unsent.token_ids),
            self.finish_reason,
            self.cached_tokens or 0,
            self.setbacks.retractions,
            tuple(unsent.logits),
        )


class Server(Protocol):
    """Whoever tokens are asked of; requests are told apart by what `submit` says."""

    @property
    def has_work(self) -> bool: ...

    def submit(self, token_ids: Sequence[int], sampling: SamplingParams) -> int: ...

    def step(self) -> list[Output]: ...


def serve(server: Server, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
    """Ask a server for all of these, and step it until it has no work left; what came of each, in order."""
    generations = [Generation() for _ in prompts]
    awaited = dict(zip([server.submit(prompt, sampling) for prompt in prompts], generations, strict=True))
    while server.has_work:
        for output in server.step():
            if output.request_id in awaited:
                awaited[output.request_id].add(output)
    return generations
