"""An engine in a thread of its own, for clients in other threads."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from traceback import print_exception
from typing import Any, NamedTuple

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.request import Output
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.front.faults import RandomFaults
from swarden.invariants.events import FinishReason

WITHOUT_TOKEN = (FinishReason.OUT_OF_MEMORY, FinishReason.FORWARD_FAILED)
FIRST_CHARACTER = 0x4E00  # of token 0
IDLE_S = 0.05  # seconds between two checks of the client while a request has no output


class Asked(NamedTuple):
    """A request of a client; KV is shared with others of the same `namespace`.

    Behind one of the `stop_texts` the front aborts the request, because the engine knows no texts.
    """

    tokens: Sequence[int]
    sampling: SamplingParams
    namespace: int = 0
    priority: int = 0
    stop_texts: Sequence[str] = ()


def text_of(tokens: Iterable[int]) -> str:
    """Each token is a character."""
    return "".join(chr(FIRST_CHARACTER + token) for token in tokens)


class Scored(NamedTuple):
    """A token of a prompt or an answer: its position, its log-probability, and the likeliest token with its own."""

    position: int
    token: int
    logprob: float
    best: int
    best_logprob: float


@dataclass
class Served:
    """The output of a request; `ended` is its finish reason.  A piece is None when the engine has died.

    A request that ends without a token, for want of memory or of a pass, has the status `lacking_status`.
    """

    asked: Asked
    lacking_status: int = 500
    id: int = 0
    pieces: "SimpleQueue[Output | None]" = field(default_factory=SimpleQueue)
    known: list[int] = field(default_factory=list)
    scores: dict[int, Scored] = field(default_factory=dict)
    ended: str = ""
    num_retractions: int = 0

    def __post_init__(self) -> None:
        self.known = [*self.asked.tokens]

    def add(self, output: Output) -> list[Scored]:
        """Take an output; returns its new tokens."""
        first = len(self.known)
        self.known += output.token_ids
        self.ended = output.finish_reason or ""
        for span in output.logits:
            logprobs = span.values.log_softmax(-1)
            best = logprobs.max(-1)
            for index in range(len(logprobs)):
                position = span.start + index + 1
                if position < len(self.known):
                    token = self.known[position]
                    values = float(logprobs[index, token]), int(best.indices[index]), float(best.values[index])
                    self.scores[position] = Scored(position, token, *values)
        return self.tokens_from(first)

    @property
    def error_status(self) -> int:
        """The status of HTTP if the request has ended without a token that it wants; 0 if not."""
        if self.ended.startswith(FinishReason.REJECTED):
            return 400
        lacks = len(self.known) == len(self.asked.tokens) and self.asked.sampling.max_new_tokens
        return self.lacking_status if lacks and self.ended.startswith(WITHOUT_TOKEN) else 0

    @property
    def has_stop_text(self) -> bool:
        """Whether an answer that the engine has not ended has one of the texts."""
        answer = text_of(self.known[len(self.asked.tokens) :])
        return not self.ended and any(text in answer for text in self.asked.stop_texts)

    def tokens_from(self, first: int) -> list[Scored]:
        """The known tokens from a position on; a token whose logits were not requested has no log-probability."""
        places, unscored = range(first, len(self.known)), (math.nan, -1, math.nan)
        return [self.scores.get(place) or Scored(place, self.known[place], *unscored) for place in places]


class EngineDied(Exception):
    """The engine has raised an error, and serves no further request."""


class EngineThread:
    """Makes steps while there is work.  Every call of the engine is made in its thread, in order.

    The `faults` at its ports are armed by its first flush, so that a client can learn the server before.  With faults
    a request without a token is overload (503), else an error of the server.
    """

    def __init__(self, engine: Engine, faults: RandomFaults | None = None) -> None:
        self.engine = engine
        self._faults = faults or RandomFaults(())
        self.error: Exception | None = None
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._served: dict[int, Served] = {}
        self.is_paused = False
        self.num_retractions = 0
        self.num_tokens = 0  # of prompts and outputs
        Thread(target=self._run, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """The result of a function in the thread of the engine."""
        result: SimpleQueue[Any] = SimpleQueue()
        self._calls.put(lambda: result.put(function()))
        while self.error is None:
            try:
                return result.get(timeout=IDLE_S)
            except Empty:
                continue
        raise EngineDied(repr(self.error)) from self.error

    @contextmanager
    def serving(self, all_asked: Iterable[Asked]) -> Iterator[Sequence[Served]]:
        """The requests of a client, served while the body runs; those that have not ended by then are aborted."""
        served: list[Served] = []
        try:
            for asked in all_asked:
                served.append(self.submit(asked))
            yield served
        finally:
            for request in served:
                if not request.ended:
                    self.call(partial(self.engine.abort, request.id))

    def submit(self, asked: Asked) -> Served:
        served = Served(asked, 503 if self._faults.names else 500)

        def submit() -> None:
            served.id = self.engine.submit(
                asked.tokens, asked.sampling, namespace=asked.namespace, priority=asked.priority
            )
            self._served[served.id] = served
            self.num_tokens += len(asked.tokens)

        self.call(submit)
        return served

    def pieces(self, served: Served, is_gone: Callable[[], bool]) -> Iterator[list[Scored]]:
        """The tokens of a request as they come; raises ConnectionAbortedError if its client is gone."""
        while not served.ended:
            if is_gone():
                raise ConnectionAbortedError("the client has closed its connection")
            try:
                piece = served.pieces.get(timeout=IDLE_S)
            except Empty:
                continue
            if piece is None:
                raise EngineDied(repr(self.error)) from self.error
            new = served.add(piece)
            if served.has_stop_text:
                served.ended = FinishReason.STOP
                self.call(lambda: self.engine.abort(served.id))
            yield new

    def flush(self) -> None:
        """Drop the cached KV, and arm the faults."""
        self.call(self.engine.flush)
        self._faults.is_armed = True

    def sleep(self) -> None:
        """Pause, and lose all KV on the device."""
        self.call(self._sleep)

    def _sleep(self) -> None:
        self._pause(is_paused=True)
        self.engine.flush()
        store = self.engine.memory.store
        for pool in store.pools:
            store.kv(pool).zero_()

    def pause(self) -> None:
        self.call(lambda: self._pause(is_paused=True))

    def resume(self) -> None:
        self.call(lambda: self._pause(is_paused=False))

    def _pause(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused  # here, before the thread waits for its next call
        (self.engine.pause if is_paused else self.engine.resume)()

    @property
    def num_live(self) -> int:
        return len(self._served)

    def _run(self) -> None:
        try:
            while True:
                has_work = self.engine.has_work and not self.is_paused
                try:
                    self._calls.get(block=not has_work)()
                except Empty:
                    self._step()
        except Exception as error:
            print_exception(error)  # the log of the server, in which its client looks for the cause
            self.error = error
            for served in self._served.values():
                served.pieces.put(None)

    def _step(self) -> None:
        for output in self.engine.step():
            served = self._served[output.request_id]
            served.pieces.put(output)
            self.num_tokens += len(output.token_ids)
            self.num_retractions += output.num_retractions - served.num_retractions
            served.num_retractions = output.num_retractions
            if output.finish_reason is not None:
                del self._served[output.request_id]
