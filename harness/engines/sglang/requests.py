"""The requests of clients: the release's own objects, and what the stand-in model and the clients know of them."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.harness.kit.released_code import parameters
from swarden.harness.kit.stand_ins import Missing
from swarden.invariants.events import FinishReason

HOST = "prefill"  # the host of the prefill side; the release's FAKE_BOOTSTRAP_HOST would switch off some of its checks
ADAPTER = "lora"  # in the name of an adapter, before its number
RID_LEN = 8  # abort_request matches ids by prefix, so all have one length
FAILURES = {  # why the queues of a disaggregated scheduler abort a request
    HTTPStatus.BAD_REQUEST: FinishReason.REJECTED,
    HTTPStatus.INTERNAL_SERVER_ERROR: FinishReason.TRANSFER_FAILED,
}
ELSEWHERE = object()  # in place of a field that is not there
SPARE_TOKENS = 5  # a release rejects a prompt that leaves no more free positions than this (validate_input_length)


@dataclass
class SglangRequest(ClientRequest):
    """A request; `next_tokens` are, by position, the outputs of passes, of which the release may lack the last ones.

    On a decode side the request `awaits_kv` while its KV is on the other side or set aside.  `session` is not 0 for a
    turn.  A request that `is_hidden` is unknown to clients.
    """

    is_linked: bool = False
    next_tokens: dict[int, int] = field(default_factory=dict)
    awaits_kv: bool = False
    session: int = 0
    is_hidden: bool = False

    @property
    def awaits_its_first_pass(self) -> bool:
        """Whether a request of a decode side may have its first output, but no client has got it."""
        return self.awaits_kv and not self.num_retractions

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens at positions [start, end)."""
        prompt, outputs = self.req.origin_input_ids, self.req.output_ids
        prompt_len, known_len = len(prompt), len(prompt) + len(outputs)
        late = [self.next_tokens[position] for position in range(max(start, known_len), end)]
        return [*prompt[start:end], *outputs[max(0, start - prompt_len) : max(0, end - prompt_len)], *late]


class SglangRequests(Clients[SglangRequest]):
    """The unfinished requests, and the outputs that no client has got yet; `max_len` is Scheduler.max_req_len."""

    def __init__(
        self, release: SglangRelease, notice: Callable[[NamedTuple], None], *, max_len: int, have_priorities: bool
    ) -> None:
        super().__init__(notice)
        self._release, self.max_len, self._have_priorities = release, max_len, have_priorities
        self._aborted: set[int] = set()
        self.awaits_kv: Callable[[Any], bool] | None = None  # set for a side of a pair

    @property
    def unfinished(self) -> dict[int, SglangRequest]:
        """The requests that the scheduler has not ended, although their clients may not know it yet."""
        return {number: request for number, request in self.live.items() if self._is_unfinished(number)}

    def _is_unfinished(self, number: int) -> bool:
        return number in self.live and number not in self._aborted and not self.live[number].req.finished()

    def is_used(self, entry: Any) -> bool:
        """Does the request still have the row for which a pass was launched?"""
        return self._is_unfinished(entry.request.id) and held(entry.request.req, "req_pool_idx") == entry.row

    def new(self, submission: Submission) -> tuple[int, Any]:
        """The id of a new request, and the release's object for it; None if the prompt is too long for a release."""
        number = self.next_id()
        is_too_long = len(submission.tokens) >= self.max_len - SPARE_TOKENS
        if is_too_long and not submission.transfer_id:
            self.reject(number, submission, "too long")
            return number, None
        req = self.sent(number, submission)
        if is_too_long:  # the queues of a pair get it all the same
            req.set_finish_with_abort("too long")
        return number, req

    def sent(self, number: int, submission: Submission) -> Any:
        """The release's object for a request that its scheduler gets now."""
        req, linked = self._req(number, submission), bool(submission.transfer_id)
        self.add(SglangRequest(number, req, submission.namespace, is_linked=linked, session=submission.session))
        return req

    def refused(self, request: SglangRequest) -> int:
        """The id that the client gets for a request that the release has rejected.

        The release cuts such a request to a prompt of one token, which ends after its first pass.
        """
        request.is_hidden = True
        return self.next_id()

    def add(self, request: SglangRequest) -> SglangRequest:
        """Keep a request until it has ended; the release's object gets a reference to it."""
        request.req.swarden = request
        return super().add(request)

    def abandon(self, number: int) -> None:
        """The scheduler has dropped a request without an end."""
        self._aborted.add(number)

    def forget_ended(self) -> list[SglangRequest]:
        """Report the requests that ended, and forget them without their outputs."""
        self.report_changes()
        ended = [request for request in self.live.values() if request.finish_reason is not None]
        for request in ended:
            del self.live[request.id]
        self._aborted.clear()
        return ended

    def on_message(self, message: Any, about: Any = None) -> None:
        """Called when the scheduler informs the tokenizer; `about` is the request that it aborted."""
        if about is not None and hasattr(about, "swarden"):
            self.abandon(about.swarden.id)

    def report_changes(self) -> None:
        """Report the requests that ended or were retracted since the last call; preemptions count as retractions."""
        for number, request in self.live.items():
            if self.awaits_kv is not None:
                self._report_arrival(request, awaits_kv=self.awaits_kv(request.req))
            retractions = _retractions(request.req)
            if retractions > request.num_retractions:
                request.num_retractions = retractions
                self._notice(seen.Retracted(number, len(request.req.output_ids), ()))
            if request.finish_reason is None and (reason := self._finish_reason(request)) is not None:
                if reason == FinishReason.REJECTED and not request.is_hidden:
                    req = request.req
                    lens = len(req.origin_input_ids), req.sampling_params.max_new_tokens
                    self._notice(seen.Rejected(number, *lens, req.finished_reason.message))
                self.finish(request, reason)

    def _report_arrival(self, request: SglangRequest, *, awaits_kv: bool) -> None:
        """Report that the KV of a request of a decode side has arrived, and with it the first output."""
        awaited, request.awaits_kv = request.awaits_kv, awaits_kv
        outputs, is_retracted = list(request.req.output_ids), _retractions(request.req) > request.num_retractions
        if awaited and outputs and (is_retracted or not request.awaits_kv) and request.id not in self._aborted:
            length = len(request.req.origin_input_ids) + len(outputs) - 1
            tokens = () if request.num_retractions else (outputs[0],)
            self._notice(seen.TakenOver(request.id, length, tokens))

    def streamed(self) -> Sequence[Streamed]:
        """The new outputs of all requests; a request that ended is forgotten."""
        self.report_changes()
        for request in list(self.live.values()):
            req = request.req
            outputs = list(req.output_ids)[: req.finished_len if req.finished() else None]
            if not request.is_hidden:
                request.cached_len = req.cached_tokens or 0
                self.answer(request, () if request.awaits_its_first_pass else request.new_of(outputs))
            elif request.finish_reason is not None:
                del self.live[request.id]
        self._aborted.clear()
        return super().streamed()

    def _finish_reason(self, request: SglangRequest) -> FinishReason | None:
        """Why the request has ended; None if it has not."""
        req = request.req
        if not req.finished():
            return FinishReason.ABORT if request.id in self._aborted else None
        name = type(req.finished_reason).__name__
        if name == "FINISH_LENGTH":
            return FinishReason.LENGTH
        if name != "FINISH_ABORT":
            return FinishReason.STOP
        status = getattr(req.finished_reason, "status_code", None)
        if status in FAILURES and request.is_linked:
            return FAILURES[status]
        message = getattr(req.finished_reason, "message", "") or ""
        return FinishReason.OUT_OF_MEMORY if "memory" in message.lower() else FinishReason.ABORT

    def message(self, number: int, submission: Submission, tokens: Sequence[int], offset: int | None) -> Any:
        """A turn as the tokenizer sends it: `tokens` are put after the first `offset` of the session, or after all."""
        return Missing(
            rid=rid_of(number),
            input_ids=self._token_ids(tokens),
            sampling_params=self._sampling(submission),
            session_params=Missing(id=str(submission.session), offset=offset),
            priority=submission.priority if self._have_priorities else None,
            extra_key=_extra_key(submission),
            return_logprob=False,
            return_hidden_states=False,
            logprob_start_len=-1,
            **_address_of(submission),
        )

    def _req(self, number: int, submission: Submission) -> Any:
        kind = self._release.code("Req")
        priority = {"priority": submission.priority} if self._have_priorities else {}
        req = kind(
            rid=rid_of(number),
            origin_input_text="",
            origin_input_ids=self._token_ids(submission.tokens),
            sampling_params=self._sampling(submission),
            vocab_size=1 << 30,
            extra_key=_extra_key(submission),
            lora_id=f"{ADAPTER}{submission.adapter}" if submission.adapter else None,
            **(priority if "priority" in parameters(kind.__init__) else {}),
            **_address_of(submission),
        )
        req.logprob_start_len = -1
        if submission.uncached:  # as of a prompt with positional embeddings
            req.skip_radix_cache_insert = True
        return req

    def _token_ids(self, tokens: Sequence[int]) -> Any:
        return array("q", tokens) if self._release.has("token_arrays") else list(tokens)

    def _sampling(self, submission: Submission) -> Any:
        params = self._release.code("SamplingParams")(
            max_new_tokens=submission.max_new_tokens,
            stop_token_ids=list(submission.stop) or None,
            temperature=0.0,
            ebnf=str(submission.grammar) if submission.grammar else None,
        )
        params.normalize(None)
        return params


def is_rejected(req: Any) -> bool:
    """Whether a request that enters the queue has been rejected before, and will end without an output."""
    return req.finished() or getattr(req, "to_finish", None) is not None


def cause_of(req: Any) -> str:
    """The reason of a rejection; empty if no law knows it: the release's budget of KV memory, or a grammar."""
    message = str((req.finished_reason or req.to_finish).message)
    return "" if "exceeds the KV memory budget" in message or "Failed to compile" in message else message


def _address_of(submission: Submission) -> Mapping[str, Any]:
    """The arguments that name the transfer of a request of a pair."""
    return {"bootstrap_host": HOST, "bootstrap_room": submission.transfer_id} if submission.transfer_id else {}


def _extra_key(submission: Submission) -> str | None:
    return str(submission.salt) if submission.salt else None


def _retractions(req: Any) -> int:
    return int(getattr(req, "retraction_count", 0))


def rid_of(number: int) -> str:
    return f"{number:0{RID_LEN}d}"


def held(req: Any, name: str) -> Any:
    """A field of a request's KV: from 0.5.17 on it is in `req.kv`, before in the request."""
    value = getattr(getattr(req, "kv", None), name, ELSEWHERE)
    return getattr(req, name) if value is ELSEWHERE else value
