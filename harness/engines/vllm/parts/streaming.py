"""Streaming input: a session is a resumable request of the release, and each turn further input for it.

Real: resumable requests, inputs queued while the one before runs, end of the input, a client that cancels.
Stand-in: none.
Shows: tokens of an earlier turn, stuck sessions.

A release drops the last output token of a turn before it appends the next input.  A client that wants to keep it sends
it again.  A turn that does not begin with the tokens of its session is the first of another resumable request.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import swarden.invariants.events as seen
from swarden.harness.core.ops import SESSION_OPS, name_of
from swarden.harness.core.port import SessionPort, Submission
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import VllmEngine, VllmPart
from swarden.harness.engines.vllm.parts.store import Storing
from swarden.harness.engines.vllm.requests import VllmRequest
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs
from swarden.invariants.events import FinishReason
from swarden.invariants.view import SessionView, Snapshot

END_OF_INPUT = Submission((0,), 1, (), 0, 0)


class Streaming(VllmPart, frozen=True):
    """With `streaming_input` some requests wait for further input, the turns of a session."""

    streaming_input: Annotated[bool, Drawn((False, False, True)), IfReleaseHas("streaming_input")] = False

    needs = (Needs("streaming_input", off(Pairing, Storing)),)
    server_need = "streaming input"
    waits = True
    ops = tuple([name_of(op) for op in SESSION_OPS])
    events = (seen.Lent, seen.Kept, seen.GivenUp)

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        return [VllmSessions(engine)]


@dataclass
class Stream:
    """A session of a client, with the release's request for it, None if there is none.

    `turn` is the last turn that has begun; the `queued` ones wait for its end.  The turns so far have at most
    `most_tokens`.  If it `is_closing`, the client sends nothing more.
    """

    namespace: int
    req: Any = None
    turn: int = 0
    queued: list[VllmRequest] = field(default_factory=list)
    most_tokens: int = 0
    is_closing: bool = False


class VllmSessions(Part, SessionPort):
    """The streams of an engine core."""

    def __init__(self, engine: VllmEngine) -> None:
        self._built, self._requests, self._notice = engine.built, engine.requests, engine.log.notice
        self._longest, self._device, self._engine = engine.built.scheduler.max_model_len, engine.runner.device, engine
        self._block_len = engine.config.groups[0].block_len
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        engine.sessions, engine.queues_turns = self, True
        intercept(engine, "submit", self._submit)
        intercept(engine, "abort", self._abort)
        intercept(engine, "take", self._take)
        manager = engine.built.manager
        for name in ("free", "pop_blocks_for_free"):
            if hasattr(manager, name):
                intercept(manager, name, self._free)

    def views(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, sessions=tuple(self._views()))

    def open_session(self, *, namespace: int = 0) -> int:
        self._last_id += 1
        self._streams[self._last_id] = Stream(namespace)
        return self._last_id

    def close_session(self, session: int) -> None:
        stream = self._streams[session]
        stream.is_closing = True
        self._end_input(stream)
        self._forget(session, stream)

    def _submit(self, original: Callable[[Submission], int], submission: Submission) -> int:
        if not submission.session:
            return original(submission)
        number = self._begin_turn(submission)
        self._device.namespaces[number] = submission.namespace
        return number

    def _abort(self, original: Callable[[int], None], number: int) -> None:
        turn = self._turn(number)
        original(number) if turn is None else self._cancel(turn)

    def _take(self, original: Callable[[int, Any], None], number: int, output: Any) -> None:
        turn = self._turn(number)
        original(number, output)
        if turn is not None and number not in self._requests:
            self._ended(turn)

    def _turn(self, number: int) -> VllmRequest | None:
        request = self._requests.live.get(number)
        return request if request is not None and request.session else None

    def _begin_turn(self, submission: Submission) -> int:
        """The id of a new turn."""
        session, requests = submission.session, self._requests
        stream, number = self._streams[session], requests.next_id()
        is_busy = stream.turn in requests
        kept_len = 0 if stream.req is None or is_busy else stream.req.num_tokens - 1
        if not is_busy and stream.req is not None and not self._continues(stream.req, submission):
            self._end_input(stream)
            kept_len = 0
        before = stream.most_tokens if is_busy else 0
        most_tokens = before + len(submission.tokens) + submission.max_new_tokens
        if most_tokens > self._longest:
            requests.reject(number, submission, "too long")
            return number
        stream.most_tokens = most_tokens
        rid = str(number) if stream.req is None else stream.req.request_id
        update = submission._replace(tokens=submission.tokens[kept_len:])
        req = requests.input(rid, update, self._built.hasher, is_last=False)
        turn = requests.add(VllmRequest(number, stream.req or req, submission.namespace, session=session))
        self._engine.admit(req)
        if is_busy:
            turn.queued = update
            stream.queued.append(turn)
        else:
            stream.req = turn.req
            self._begin(session, stream, number)
        return number

    def _ended(self, turn: VllmRequest) -> None:
        """A turn has ended: its session waits for input, goes on with the next turn, or ends with it."""
        stream = self._streams[turn.session]
        if turn.id != stream.turn:
            return
        if self._built.scheduler.requests.get(turn.req.request_id) is not turn.req:  # the release has forgotten it
            if turn.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
                stream.queued.clear()  # these turns are lost: their clients wait
            self._end(stream, turn.finish_reason or FinishReason.ABORT)
            self._forget(turn.session, stream)
            return
        self._notice(seen.Kept(turn.session, turn.id, turn.req.num_computed_tokens))
        if stream.queued:
            following = stream.queued.pop(0)
            following.queued = None
            self._begin(turn.session, stream, following.id)

    def _views(self) -> Iterator[SessionView]:
        for session, stream in self._streams.items():
            turn = stream.turn if stream.turn in self._requests else 0
            kept = 0 if turn or stream.req is None else stream.req.num_computed_tokens
            yield SessionView(session, stream.namespace, turn, kept, stream.is_closing)

    def _cancel(self, turn: VllmRequest) -> None:
        """A client cancels a turn, and all of its session with it."""
        stream = self._streams[turn.session]
        self._built.core.abort_requests([turn.req.request_id])
        self._end(stream)
        self._forget(turn.session, stream)

    def _free(self, original: Callable[[Any], Any], req: Any) -> Any:
        """The release frees a request: an idle session gives up its blocks, and a turn that waits begins anew."""
        number = self._requests.number_of(req.request_id)
        if number in self._requests.sessions and req.num_computed_tokens:
            if number not in self._requests:
                self._notice(seen.GivenUp(self._requests.sessions[number], "freed"))
            elif req.status.name == "WAITING":
                self._notice(seen.Retracted(number, 0, ()))
        return original(req)

    def _continues(self, req: Any, submission: Submission) -> bool:
        kept = list(req.all_token_ids)[: req.num_tokens - 1]
        return len(submission.tokens) > len(kept) and list(submission.tokens[: len(kept)]) == kept

    def _begin(self, session: int, stream: Stream, number: int) -> None:
        length = stream.req.num_computed_tokens
        stream.turn = self._requests.turns[stream.req.request_id] = number
        self._requests.sessions[number] = session
        grammar = stream.req.sampling_params.structured_outputs
        self._device.grammars[number] = int(grammar.grammar) if grammar else 0, stream.req.num_prompt_tokens
        if length:
            blocks = self._built.tables[0].req_to_blocks.get(stream.req.request_id, ())
            pages = tuple([block.block_id for block in blocks[: -(-length // self._block_len)]])
            self._notice(seen.Lent(session, number, length, pages))

    def _end_input(self, stream: Stream) -> None:
        """Send the end of the input; a session without a turn ends at once."""
        if stream.req is not None:
            is_busy = stream.turn in self._requests
            end = self._requests.input(stream.req.request_id, END_OF_INPUT, None, is_last=True)
            self._built.core.add_request(end)
            if not is_busy:
                self._end(stream)

    def _end(self, stream: Stream, reason: FinishReason = FinishReason.ABORT) -> None:
        """The release's request has ended, and so have its turns."""
        for number in (stream.turn, *[turn.id for turn in stream.queued]):
            if number in self._requests:
                self._requests.end(number, reason)
        if stream.req is not None:
            self._requests.turns.pop(stream.req.request_id, None)
        stream.req, stream.turn, stream.queued, stream.most_tokens = None, 0, [], 0

    def _forget(self, session: int, stream: Stream) -> None:
        if stream.is_closing and stream.req is None:
            del self._streams[session]
