"""The requests of clients: a coroutine of each, on the release's own instance of the engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from swarden.harness.core.port import Submission
from swarden.harness.engines.lmdeploy.boot import LmdeployRelease
from swarden.harness.engines.lmdeploy.core import Core
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.harness.kit.tags import with_namespace
from swarden.invariants.events import FinishReason
from swarden.invariants.kinds import Place
from swarden.invariants.view import RequestView


@dataclass
class LmdeployRequest(ClientRequest):
    """A request that has not ended: `req` is its instance of the engine.

    The engine lowers `max_new_tokens` to what its cache holds.  It `is_aborted` when its client has asked for that.
    """

    is_aborted: bool = False


class LmdeployRequests(Clients[LmdeployRequest]):
    """The unfinished requests; a request is a session of its own, with its number.

    As in the server, a prompt that fills the context and a request without new tokens are rejected.
    """

    def __init__(self, release: LmdeployRelease, core: Core, notice: Callable[[NamedTuple], None]) -> None:
        super().__init__(notice)
        self._release, self._core = release, core
        self._least = 0 if release.has("serves_prompts_alone") else 1  # new tokens
        self._status, self._longest = release.code("ResponseType"), core.engine.engine_config.session_len

    def submit(self, submission: Submission) -> int:
        number, tokens = self.next_id(), with_namespace(submission.tokens, submission.namespace)
        if tokens is None or len(tokens) >= self._longest or submission.max_new_tokens < 1:
            self.reject(number, submission)
            return number
        request = LmdeployRequest.of(number, submission, self._release.code("EngineInstance")(self._core.engine))
        limit = min(submission.max_new_tokens, self._core.engine.max_session_len - len(tokens))
        request.max_new_tokens = max(self._least, limit)
        self._core.loop.start(partial(self._serve, self.add(request), tokens, submission))
        return number

    async def _serve(self, request: LmdeployRequest, tokens: list[int], submission: Submission) -> None:
        """The client of one request; the answer with its end comes when its session has ended, too.

        Raises RuntimeError for an answer with an error, and for an end that neither an abort nor a sleep explains.
        """
        settings = self._release.code("GenerationConfig")(
            max_new_tokens=submission.max_new_tokens, stop_token_ids=list(submission.stop), top_k=1, random_seed=0
        )
        reason, last, status = None, 0, None
        async for output in request.req.async_stream_infer(request.id, tokens, gen_config=settings):
            new = output.token_ids
            request.num_streamed += len(new)
            last, status = new[-1] if new else last, output.status
            if status == self._status.INPUT_LENGTH_ERROR and len(tokens) > self._core.engine.max_session_len:
                del self.live[request.id]
                self.reject(request.id, submission, "longer than the cache")
                return
            if status == self._status.FINISH:
                is_stopped = request.num_streamed > 0 and last in request.stop
                reason = FinishReason.STOP if is_stopped else FinishReason.LENGTH
            self.answer(request, new)
        if reason is None and not request.is_aborted and not self._core.is_sleeping:
            raise RuntimeError(f"request {request.id}: ended with {status}, but no client or sleep aborted it")
        self.finish(request, reason or FinishReason.ABORT)
        self.answer(request, ())

    def abort(self, number: int) -> None:
        """The client of a request stops it; its answer comes from the release."""
        if (request := self.live.get(number)) is not None:
            request.is_aborted = True
            self._core.loop.start(partial(request.req.async_cancel, number))

    @property
    def seqs(self) -> dict[int, Any]:
        """The release's objects for the requests, by number."""
        sessions = self._core.scheduler.sessions.items()
        return {number: seq for number, session in sessions for seq in session.sequences.values()}

    def stop_running(self, number: int) -> None:
        """Results of passes in flight are not used from now on."""
        if (request := self.live.get(number)) is not None:
            request.run += 1

    def views(self) -> Iterator[RequestView]:
        seqs = self.seqs
        for request in self.live.values():
            yield request.view(self._place(request, seqs.get(request.id)))

    def _place(self, request: LmdeployRequest, seq: Any) -> Place:
        if seq is None:
            return Place.WAITING if not request.num_streamed else Place.LOST
        maker = self._core.inputs_maker
        if seq.status.name == "WAITING":
            return Place.SWAPPED if seq.num_blocks or seq.logical_state >= 0 else Place.WAITING
        if seq.status.name in ("READY", "RUNNING"):
            return Place.CHUNKED if maker.long_context_chunker.seq is seq else Place.RUNNING
        return Place.LOST
