"""The interface of a system that a driver applies ops to, and its implementation for a whole engine."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from swarden.harness.core import ops
from swarden.harness.core.errors import RunTooLarge
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_GONE
from swarden.harness.core.limits import MAX_TOKENS
from swarden.harness.core.port import NAMESPACES_PER_ADAPTER, EnginePort, Streamed, Submission
from swarden.harness.core.progress import IdleSteps
from swarden.harness.core.sessions import ClientSessions, LiveRequests
from swarden.invariants.grammar import END
from swarden.invariants.reference import Reference
from swarden.invariants.view import Snapshot

SPARE_DRAIN_STEPS = 50
DRAIN_STEPS_PER_TOKEN = 4


class System(Protocol):
    """One system under test: the driver applies ops to it and captures its state after each.

    `steps_without_forward` counts, since the last launch, the engine steps in which no pass was launched or completed
    and no request ended, other than by an abort or its timeout, although there were live requests, no fault fired and
    the engine was not paused.  Pressure restarts the count, as does `heal`, which releases pressure.
    """

    reference: Reference

    @property
    def steps_without_forward(self) -> int: ...

    @property
    def log(self) -> EventLog: ...

    def do(self, op: ops.Op) -> bool:
        """Execute an op; False if it was a no-op.  A Step op is one engine step here, whatever its `count`."""

    @property
    def has_work(self) -> bool: ...

    def heal(self) -> None:
        """Disarm all faults, release all pressure and resume."""

    def clear(self) -> None:
        """Close all sessions and drop the whole cache; there must be no live request."""

    @property
    def drain_bound(self) -> int:
        """The maximum number of steps in which all live requests must finish."""

    def capture(self) -> Snapshot: ...

    def take_events(self) -> list[NamedTuple]: ...


class EngineSystem:
    """A whole engine as its clients see it: live requests, their submissions and their outputs.

    Without `keep_finished` the expected output of a request is dropped one step after its end, and no prompt can
    continue it.  The prompts that are not dropped have at most MAX_TOKENS tokens: a further one raises RunTooLarge.
    """

    def __init__(self, port: EnginePort, *, keep_finished: bool = True) -> None:
        self.port = port
        self.reference = port.reference()
        self._idle_steps = IdleSteps()
        self.submitted: list[int] = []  # the ids of all requests, in order
        self.streamed: Sequence[Streamed] = ()  # the outputs of the last step
        self.last_events: Sequence[NamedTuple] = ()  # that were taken last
        self._keep_finished = keep_finished
        self._num_tokens = 0  # of the prompts that are not dropped
        self._live = LiveRequests()
        self._sessions = ClientSessions(port, self.reference)
        self._paused: ops.PauseMode | None = None
        self._had_requests = False

    @property
    def log(self) -> EventLog:
        return self.port.log

    @property
    def steps_without_forward(self) -> int:
        return self._idle_steps.count

    @property
    def has_work(self) -> bool:
        return self.port.has_work

    @property
    def drain_bound(self) -> int:
        return SPARE_DRAIN_STEPS + DRAIN_STEPS_PER_TOKEN * sum(self._live.most_tokens.values())

    def do(self, op: ops.Op) -> bool:
        match op:
            case ops.Step():
                return self._step()
            case ops.Submit():
                return self._submit(op)
            case ops.OpenSession():
                return self._sessions.open(op)
            case ops.Turn():
                return self._turn(op)
            case ops.CloseSession():
                return self._sessions.close(op)
            case ops.Abort():
                return self._abort(op)
            case ops.Accept():
                return self._accept(op)
            case ops.AdvanceClock():
                return self._advance_clock(op.ms)
            case ops.Flush():
                return self.port.flush()
            case ops.Pressure():
                return self._pressure(op)
            case ops.Pause():
                return self._pause(op.mode)
            case ops.Resume():
                return self._resume()
            case ops.Reset():
                return self._reset(op.cause)
            case ops.Inject():
                return self._inject(op)
            case ops.Heal():
                return op.fault in (None, *self.port.faults.known) and self.port.faults.heal(op.fault)
            case _:
                return False

    def heal(self) -> None:
        self.port.faults.heal()
        self._resume()
        for pool in self.port.pool_names:
            self.port.pressure(pool, 0)
        self._idle_steps.restart()

    def clear(self) -> None:
        self._sessions.close_all()
        self.port.clear()

    def capture(self) -> Snapshot:
        return self.port.capture()

    def take_events(self) -> list[NamedTuple]:
        events = self.last_events = self.port.take_events()
        if self._had_requests:
            if self._paused in (None, ops.PauseMode.ABORT):
                self._idle_steps.note(events)
            self._had_requests = False
        return events

    def _step(self) -> bool:
        for request in self._live.left():
            self._abort_request(request)
        had_work = self.port.has_work
        self._had_requests = bool(self._live)
        if not self._keep_finished:
            ended = [streamed.request_id for streamed in self.streamed if streamed.finish_reason]
            self._num_tokens -= sum(self.reference.expectations[request_id].prompt_len for request_id in ended)
            self.reference.forget(ended)
        self.streamed = self.last_events = ()
        with self.log.in_step():
            self.streamed = self.port.step()
        for streamed in self.streamed:
            self.reference.streamed(streamed.request_id, streamed.token_ids, streamed.finish_reason)
            if streamed.finish_reason is not None:
                self._live.end(streamed.request_id)
                self._sessions.turn_ended(streamed.request_id, streamed.finish_reason)
            elif CLIENT_GONE in self.port.faults.known and self.port.faults.fires(CLIENT_GONE):
                self._abort_request(streamed.request_id)
                self._live.leave(streamed.request_id)
        if not self._live:
            self._had_requests = False
            self._idle_steps.restart()
        return had_work

    def _submit(self, op: ops.Submit) -> bool:
        if self._paused == ops.PauseMode.ABORT:
            return False
        continued: Sequence[int] = ()
        if op.recipe.continues is not None and self.submitted:
            continued = self.reference.tokens_of(self.submitted[op.recipe.continues % len(self.submitted)])
        tokens = list(op.tokens) if op.tokens is not None else ops.expand(op.recipe, continued)
        namespace = op.namespace + op.adapter * NAMESPACES_PER_ADAPTER
        sent = Submission(tokens, op.max_new_tokens, op.stop, op.priority, namespace, seed=op.seed, adapter=op.adapter)
        sequences = op.sequences if self.port.forks else 1
        sent = sent._replace(uncached=op.uncached, prompt_logprobs=op.prompt_logprobs, sequences=sequences)
        self._send(self._by_grammar(sent, op.grammar))
        return True

    def _by_grammar(self, submission: Submission, grammar: int) -> Submission:
        if not grammar or submission.sequences > 1 or not self.port.has_grammars:
            return submission
        return submission._replace(grammar=grammar, stop=(*submission.stop, END))

    def _send(self, submission: Submission) -> int:
        self._num_tokens += len(submission.tokens) * submission.sequences
        if self._num_tokens > MAX_TOKENS:
            raise RunTooLarge(f"the prompts have {self._num_tokens} tokens; want at most {MAX_TOKENS}")
        first = self.port.submit(submission)
        sequences = range(first, first + submission.sequences)
        for request in sequences:
            tokens = list(submission.tokens)
            self.reference.submitted(request, namespace=submission.namespace, prompt=tokens, stop=submission.stop)
            self.reference.expectations[request].client = first
            self.reference.expectations[request].grammar = submission.grammar
            self.reference.expectations[request].is_uncached = submission.uncached and self.port.has_uncached
            self.submitted.append(request)
        self._live.add(sequences, len(submission.tokens) + submission.max_new_tokens)
        return first

    def _turn(self, op: ops.Turn) -> bool:
        session = None if self._paused == ops.PauseMode.ABORT else self._sessions.session_of(op)
        if session is not None:
            grammar = op.grammar * self.port.turns_have_grammars
            submission = self._by_grammar(self._sessions.submission(session, op), grammar)
            self._sessions.turn_sent(session, self._send(submission), submission)
        return session is not None

    def _accept(self, op: ops.Accept) -> bool:
        """Set the number of correct drafts; False for an engine without draft tokens."""
        if self.port.drafts is not None:
            self.port.drafts.accept(op.lengths)
        return self.port.drafts is not None

    def _advance_clock(self, ms: int) -> bool:
        has_clock = self.port.advance_clock(ms)
        self.reference.now_ms += ms if has_clock else 0
        return has_clock

    def _pressure(self, op: ops.Pressure) -> bool:
        names = self.port.pool_names
        self._idle_steps.restart()
        return bool(names) and self.port.pressure(names[op.pool % len(names)], op.pages)

    def _pause(self, mode: ops.PauseMode) -> bool:
        """Begin a pause; False in a pause, except that requests which keep their KV can still be retracted."""
        if self._paused is not None and (self._paused, mode) != (ops.PauseMode.KEEP, ops.PauseMode.RETRACT):
            return False
        if mode == ops.PauseMode.ABORT:
            has_paused = self._abort_all()
        else:
            has_paused = self.port.pause() if mode == ops.PauseMode.RETRACT else self.port.pause_in_place()
        self._paused = mode if has_paused else self._paused
        return has_paused

    def _abort_all(self) -> bool:
        if not self.port.abort_all():
            return False
        for request in self._live.most_tokens:
            self.reference.aborted(request)
            self._sessions.turn_aborted(request)
        return True

    def _resume(self) -> bool:
        if self._paused is None:
            return False
        self._paused = None
        self.port.resume()
        return True

    def _reset(self, cause: ops.ResetCause) -> bool:
        """Reset the engine; weights are replaced only when no client waits for an answer, or requests are retracted."""
        if cause == ops.ResetCause.WEIGHTS and self._live and self._paused != ops.PauseMode.RETRACT:
            return False
        return self.port.reset(cause)

    def _inject(self, op: ops.Inject) -> bool:
        """Arm a fault; False if the engine does not have it, or `count` is 0."""
        if op.fault is None or op.fault not in self.port.faults.known or not op.count:
            return False
        self.port.faults.arm(op.fault, skip=op.skip, count=op.count)
        return True

    def _abort(self, op: ops.Abort) -> bool:
        if not self._live:
            return False
        for request in self._live.of_client(op.request):
            self._abort_request(request)
        return True

    def _abort_request(self, request_id: int) -> None:
        self.reference.aborted(request_id)
        self._sessions.turn_aborted(request_id)
        self.port.abort(request_id)
