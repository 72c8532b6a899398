"""Streaming sessions: their controller and the KV that they keep are the release's; clients and the clock are not.

Real: from 0.5.11: `SessionController`, `Session`, the KV that a session keeps, `handle_generate_request`.
Stand-in: the client; a clock of 0.4 s a step.
Shows: KV of a session that is lost, read by others, or never freed.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.core.ops import OpenSession, name_of
from swarden.harness.core.port import SessionPort, Submission
from swarden.harness.core.target import Draw
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import (
    SECONDS_PER_STEP,
    SessionSlot,
    SglangCapability,
    SglangEngine,
    SglangPart,
    Terms,
)
from swarden.harness.engines.sglang.requests import SPARE_TOKENS, SglangRequest, cause_of, held, is_rejected
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.launch import Line, table
from swarden.harness.kit.settings import Drawn, IfReleaseHas, drawn
from swarden.harness.kit.stand_ins import Missing
from swarden.invariants.limits import SessionTimeout
from swarden.invariants.view import SessionView, Snapshot

MS_PER_STEP = int(SECONDS_PER_STEP * 1000)
LONG = 10.0  # seconds, after which the controller looks again; it looks once a second for sessions to close
CLOSED = "session closed, or turn aborted"
RESET = "reset"


Timeout = Annotated[float, msgspec.Meta(gt=0, le=MAX_NUMBER)]


class Sessions(SglangCapability, frozen=True):
    """`streaming_sessions` is the switch of that name; an idle session is closed after `session_timeout_s`."""

    streaming_sessions: Annotated[bool, IfReleaseHas("streaming_sessions")] = False
    session_timeout_s: Annotated[Timeout | None, Drawn((None, None, 5.0))] = None

    server_need = "streaming sessions"
    ops = (name_of(OpenSession),)
    launch_table = table(streaming_sessions=(Line.has, "enable-streaming-session"))

    @classmethod
    def drawn(cls, draw: Draw, config: Any, has: Callable[[str], bool]) -> Mapping[str, Any]:
        """A third has sessions, if the release serves any."""
        has_sessions = has("streaming_sessions") and draw.one_of((False, False, True))
        return {"streaming_sessions": has_sessions, **drawn(draw, cls)}

    def terms(self, config: Any) -> Terms:
        return Terms({"enable_streaming_session": True})

    def limits(self, config: Any) -> Mapping[str, Any]:
        """A timeout counts from the begin of a turn, and is looked at once a second (0.5.23: session_controller.py)."""
        timeout = SessionTimeout(int((self.session_timeout_s or 0) * 1000), 4 * MS_PER_STEP, from_begin=True)
        return {"session_timeout": timeout if self.session_timeout_s else None, "ms_per_step": MS_PER_STEP}

    def wrapped(self, release: SglangRelease, tree: Any, server_args: Any, params: Any) -> Any:
        return tree if release.is_unified(tree) else release.code("StreamingSession")(tree)  # that tree has its own

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        return [SglangSessions(engine, self.session_timeout_s)]


@dataclass
class Client:
    """A client of a session: the tokens that it knows the server to have, and its last turn."""

    tokens: Sequence[int] = ()
    prompt: Sequence[int] = ()
    turn: SglangRequest | None = None

    def history(self) -> Sequence[int]:
        """The prompt and output of the last turn that was not aborted: to these a release appends."""
        turn, self.turn = self.turn, None
        if turn is not None and turn.req.finished() and type(turn.req.finished_reason).__name__ != "FINISH_ABORT":
            self.tokens = [*self.prompt, *list(turn.req.output_ids)[: turn.req.finished_len]]
        elif turn is not None and not turn.req.finished():
            self.turn = turn
        return self.tokens


class OpenSessions(SglangPart):
    """The streaming sessions of a scheduler: their controller, the object with their KV, and their numbers by name."""

    def __init__(self, controller: Any, kept: Any, number_of: Callable[[str], int]) -> None:
        self.controller, self.kept, self.number_of = controller, kept, number_of

    @property
    def slots(self) -> Iterator[SessionSlot]:
        """The slots of sessions that keep KV."""
        for name, slot in self.kept.slots.items():
            if held(slot, "req_pool_idx") is not None:
                yield SessionSlot(self.number_of(name), slot)

    def views(self, snapshot: Snapshot) -> Snapshot:
        """The open sessions.  A release knows no namespace of a session, only those of its turns."""
        owned, turns, views = snapshot.records or (), snapshot.requests or (), list[SessionView]()
        kept = {record.owner.id: record.committed_len for record in owned if record.owner.kind == seen.SESSION_KIND}
        for name, session in self.controller.sessions.items():
            if session.streaming:
                number = self.number_of(name)
                of_session = [(turn.id, turn.namespace) for turn in turns if turn.session == number]
                turn, namespace = next(iter(of_session), (0, 0))
                views.append(SessionView(number, namespace, turn, kept.get(number, 0), session.close_on_finish))
        return replace(snapshot, sessions=tuple(views))


class SglangSessions(OpenSessions, SessionPort):
    """The sessions of one engine, and their clients."""

    def __init__(self, engine: SglangEngine, timeout_s: float | None) -> None:
        tree, self._scheduler, self._requests = engine.memory.tree, engine.scheduler, engine.requests
        controller = self._scheduler.session_controller = engine.release.code("SessionController")(tree)
        super().__init__(controller, tree.session if engine.release.is_unified(tree) else tree, int)
        self._notice, self.timeout_s, self._clock = engine.log.notice, timeout_s, EngineClock()
        self._clients: dict[int, Client] = {}
        self._timed = [sys.modules[type(controller).__module__]]
        self._lendable: set[int] = set()  # the sessions that keep the KV of a turn, which no later turn got yet
        engine.sessions, engine.submit_turn = self, self.submit
        for name, watching in (("try_cache_finished_req", self._keep), ("release_session", self._give_up)):
            intercept(self.kept, name, watching)

    def open_session(self, *, namespace: int = 0) -> int:
        number = len(self._clients) + 1
        self._clients[number] = Client()
        self._clock.serve(self._timed)
        self.controller.open(
            Missing(session_id=str(number), capacity_of_str_len=0, streaming=True, timeout=self.timeout_s)
        )
        return number

    def history(self, session: int) -> Sequence[int]:
        """The tokens that a session has now."""
        return self._clients[session].history()

    def close_session(self, session: int) -> None:
        self._clock.serve(self._timed)
        self.controller.close(Missing(session_id=str(session)))

    def submit(self, submission: Submission) -> int:
        """A turn: what follows the tokens of the session goes to the release, which puts them before it."""
        client = self._clients[submission.session]
        history, tokens = client.history(), list(submission.tokens)
        number = self._requests.next_id()
        same = next((at for at, pair in enumerate(zip(history, tokens, strict=False)) if pair[0] != pair[1]), None)
        start = min(len(history), len(tokens)) if same is None else same
        req = self._send(number, submission, tokens[start:], offset=start if start < len(history) else None)
        request = self._requests.add(SglangRequest(number, req, submission.namespace, session=submission.session))
        self._scheduler._add_request_to_queue(req)
        if not is_rejected(req):
            client.turn, client.prompt = request, tokens
            return number
        live = self._requests.live.values()
        hidden = [turn for turn in live if turn.is_hidden and turn.session == submission.session]
        refused = self._requests.refused(request)
        is_long = len(tokens) >= self._requests.max_len - SPARE_TOKENS
        fits = not is_long and bool(cause_of(req))
        if fits and start == len(history) and not hidden:  # a rejected turn is one to the release until its pass
            self._notice(seen.TurnRefused(submission.session, refused))
        self._requests.reject(refused, submission, "too long" if is_long else "")
        return refused

    def begin_step(self) -> None:
        self._pass_time(SECONDS_PER_STEP)

    def clear(self) -> None:
        self._pass_time(LONG)

    def _pass_time(self, seconds: float) -> None:
        """Let the controller close the sessions that are due, as the event loop does before each turn."""
        self._clock.now_s += seconds
        self._clock.serve(self._timed)
        self.controller.maybe_reap(self._clock.now_s)

    def launching(self, batch: Any) -> None:
        """Report the turns that begin in this batch on KV that their sessions kept."""
        for req in batch.reqs if batch.forward_mode.is_extend() else ():
            session = req.swarden.session
            if session in self._lendable and not req.swarden.is_hidden:
                self._lendable.remove(session)
                length = batch.prefix_lens[batch.reqs.index(req)]
                page = self._scheduler.page_size
                slots = self._scheduler.req_to_token_pool.req_to_token[held(req, "req_pool_idx"), :length:page]
                pages = [slot // page for slot in slots.tolist()]
                self._notice(seen.Lent(session, req.swarden.id, length, pages))

    def _send(self, number: int, submission: Submission, tokens: Sequence[int], *, offset: int | None) -> Any:
        """Let the scheduler receive a turn as from its tokenizer; returns the request that it would queue."""
        queued: list[Any] = []
        self._scheduler._add_request_to_queue = queued.append
        self._clock.serve(self._timed)
        try:
            self._scheduler.handle_generate_request(self._requests.message(number, submission, tokens, offset))
        finally:
            del self._scheduler._add_request_to_queue
        [req] = queued
        return req

    def _keep(self, keep: Callable[..., bool], req: Any, *args: Any, **kwargs: Any) -> bool:
        session = req.swarden.session
        is_kept = keep(req, *args, **kwargs)
        if is_kept and (slot := self.kept.slots.get(str(session))) is not None:
            self._lendable.add(session)
            self._notice(seen.Kept(session, req.swarden.id, held(slot, "kv_committed_len")))
        return is_kept

    def lose_kv(self) -> bool:
        self._lendable.clear()
        for name in self.kept.slots:
            self._notice(seen.GivenUp(int(name), RESET))
        return False

    def _give_up(self, release: Callable[[str], None], name: str) -> None:
        if name in self.kept.slots:
            self._lendable.discard(int(name))
            self._notice(seen.GivenUp(int(name), CLOSED))
        release(name)
