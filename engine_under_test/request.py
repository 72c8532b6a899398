"""A request in the engine, and its output to the client."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from swarden.engine_under_test.ports import Computed, LogitsSpan
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import request_owner
from swarden.invariants.events import FinishReason, Owner


class Ending(NamedTuple):
    """The reason of a request's end with its detail, which names ids and counts."""

    reason: FinishReason
    detail: str = ""

    def __str__(self) -> str:
        """The text for the client; a failed transfer and a peer timeout show their detail only."""
        if self.reason in (FinishReason.TRANSFER_FAILED, FinishReason.PEER_TIMEOUT):
            return self.detail
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


class Output(NamedTuple):
    """The output of one step for one client: new token ids and, once, the reason why the request ended.

    `logits` are those computed since the last output, if the client wants them: first those of the prompt positions
    after the cached tokens, then those of each output token.  Logits computed again after a retraction are sent again.
    """

    request_id: int
    token_ids: tuple[int, ...]
    finish_reason: str | None
    cached_tokens: int  # of the prompt: cached, loaded, or kept by the session, when the request first began
    num_retractions: int  # preemptions included
    logits: tuple[LogitsSpan, ...] = ()


@dataclass(slots=True)
class Generation:
    """The whole output of one request; `finish_reason` is None until the end."""

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
        """By position, the last computed logits (vocabulary,) of the next token."""
        return {span.start + index: row for span in self._logits for index, row in enumerate(span.values.unbind())}


@dataclass(slots=True)
class Setbacks:
    """How often a request was retracted, preempted or gave way, and how often its pass failed."""

    retractions: int = 0
    failures: int = 0


@dataclass(slots=True)
class Unsent:
    """The output of a request that was not yet sent to the client."""

    token_ids: list[int] = field(default_factory=list)
    logits: list[LogitsSpan] = field(default_factory=list)


class Belonging(NamedTuple):
    """The session of a turn, or the transfer that links the two engines of a request; 0 for none."""

    session: int = 0
    transfer_id: int = 0


ALONE = Belonging()


@dataclass(slots=True, eq=False)
class Request:
    """A request and its output so far; a separate record holds its KV."""

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
        """The number of output tokens that may still follow."""
        return max(0, self.sampling.max_new_tokens - self.num_outputs)

    def begin(self, cached_len: int) -> None:
        """Record the cached length at the first start of the request; later starts change nothing."""
        if self.cached_tokens is None:
            self.cached_tokens = cached_len

    def receive(self, computed: Computed) -> bool:
        """Append computed tokens and logits, up to the last token that the client wants; that token sets the reason.

        Returns whether there is output for the client.
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
        """Take the output that was not yet sent to the client."""
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
    """An engine or a pair; `submit` returns the id of the request, the next step the `undelivered` outputs first."""

    undelivered: list[Output]

    @property
    def has_work(self) -> bool: ...

    def submit(self, token_ids: Sequence[int], sampling: SamplingParams) -> int: ...

    def step(self) -> list[Output]: ...


def serve(server: Server, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
    """The outputs of prompts, served until no work is left; the next step delivers those of other requests."""
    others: list[Output] = []
    generations = [Generation() for _ in prompts]
    awaited = dict(zip([server.submit(prompt, sampling) for prompt in prompts], generations, strict=True))
    while server.has_work:
        for output in server.step():
            if output.request_id in awaited:
                awaited[output.request_id].add(output)
            else:
                others.append(output)
    server.undelivered += others
    return generations
