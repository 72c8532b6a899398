"""A server behind the port: a step is a round, which ends when all requests are answered and the server is at rest."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isnan, log
from time import monotonic, sleep
from typing import NamedTuple

from swarden.harness.core.errors import CheckFailed, RemoteError
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.port import EnginePort, Streamed, Submission
from swarden.harness.engines.server.apis import (
    FLUSH,
    OK,
    PAUSE,
    RESUME,
    Api,
    Token,
    Wanted,
    api_of,
    figures,
    read,
)
from swarden.harness.engines.server.client import ANSWER_S, Call, Reply
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.process import Connection, begin_round, recorded
from swarden.invariants.events import ALL_EVENTS, END, Answered, Compared, Probed, Rested
from swarden.invariants.limits import Limits
from swarden.invariants.view import Snapshot

MOST_AT_ONCE = 64
LOOK_S = 0.5  # between two looks at the progress of a round
HANG_S = 60.0  # without a token from any connection, and without progress in the metrics
HALF = log(0.5)
LOOKS_AT_REST = 50
REST_S = 0.1
ROUNDS_PER_PROBE = 6
REPORTED = frozenset({Answered.__name__, Compared.__name__, Probed.__name__, Rested.__name__})


class ServerDied(RemoteError):
    """The process of the server has ended, or does not answer any more."""

    def __init__(self, line: str, cause: str) -> None:
        super().__init__(f"the server has died: {line}", f"ServerDied/{cause}")


class ServerHangs(RemoteError):
    """Requests are not answered, and nothing is computed."""

    def __init__(self, waiting: int, silent_s: float) -> None:
        text = f"{waiting} requests are not answered, and no token was computed for {silent_s:.0f} s"
        super().__init__(text, "ServerHangs")


@dataclass
class RoundRequest:
    """A request of the current round; after `cut_after` pieces its client goes away (None: it stays).

    `tokens` of the answer.  The client knows the prompt as `asked`; the server has other tokens in their place.
    """

    id: int
    wanted: Wanted
    asked: Sequence[int] = ()
    cut_after: int | None = None
    tokens: Sequence[Token] = ()
    reply: Reply = field(default_factory=lambda: Reply(0))

    def parts(self, api: Api) -> "Iterator[RoundRequest]":
        """One for each sequence, with its tokens and its part of the reply."""
        for index in range(self.wanted.sequences):
            tokens, reply = read(api, self.reply, index)
            yield RoundRequest(self.id + index, self.wanted, self.asked, self.cut_after, tokens, reply)


class Judged(NamedTuple):
    """The first wrong position of an answer, or its last one: index, difference, answered and expected token."""

    place: int
    difference: float | None
    told: int
    want: int


class ServerPort(EnginePort):
    """Requests are collected until the next step, which sends them; an abort is a client that goes away early."""

    forks = True

    def __init__(self, config: ServerConfig, connection: Connection) -> None:
        self.log = EventLog()
        self.faults = FaultPlan({})
        self._config = config
        self._connection = connection
        self._round: list[RoundRequest | str] = []  # requests, and acts
        self._known: dict[tuple[int, ...], list[int]] = {}  # by what the client knows: prompts with their answers
        self._is_paused = False
        self._num_requests = self._steps = 0
        self._computed = 0  # pieces of answers, of all connections
        self.on_round: Callable[[Sequence[RoundRequest | str]], None] = lambda _: None
        connection.renew(self._api)

    @property
    def _api(self) -> Api:
        return api_of(self._config.api)

    def submit(self, submission: Submission) -> int:
        features, first = self._config.features, self._num_requests + 1
        self._num_requests += submission.sequences
        seed = 0 if submission.sequences > 1 and submission.seed is None else submission.seed  # n answers are sampled
        wanted = Wanted(
            self._prompt(tuple(submission.tokens)),
            max(1, submission.max_new_tokens),
            tuple(submission.stop) if "stop" in features else (),
            seed if "seed" in features else None,
            submission.priority if "priority" in features else 0,
            submission.namespace if "salt" in features else 0,
            sequences=submission.sequences,
        )
        self._round.append(RoundRequest(first, wanted, submission.tokens))
        return first

    def abort(self, request_id: int) -> None:
        for asked in self._requests():
            if asked.id <= request_id < asked.id + asked.wanted.sequences:
                asked.cut_after = request_id % 4

    def flush(self) -> bool:
        return self._does(FLUSH)

    def pause(self) -> bool:
        """The next round is sent while the server is paused."""
        self._is_paused = self._has(PAUSE) and self._has(RESUME)
        return self._is_paused

    @property
    def has_work(self) -> bool:
        return bool(self._round)

    def step(self) -> Sequence[Streamed]:
        asked = list(self._requests())
        if not self._round:
            return ()
        self._steps += 1
        begin_round(self._connection)
        self.on_round(self._round)
        self._send(asked)
        self._round = []
        small = asked[0].wanted if asked else None
        asked = [part for one in asked for part in one.parts(self._api)]
        for one in asked:
            detail = "" if one.reply.status == OK else one.reply.error
            num_tokens = len(one.tokens) if self._api.has_ids else 0  # characters are no tokens
            self.log.notice(Answered(one.id, one.reply.status, num_tokens, one.wanted.max_new_tokens, detail))
            answer = [token.id for token in one.tokens]
            self._known[*one.asked, *answer] = [*one.wanted.prompt, *answer]
        if small is not None:
            self._rest(small)
        for one in asked:
            self._judge(one)
        self._check_alive()  # also after the calls of the judge
        if self._config.probe_len and not self._steps % ROUNDS_PER_PROBE:
            start, probed = monotonic(), self._connection.probe(self._api, self._config, self._config.probe_len)
            self._check_answered(Reply(probed.status), start)
            self.log.notice(probed)
        return [
            Streamed(one.id, [token.id for token in one.tokens], "abort" if one.reply.is_cut else "length", 0, 0)
            for one in asked
        ]

    def capture(self) -> Snapshot:
        config = self._config
        limits = Limits(config.block_size, MOST_AT_ONCE, config.max_context_len)
        return Snapshot(self._steps, limits, (), (), unreported=ALL_EVENTS - REPORTED)

    def clear(self) -> None:
        """Do nothing: the next run flushes the server, or starts a new one."""

    def _requests(self) -> Iterator[RoundRequest]:
        return (one for one in self._round if isinstance(one, RoundRequest))

    def _prompt(self, tokens: tuple[int, ...]) -> list[int]:
        """The prompt as the server gets it: an earlier prompt with its answer as it was, and tokens that it knows.

        A token out of range is taken modulo the range, so prompts that differ only there may be equal.
        """
        low, high = self._config.first_token, self._config.last_token
        known = max((one for one in self._known if tokens[: len(one)] == one), key=len, default=())
        new = tokens[len(known) :]
        return self._known.get(known, []) + [
            token if low <= token <= high else low + token % (high - low + 1) for token in new
        ]

    def _does(self, act: str) -> bool:
        if self._has(act):
            self._round.append(act)
        return self._has(act)

    def _has(self, act: str) -> bool:
        """Whether the server has the page of this act, as far as a call has shown it."""
        return act in self._api.acts and act not in self._connection.missing

    # --- a round

    def _send(self, asked: Sequence[RoundRequest]) -> None:
        """Make all calls of the round; raises ServerHangs if nothing is computed for long."""
        is_paused = (self._config.paused or self._is_paused) and self._config.concurrent and len(asked) > 1
        self._is_paused = False
        workers = MOST_AT_ONCE if self._config.concurrent else 1
        calls = [Call(self._connection.address, self._count) for _ in self._round]
        jobs: list[Future[None]] = []
        with ThreadPoolExecutor(workers) as threads:
            try:
                if is_paused:
                    self._act(PAUSE)
                jobs += [threads.submit(self._made, call, one) for call, one in zip(calls, self._round, strict=True)]
                if is_paused:
                    wait(jobs, timeout=REST_S + len(jobs) / 100)  # all have arrived
            finally:
                if is_paused:
                    self._act(RESUME)
            try:
                self._await(jobs)
            finally:
                for call, job in zip(calls, jobs, strict=True):
                    if not job.done():
                        with suppress(OSError):
                            call.cut()
                        job.cancel()

    def _made(self, call: Call, one: RoundRequest | str) -> None:
        if isinstance(one, str):
            self._act(one)
            return
        body = self._api.body(one.wanted, self._config.model)
        reply = call.made("POST", self._api.path, body, most_chunks=one.cut_after, limit_s=inf)
        one.reply = reply

    def _await(self, jobs: Sequence[Future[None]]) -> None:
        last, shown, computed = monotonic(), dict[str, float](), self._computed
        while wait(jobs, timeout=LOOK_S).not_done and self._connection.is_running:
            now = self._progress()
            if computed != self._computed or now.items() - shown.items():
                last, computed, shown = monotonic(), self._computed, shown | now
            elif monotonic() - last >= (HANG_S if now else ANSWER_S):  # a prompt may be computed for long
                break
        if left := sum(not job.done() for job in jobs):
            self._check_alive()
            raise ServerHangs(left, monotonic() - last)
        for job in jobs:
            job.result()

    def _count(self) -> None:
        self._computed += 1

    def _progress(self) -> dict[str, float]:
        """The metrics that grow with the tokens that are computed; none if the server does not show them."""
        names = self._api.metrics.progress
        return {name: figure for name, figure in figures(self._connection.address).items() if name in names}

    def _act(self, act: str) -> None:
        reply, path = self._connection.act(self._api, act), self._api.acts[act]
        self.log.notice(Answered(0, reply.status, 0, 0, f"{path}: {reply.error}" if reply.error else ""))

    def _check_answered(self, reply: Reply, start: float) -> None:
        """Raise ServerHangs if a call outside of a round has had its whole time."""
        if not reply.status and (silent_s := monotonic() - start) >= ANSWER_S:
            self._check_alive()
            raise ServerHangs(1, silent_s)

    def _check_alive(self) -> None:
        if (log := recorded(self._connection)) is not None:
            text = f"the strict check inside of the server has failed: see {self._connection.log}, and the op-log {log}"
            raise CheckFailed(text, f"CheckFailed/{log.stem.rpartition('-')[0]}", log)
        if not self._connection.is_healthy:
            raise ServerDied(*self._connection.last_words())

    def _rest(self, small: Wanted) -> None:
        """Look at the metrics until the server is empty; some count only at the next request, so that one is sent."""
        names = [getattr(self._api.metrics, name) for name in ("running", "waiting", "usage")]
        if not any(names):
            return
        shown: list[float | None] = []
        for _ in range(LOOKS_AT_REST):
            found = figures(self._connection.address)
            shown = [found.get(name) if name else None for name in names]
            if not any(shown):
                break
            sleep(REST_S)
            nudge = small._replace(prompt=small.prompt[:1], max_new_tokens=1, sequences=1)
            start = monotonic()
            [answer] = self._connection.answers(self._api, self._config, [nudge])
            self._check_answered(answer.reply, start)
            if answer.reply.status != OK:
                self.log.notice(Answered(0, answer.reply.status, 0, 0, answer.reply.error))
                break
        if any(figure is not None for figure in shown):
            self.log.notice(Rested(*shown))

    # --- the answers

    def _judge(self, one: RoundRequest) -> None:
        """Compare an answer with that of a server without a cache."""
        if not one.tokens or one.reply.status != OK:
            return
        answer = [token.id for token in one.tokens]
        start = monotonic()
        cold = self._connection.judge(self._api, self._config, one.wanted, answer)
        if isinstance(cold, Reply):
            self._check_answered(cold, start)
            self.log.notice(Answered(one.id, cold.status, 0, 0, cold.error, is_judge=True))
            return
        found = compared(
            one.tokens,
            cold,
            self._config.tolerance,
            is_greedy=one.wanted.seed is None,
            is_whole=not one.reply.is_cut,
        )
        if found is not None:
            start = len(one.wanted.prompt)
            end = start + found.place
            place, tolerance = (start, end, end), self._config.tolerance
            self.log.notice(Compared(self._steps, one.id, *place, found.difference, tolerance, found.told, found.want))


def compared(
    told: Sequence[Token], cold: Sequence[Token], tolerance: float, *, is_greedy: bool, is_whole: bool = True
) -> Judged | None:
    """The first wrong token of an answer, or the last that could be judged; None if none could.

    A token has the log-probability that it has in the cold answer, and is the likeliest one of that if nothing was
    sampled.  Where both answers were generated, and two tokens are equally likely, the rest is not judged.  Then one
    may also end before the other, unless it was cut: that is wrong if no end can be as likely as the token there.
    """
    last = None
    for place, (mine, other) in enumerate(zip(told, cold, strict=False)):
        difference = abs(mine.logprob - other.logprob)
        is_near, shown = isnan(difference) or difference <= tolerance, None if isnan(difference) else difference
        if mine.id != other.id and (not is_greedy or (is_near and shown is not None)):
            return last  # another draw, or a tie
        if mine.id != other.id:
            return Judged(place, shown, mine.id, other.id)
        is_likeliest = other.best is None or other.best_logprob - other.logprob <= tolerance
        want = mine.id if other.best is None or is_likeliest or not is_greedy else other.best
        last = Judged(place, shown, mine.id, want)
        if not is_near or want != mine.id:
            return last
    place = min(len(told), len(cold))
    more = told[place:] or (cold[place:] if is_whole else ())
    if is_greedy and more and (isnan(more[0].logprob) or more[0].logprob > HALF + tolerance):
        here, there = [one[place].id if len(one) > place else END for one in (told, cold)]
        return Judged(place, None, here, there)
    return last
