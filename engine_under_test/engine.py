"""The engine: requests in, tokens out, one step at a time."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.decode import DecodeSide
from swarden.engine_under_test.disaggregation.prefill import PrefillSide
from swarden.engine_under_test.disaggregation.side import LinkedTo
from swarden.engine_under_test.errors import ConfigError, EngineError
from swarden.engine_under_test.host.tier import HostTier
from swarden.engine_under_test.model.runner import model_forward
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Belonging, Ending, Generation, Output, Request
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.loading import Storage
from swarden.engine_under_test.scheduler.other_side import OtherSide
from swarden.engine_under_test.scheduler.scheduler import Scheduler
from swarden.engine_under_test.strict import CENSUS, CONTENT, Checker, both, checker_of, setting_of
from swarden.engine_under_test.units import num_pages
from swarden.invariants import events

PAUSED = "paused: the engine generates no tokens; call resume first"
DEFAULT_PORTS = Ports()  # the forward of a checkpoint, the system clock, no observer, memory without shortages


class Engine:
    """A hybrid-SWA serving engine over its ports.

    `memory`, `cache`, `host` and `scheduler` are public for reading; only the methods of this class change them.
    """

    def __init__(self, config: EngineConfig, ports: Ports) -> None:
        forward, observer = ports.forward, ports.observer
        assert forward is not None, "an engine has a forward, its own or a given one"
        self._vocab_size = forward.vocab_size
        self.config = config
        self.memory = KVMemory.for_config(config, observer, ports.backing, layout=forward.layout)
        self.cache = PrefixCache(self.memory, sharing=config.prefix_sharing, observer=observer)
        self.host = HostTier.for_config(config, self.memory, self.cache, ports) if self.memory.host else None
        self.scheduler = Scheduler(config, Storage(self.memory, self.cache, self.host), ports, self._other_side(ports))
        self._clock = ports.clock
        self._observer = observer
        self._requests: dict[int, Request] = {}
        self.undelivered: list[Output] = []
        self._num_requests = 0

    @property
    def has_work(self) -> bool:
        """Is a request unfinished, or an output not delivered yet?"""
        return self.scheduler.has_work or bool(self.undelivered) or self.scheduler.custody.other_side.has_work

    def submit(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        namespace: int = 0,
        priority: int = 0,
        session: int = 0,
    ) -> int:
        """Queue a request; returns its id.  A request that can never run ends at once, with the reason in its output.

        A turn of a `session` is in the namespace of the session.  The turn reuses the KV of the previous turn, up to
        where the prompts differ, unless the cache has a longer prefix.  The turn is rejected while another turn is
        unfinished, or if the session is not open.  Raises EngineError for the role prefill or decode: use
        `submit_transfer` there.
        """
        if self.config.role != "both":
            raise EngineError(f"role: {self.config.role} serves no request alone; call submit_transfer on both sides")
        sessions = self.scheduler.custody.sessions
        if session in sessions.by_id:
            namespace = sessions.by_id[session].namespace
        request = self._new_request(token_ids, sampling, Belonging(session=session), namespace, priority)
        reason = self._refuse(request)
        if reason is None and session and (reason := sessions.why_refused(session)) is not None:
            self._notice(events.TurnRefused(session, request.id))
        if reason is not None:
            self.scheduler.note_end(request, Ending(events.FinishReason.REJECTED, reason))
        else:
            if session:
                sessions.begin_turn(request)
            self.scheduler.waiting.add(request)
        return request.id

    def submit_transfer(
        self,
        transfer_id: int,
        token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        namespace: int = 0,
        priority: int = 0,
    ) -> int:
        """Queue a request whose prompt goes from a prefill engine to a decode engine; returns its id in this engine.

        Both engines get the request, with the same `transfer_id`.  The prefill engine computes the prompt and the first
        token.  The decode engine streams all tokens.  A request that can never run ends at once, and the transfer is
        closed.  Raises EngineError for the role both, and for an id that is not above all earlier ids.
        """
        if self.config.role == "both":
            raise EngineError("role: both serves each request alone; call submit, or make an engine for one side")
        side = self.scheduler.custody.other_side
        if transfer_id <= side.last_transfer_id:
            raise EngineError(
                f"transfer {transfer_id}: the last id was {side.last_transfer_id}; give each request a higher one"
            )
        if sampling.seed is None:
            sampling = replace(sampling, seed=transfer_id)  # request ids differ between engines, and after a restart
        if self.config.role == "prefill":
            sampling = replace(sampling, max_new_tokens=min(1, sampling.max_new_tokens))
        request = self._new_request(token_ids, sampling, Belonging(transfer_id=transfer_id), namespace, priority)
        if (reason := self._refuse(request)) is not None:
            self.scheduler.note_end(request, Ending(events.FinishReason.REJECTED, reason))
        else:
            side.add_request(request)
        return request.id

    def skip_transfers(self, last_id: int) -> None:
        """Skip the transfers up to `last_id`, of an engine that this one replaces: the other engine frees them."""
        side = self.scheduler.custody.other_side
        side.last_transfer_id = max(side.last_transfer_id, last_id)

    def open_session(self, *, namespace: int = 0) -> int:
        """Open a session whose KV stays from turn to turn; returns its id, for `submit` and `close_session`.

        Raises EngineError in an engine with the role prefill or decode.
        """
        if self.config.role != "both":
            raise EngineError(f"role: {self.config.role} has no sessions: its requests go on in another engine")
        return self.scheduler.custody.sessions.open(namespace, self._clock.now_ms())

    def close_session(self, session: int) -> None:
        """Close a session, at once or when its turn has ended; a session that is not open is ignored."""
        self._notice(events.CloseAsked(session))
        self.scheduler.custody.sessions.close(session)

    def abort(self, request_id: int) -> None:
        """End a request, in any state; a request that has ended already is ignored."""
        self._notice(events.AbortAsked(request_id))
        request = self._requests.get(request_id)
        if request is not None and request.finish_reason is None:
            if (session := self.scheduler.custody.sessions.by_id.get(request.session)) is not None:
                session.used_ms = self._clock.now_ms()
            self.scheduler.end(request, Ending(events.FinishReason.ABORT))

    def step(self) -> list[Output]:
        """Run one step; returns the new tokens and the ended requests.  A shortage of memory never raises."""
        undelivered, self.undelivered = self.undelivered, []
        return [*undelivered, *self._step()]

    def _step(self) -> list[Output]:
        now_ms = self._clock.now_ms()
        self._notice(events.StepBegan(now_ms))
        outputs = self.scheduler.step(now_ms)
        self._notice(events.StepEnded())
        for output in outputs:
            if output.finish_reason is not None:
                del self._requests[output.request_id]
        return outputs

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
        """Serve prompts until the last has ended; a generation per prompt, in order.

        Outputs of other requests are delivered by the next step.  Raises EngineError while the engine is paused.
        """
        if self.scheduler.is_paused:
            raise EngineError(PAUSED)
        generations = [Generation() for _ in prompts]
        awaited = dict(zip([self.submit(prompt, sampling) for prompt in prompts], generations, strict=True))
        while any(generation.finish_reason is None for generation in generations):
            for output in self._step():
                if output.request_id in awaited:
                    awaited[output.request_id].add(output)
                else:
                    self.undelivered.append(output)
        return generations

    def flush(self) -> None:
        """Drop all unlocked cached pages, and all copies on the host that no load reads and no lock needs."""
        self._notice(events.Flushed())
        self.cache.flush()
        if self.host is not None:
            self.host.flush()

    def pause(self) -> None:
        """Stop launching; active requests free their KV at once, and recompute or (decode side) restore it later."""
        self.scheduler.pause()

    def resume(self) -> None:
        self.scheduler.resume()

    def _other_side(self, ports: Ports) -> Callable[[Scheduler], OtherSide]:
        """A function that makes the scheduler's end of the link, or its stand-in in an engine without a link."""
        link, forward = ports.link, ports.forward
        if link is None or forward is None:
            return lambda _: OtherSide()
        linked_to = LinkedTo(link, ports.observer, forward.model, forward.vocab_size)
        if self.config.role == "prefill":
            return lambda scheduler: PrefillSide(self.config, self.memory, scheduler, linked_to)
        return lambda scheduler: DecodeSide(self.config, self.memory, self.cache, scheduler, linked_to)

    def _new_request(
        self, token_ids: Sequence[int], sampling: SamplingParams, belonging: Belonging, namespace: int, priority: int
    ) -> Request:
        self._num_requests += 1
        tokens, now_ms = list(token_ids), self._clock.now_ms()
        request = Request(self._num_requests, len(tokens), tokens, sampling, namespace, priority, now_ms, belonging)
        self._requests[request.id] = request
        if self._observer:
            most, stop = sampling.max_new_tokens, tuple(sorted(set(sampling.stop_token_ids)))
            self._observer.notice(
                events.Submitted(request.id, tuple(tokens), most, stop, namespace, priority, now_ms, belonging.session)
            )
        return request

    def _refuse(self, request: Request) -> str | None:
        """Why a request cannot run even on an empty engine; None when it can."""
        invalid = self._why_invalid(request)
        reason = invalid or self._why_impossible(request)
        if reason is not None:
            lens = request.prompt_len, request.sampling.max_new_tokens
            self._notice(events.Rejected(request.id, *lens, reason, is_invalid=invalid is not None))
        return reason

    def _notice(self, event: events.Event) -> None:
        if self._observer:
            self._observer.notice(event)

    def _why_invalid(self, request: Request) -> str | None:
        if self._vocab_size is not None:
            for position, token in enumerate(request.tokens):
                if not 0 <= token < self._vocab_size:
                    return f"token {token} at position {position}; the vocabulary has {self._vocab_size}"
        if request.sampling.max_new_tokens < 0:
            return f"max_new_tokens {request.sampling.max_new_tokens} is below 0"
        return None

    def _why_impossible(self, request: Request) -> str | None:
        config = self.config
        if not request.prompt_len:
            return "the prompt is empty"
        most = request.prompt_len + request.sampling.max_new_tokens + config.lookahead_tokens
        if most > config.max_context_len:
            ahead = f" with the lookahead of {config.lookahead_tokens}" if config.lookahead_tokens else ""
            return f"{most} tokens{ahead} are more than max_context_len {config.max_context_len}"
        needed = num_pages(request.prompt_len + 1 + config.lookahead_tokens, config.page_size)
        for pool in self.memory.pools:
            if not pool.holds(needed):
                return f"the prompt needs {needed} {pool.name} pages of {pool.num_pages}"
        return None


def create_engine(
    config: EngineConfig,
    *,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    ports: Ports = DEFAULT_PORTS,
) -> Engine:
    """An engine with empty pools, which runs a given forward, or the model of a checkpoint directory.

    The checkpoint sets the window and the pools of its layers where the configuration leaves them open.  The
    environment may select a checker, which receives all events of the observer; at the levels census and content freed
    pages are poisoned.  Raises ConfigError for an unknown checker, and for a configuration that does not match the
    checkpoint or the ports.  Raises CheckpointError for a checkpoint that the engine cannot run.
    """
    setting = setting_of(os.environ)
    checker: Checker[Engine] | None = None if setting is None else checker_of(setting)
    if setting is not None and setting.level in (CENSUS, CONTENT):
        checksums = config.checksum_transfers or setting.level == CONTENT
        config = replace(config, poison_freed_pages=True, checksum_transfers=checksums)
    if ports.forward is not None and checkpoint is not None:
        raise ConfigError(f"checkpoint: {checkpoint} and a forward are given; give one of them")
    if ports.forward is None:
        if checkpoint is None:
            raise ConfigError("checkpoint: not given, and no forward is given; give the directory of a checkpoint")
        config, forward = model_forward(config, Path(checkpoint), device=device, dtype=dtype)
        ports = replace(ports, forward=forward)
    if (config.role == "both") != (ports.link is None):
        given = "given" if ports.link else "not given"
        raise ConfigError(f"role: {config.role}, and a link is {given}; only prefill and decode need a link")
    if ports.proposer is not None and not config.draft_tokens:
        raise ConfigError("draft_tokens: 0, and a proposer is given; set the number of draft tokens")
    engine = Engine(config, replace(ports, observer=both(ports.observer, checker)))
    if checker is not None:
        checker.attach(engine)
    return engine
