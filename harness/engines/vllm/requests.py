"""The requests of clients: the release's own objects, and the outputs that the clients have not got yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from swarden.harness.core.port import Submission
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.front import VllmFront, number_of
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.invariants.events import HANDOVER_KIND, LOAD_KIND, REQUEST_KIND, SESSION_KIND, FinishReason, Owner
from swarden.invariants.kinds import Place

if TYPE_CHECKING:
    from swarden.harness.engines.vllm.config import VllmConfig

NOT_SENT = {"mm_features": None, "data_parallel_rank": None}  # fields of EngineCoreRequest
REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
    "error": FinishReason.ERROR,
    "repetition": FinishReason.ABORT,  # on a running server: a pattern of tokens was repeated
}


@dataclass
class VllmRequest(ClientRequest):
    """A request that has not ended.

    `cached_len` are the tokens of its prompt that the release says were cached.  While it `is_linked` it waits at the
    router of a pair for the prefill side.  If it `is_cut`, a prefill side with states computes its prompt without the
    last token, and its answer has no token.  A turn of a `session` has the request of its session, and what is `queued`
    until the turn before it ends.  One of several sequences has the number of the first one as its `parent`.
    """

    is_linked: bool = False
    is_cut: bool = False
    session: int = 0
    queued: Submission | None = None
    parent: int = 0


class VllmRequests(Clients[VllmRequest]):
    """The unfinished requests, and the outputs of the step so far.

    The ids of requests end with the `suffix`.  A request that has ended and `is_handed_over` keeps its blocks until
    they have been read.
    """

    def __init__(self, release: VllmRelease, config: "VllmConfig", notice: Callable[[NamedTuple], None]) -> None:
        super().__init__(notice)
        self._release, self._options, self._longest = release, config.options, config.max_context_len
        self.suffix = ""
        self.is_handed_over: Callable[[int], bool] = lambda number: False
        self.turns: dict[str, int] = {}  # the last turn that has begun, by the id of the request of its open session
        self.sessions: dict[int, int] = {}  # the sessions of all turns that have begun

    def number_of(self, rid: str) -> int:
        """The number of a request, or of the current turn of a session, or else its last one."""
        return self.turns[rid] if rid in self.turns else number_of(rid)

    def id_of(self, number: int) -> str:
        """The release's id of a request."""
        return f"{number}{self.suffix}"

    def owner(self, number: int) -> Owner:
        """The owner of blocks in the table of a request: one that has ended keeps them for a load, a transfer or its
        session.
        """
        if number in self.live:
            return Owner(REQUEST_KIND, number)
        if number in self.turns.values():
            return Owner(SESSION_KIND, self.sessions[number])
        return Owner(HANDOVER_KIND if self.is_handed_over(number) else LOAD_KIND, number)

    @cached_property
    def front(self) -> VllmFront:
        return VllmFront(self._release)

    def new(self, submission: Submission, hasher: Callable[[Any], Any] | None) -> tuple[int, Sequence[Any]]:
        """The id of a new request, and the release's object for each sequence; none if the frontend rejects it.

        The server rejects a prompt that leaves no room for max_new_tokens in the context.
        """
        if submission.transfer_id:  # numbers the requests of both sides
            self._last_id = submission.transfer_id - 1
        numbers = [self.next_id() for _ in range(submission.sequences)]
        if len(submission.tokens) + submission.max_new_tokens > self._longest:
            for number in numbers:
                self.reject(number, submission, "too long")
            return numbers[0], ()
        has_adapter = submission.adapter and "adapter" in self._options
        salt = submission.salt if has_adapter else submission.namespace
        lora = self._adapter(submission.adapter) if has_adapter else None
        values = self._values(
            self.id_of(numbers[0]), submission, cache_salt=str(salt) if salt else None, lora_request=lora
        )
        if submission.sequences == 1:
            reqs, parent = [self._release.make("Request", **values, block_hasher=hasher)], 0
        else:
            made, parent = self._release.code("Request").from_engine_core_request, numbers[0]
            request = self._release.make("EngineCoreRequest", **values, external_req_id=str(parent), **NOT_SENT)
            reqs = [made(child, hasher) for child in self.front.fan_out(request)]
        for number, req in zip(numbers, reqs, strict=True):
            self.add(VllmRequest(number, req, submission.namespace, parent=parent))
        return numbers[0], reqs

    def input(self, rid: str, submission: Submission, hasher: Callable[[Any], Any] | None, *, is_last: bool) -> Any:
        """Input for a session, or the end of it."""
        salt = str(submission.namespace) if submission.namespace else None
        values = self._values(rid, submission, cache_salt=salt, resumable=not is_last)
        return self._release.make("Request", **values, block_hasher=hasher)

    def _values(self, rid: str, submission: Submission, **further: Any) -> Mapping[str, Any]:
        return {
            "request_id": rid,
            "prompt_token_ids": list(submission.tokens),
            "sampling_params": self._sampling(submission),
            "pooling_params": None,
            "arrival_time": float(self._last_id),
            "priority": -submission.priority,
            **further,
        }

    def _adapter(self, number: int) -> Any:
        name = str(number)  # as another client may name its salt
        return self._release.code("LoRARequest")(lora_name=name, lora_int_id=number, lora_path=name)

    def take(self, number: int, output: Any) -> None:
        """Take an output of the engine core for one request; outputs of a request that its client aborted are dropped.

        The front end answers the client of several sequences.
        """
        if number not in self.live:
            return
        if output.prefill_stats is not None:  # with the first output
            self.live[number].cached_len = output.prefill_stats.num_cached_tokens
        if not self.live[number].parent:
            reason = None if output.finish_reason is None else str(output.finish_reason)
            self._take(number, output.new_token_ids, reason)

    def process(self, outputs: Sequence[Any]) -> Sequence[str]:
        """Answer requests with several sequences from the outputs of a step; returns those for the core to abort."""
        if not any(request.parent for request in self.live.values()):
            return ()
        aborted = self.front.process(outputs)
        self.collect()
        return aborted

    def collect(self) -> None:
        """Answer the clients of several sequences."""
        for answer in self.front.answers():
            self._take(*answer)

    def _take(self, number: int, tokens: Sequence[int], reason: str | None) -> None:
        if reason is None:
            self._answer(self.live[number], tokens)
        else:
            self.end(number, REASONS[reason], tokens)

    def end(self, number: int, reason: FinishReason, tokens: Sequence[int] = ()) -> None:
        self.finish(self.live[number], reason)
        self._answer(self.live[number], tokens)

    def _answer(self, request: VllmRequest, new: Sequence[int]) -> None:
        request.num_retractions = request.req.num_preemptions
        self.answer(request, new)

    def _sampling(self, submission: Submission) -> Any:
        seed = submission.seed
        if submission.sequences > 1 and seed is None:  # a release refuses several answers that are not sampled
            seed = 0
        return self._release.code("SamplingParams")(
            max_tokens=submission.max_new_tokens,
            stop_token_ids=list(submission.stop),
            ignore_eos=True,
            temperature=0.0 if seed is None else 1.0,
            seed=seed,
            n=submission.sequences,
            output_kind=self._release.code("RequestOutputKind").DELTA,  # read by the front end alone: streams
            logprobs=None if seed is None else 0,  # that of the sampled token only
            prompt_logprobs=1 if submission.prompt_logprobs and "prompt_logprobs" in self._options else None,
            structured_outputs=self._grammar(submission.grammar) if submission.grammar else None,
            detokenize=False,
        )

    def _grammar(self, length: int) -> Any:
        params = self._release.code("StructuredOutputsParams")(grammar=str(length))
        params._backend = "xgrammar"  # as the frontend sets it
        return params


class FindableBlocks:
    """The blocks that a hash finds, for those of the requests that wait, or did at the last walk.

    `find` returns what is there for each hash in a group of layers, 0 for nothing.
    """

    def __init__(self, find: Callable[[Sequence[Any], int], Sequence[int]], num_groups: int) -> None:
        self._find, self._groups = find, range(num_groups)
        self._waited = set[int]()

    def of(self, requests: VllmRequests, places: Mapping[int, Place]) -> dict[int, tuple[Sequence[int], ...]]:
        """The blocks by request and group; requests that read no cached blocks are left out."""
        waiting = {number for number, request in requests.live.items() if places.get(id(request.req)) == Place.WAITING}
        wanted, self._waited = waiting | self._waited, waiting
        reading = {number: requests.live[number].req for number in sorted(wanted) if number in requests.live}
        return {
            number: tuple([self._find(req.block_hashes, group) for group in self._groups])
            for number, req in reading.items()
            if not req.skip_reading_prefix_cache
        }
