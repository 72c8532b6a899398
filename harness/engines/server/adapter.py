"""A server behind the port: a step is a round, which ends when all requests are answered and the server is at rest."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

from swarden.harness.core.errors import CheckFailed
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.port import EnginePort, Streamed, Submission
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.engines.server.answers import Token
from swarden.harness.engines.server.apis import OK, Api, Wanted, api_of, read
from swarden.harness.engines.server.client import QUICK_S, Call, Reply
from swarden.harness.engines.server.comparison import JudgedToken, compared
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.failures import InvalidRequestFails, ServerDied, ServerHangs
from swarden.harness.engines.server.process import SERVER_ERROR, Connection, begin_round, figures, recorded
from swarden.harness.kit.dialects import FLUSH, PAUSE, RESUME, SLEEP, WAKE
from swarden.invariants.events import ALL_EVENTS, END, Answered, Compared, Probed, Rested
from swarden.invariants.limits import Limits
from swarden.invariants.view import Snapshot

MOST_AT_ONCE = 64
LOOK_S = 0.5  # between two looks at the progress of a round
HANG_S = 60.0  # without a token from any connection, and without progress in the metrics
LONE_HANG_S = 180.0  # the same for one call alone: the judge computes the log-probabilities of a whole prompt
SILENT_S = 600.0  # the same while the server shows no such metrics
LOOKS_AT_REST, LOOKS_ALIKE = 50, 15  # while the metrics change; while they do not
REST_S, REST_LIMIT_S = 0.1, 300.0  # between two looks; for all of them with their requests
ROUNDS_PER_PROBE = 6
ResultT = TypeVar("ResultT")
REPORTED = frozenset({Answered.__name__, Compared.__name__, Probed.__name__, Rested.__name__})


@dataclass
class RoundRequest:
    """A request of the current round, with its answer; after `cut_after` pieces its client goes away (None: it stays).

    The client knows the prompt as `asked`; the server has other tokens in their place.
    """

    id: int
    wanted: Wanted
    asked: Sequence[int] = ()
    cut_after: int | None = None
    tokens: Sequence[Token] = ()
    text: str = ""
    reply: Reply = field(default_factory=lambda: Reply(0))

    @property
    def passed_stop(self) -> str:
        """The first of the stop texts behind which the answer goes on; "" if it does not."""
        return next((stop for stop in self.wanted.stop_texts if self.text.partition(stop)[2]), "")

    def parts(self, api: Api) -> "Iterator[RoundRequest]":
        """One for each sequence, with its tokens and its part of the reply."""
        for index in range(self.wanted.sequences):
            answer = read(api, self.reply, index)
            yield RoundRequest(self.id + index, self.wanted, self.asked, self.cut_after, *answer)


class Round(NamedTuple):
    """The calls of a step: requests and acts, sent in any order, after acts `at_rest`; perhaps to a paused server."""

    items: Sequence[RoundRequest | str]
    at_rest: Sequence[str] = ()
    is_paused: bool = False

    @property
    def requests(self) -> list[RoundRequest]:
        return [item for item in self.items if isinstance(item, RoundRequest)]


class ServerPort(EnginePort):
    """Requests are collected until the next step, which sends them; an abort is a client that goes away early."""

    forks = True

    def __init__(self, config: ServerConfig, connection: Connection) -> None:
        self.log = EventLog()
        self.faults = FaultPlan({})
        self._config = config
        self._connection = connection
        self._round: list[RoundRequest | str] = []  # requests, and acts
        self._answered: dict[tuple[int, ...], list[int]] = {}  # prompts with their answers, as the client knows them
        self._before_round = ""  # an act that comes before the next round: PAUSE, which lasts for it, or SLEEP
        self._num_requests = self._steps = 0
        self._computed = 0  # pieces of answers, of all connections
        self.on_round: Callable[[Round], None] = lambda _: None
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
        if stop_texts := self._stop_texts(first, submission.stop):
            wanted = wanted._replace(stop=(), stop_texts=stop_texts)
        self._round.append(RoundRequest(first, wanted, submission.tokens))
        return first

    def abort(self, request_id: int) -> None:
        for asked in Round(self._round).requests if "abort" in self._config.features else ():
            if asked.id <= request_id < asked.id + asked.wanted.sequences:
                asked.cut_after = request_id % 4

    def flush(self) -> bool:
        if has_flush := self._has(FLUSH):
            self._round.append(FLUSH)
        return has_flush

    def pause(self) -> bool:
        """The next round is sent while the server is paused, or when it has slept."""
        if self._config.sleeps and "sleep" in self._config.features:
            self._before_round = SLEEP
        else:
            self._before_round = PAUSE if self._has(PAUSE) and self._has(RESUME) else ""
        return bool(self._before_round)

    @property
    def has_work(self) -> bool:
        return bool(self._round)

    def step(self) -> Sequence[Streamed]:
        try:
            return self._step()
        except MemoryError as error:  # of this process
            raise TargetFault("the answers of a round need more memory than there is", "target/memory") from error

    def _step(self) -> Sequence[Streamed]:
        if not self._round:
            return ()
        begun = self._begun()
        self.on_round(begun)
        if begun.at_rest:
            self._sleep()
        self._send(begun)
        self._round = []
        answered = [part for request in begun.requests for part in request.parts(self._api)]
        for part in answered:
            detail = "" if part.reply.status == OK else part.reply.error
            num_tokens = len(part.tokens) if self._api.has_ids else 0  # characters are no tokens
            most, passed = part.wanted.max_new_tokens, part.passed_stop
            self._notice(Answered(part.id, part.reply.status, num_tokens, most, detail, passed_stop=passed))
            tokens = [token.id for token in part.tokens]
            self._answered[*part.asked, *tokens] = [*part.wanted.prompt, *tokens]
        if begun.requests:
            self._rest(begun.requests[0].wanted)
        for part in answered:
            self._judge(part)
        self._check_alive()  # also after the calls of the judge
        if not self._steps % ROUNDS_PER_PROBE:
            self._probe()
        return [
            Streamed(part.id, [token.id for token in part.tokens], "abort" if part.reply.is_cut else "length", 0, 0)
            for part in answered
        ]

    def capture(self) -> Snapshot:
        limits = Limits(self._config.block_size, MOST_AT_ONCE, self._config.max_context_len)
        return Snapshot(self._steps, limits, (), (), unreported=ALL_EVENTS - REPORTED)

    def clear(self) -> None:
        """Look at the capacity at the end of a run; the next run flushes the server, or starts a new one."""
        if self._steps:
            self._probe()

    def _probe(self) -> None:
        if self._config.probe_len:
            probed = self._watched(partial(self._connection.probe, self._api, self._config, self._config.probe_len))
            self._connection.has_failed |= probed.status != OK or bool(probed.preemptions)
            self.log.notice(probed)

    def _notice(self, answered: Answered) -> None:
        self._connection.has_failed |= answered.status in (0, SERVER_ERROR)
        if self._connection.invalid and answered.status in (0, SERVER_ERROR):
            self._check_alive()
            raise InvalidRequestFails(self._connection.invalid, answered.detail, f"status_{answered.status}")
        self.log.notice(answered)

    def _prompt(self, tokens: tuple[int, ...]) -> list[int]:
        """The prompt as the server gets it: an earlier prompt with its answer as it was, and tokens that it knows.

        A token out of range is taken modulo the range, so prompts that differ only there may be equal.
        """
        low, high = self._config.first_token, self._config.last_token
        begun = max((begin for begin in self._answered if tokens[: len(begin)] == begin), key=len, default=())
        new = [token if low <= token <= high else low + token % (high - low + 1) for token in tokens[len(begun) :]]
        wrong = [token for token in new if token >= self._config.vocabulary > 0]
        if wrong:
            self._connection.invalid = f"token {wrong[0]}, and the server has tokens to {self._config.vocabulary - 1}"
        return self._answered.get(begun, []) + new

    def _stop_texts(self, request_id: int, stop: Sequence[int]) -> tuple[str, ...]:
        """Up to two texts that end the answer in place of these tokens; none if the run has none."""
        texts = self._config.texts
        if not (texts and self._config.stops_by_text and "stop_text" in self._config.features):
            return ()
        drawn = [texts[(request_id + token // 4) % len(texts)] for token in stop[:2]]
        return tuple(dict.fromkeys(drawn))  # each once

    def _sleep(self) -> None:
        """The server at rest sleeps, and wakes up; its KV is lost."""
        try:
            self._act(SLEEP)
        finally:
            self._act(WAKE)

    def _has(self, act: str) -> bool:
        """Whether the server has the page of this act, as far as a call has shown it."""
        return act in self._api.dialect.acts and act not in self._connection.missing

    # --- a round

    def _begun(self) -> Round:
        self._steps += 1
        begin_round(self._connection)
        act, self._before_round = self._before_round, ""
        has_several = self._config.concurrent and len(Round(self._round).requests) > 1
        is_paused = has_several and (self._config.paused or act == PAUSE)
        return Round(self._round, (SLEEP, WAKE) if act == SLEEP else (), is_paused)

    def _send(self, begun: Round) -> None:
        """Make all calls of the round; raises ServerHangs if nothing is computed for long."""
        is_paused, items = begun.is_paused, begun.items
        workers = MOST_AT_ONCE if self._config.concurrent else 1
        jobs: list[Future[None]] = []
        with ThreadPoolExecutor(workers) as threads:
            try:
                if is_paused:
                    self._act(PAUSE)
                jobs += [threads.submit(self._made, item) for item in items]
                if is_paused:
                    wait(jobs, timeout=REST_S + len(jobs) / 100)  # all have arrived
            finally:
                if is_paused:
                    self._act(RESUME)
            try:
                self._await(jobs, HANG_S)
            finally:
                for job in jobs:
                    job.cancel()
                self._connection.address.cut()

    def _made(self, item: RoundRequest | str) -> None:
        if isinstance(item, str):
            self._act(item)
            return
        body = self._api.body(item.wanted, self._config.model)
        call = Call(self._connection.address, self._count)
        item.reply = call.made("POST", self._api.dialect.path, body, most_chunks=item.cut_after, limit_s=inf)

    def _watched(self, call: Callable[[], ResultT]) -> ResultT:
        """The result of a call that is no part of a round; raises ServerHangs as in a round."""
        with ThreadPoolExecutor(1) as threads:
            job = threads.submit(call)
            try:
                self._await([job], LONE_HANG_S)
            finally:
                self._connection.address.cut()
        return job.result()

    def _await(self, jobs: Sequence[Future[Any]], hang_s: float) -> None:
        last, shown, computed = monotonic(), dict[str, float](), self._computed
        while wait(jobs, timeout=LOOK_S).not_done and self._connection.is_running:
            now = self._progress()
            if computed != self._computed or now.items() - shown.items():
                last, computed, shown = monotonic(), self._computed, shown | now
                self._connection.looks_s = QUICK_S
            elif monotonic() - last >= (hang_s if now else SILENT_S):
                break
        if pending := sum(not job.done() for job in jobs):
            self._check_alive()
            raise ServerHangs(pending, monotonic() - last)
        for job in jobs:
            job.result()

    def _count(self) -> None:
        self._computed += 1

    def _progress(self) -> dict[str, float]:
        """The metrics that grow with the tokens that are computed; none if the server does not show them."""
        names = self._api.dialect.metrics.progress
        return {name: figure for name, figure in figures(self._connection).items() if name in names}

    def _act(self, act: str) -> None:
        reply, path = self._connection.act(self._api, act), self._api.dialect.acts[act]
        self._notice(Answered(0, reply.status, 0, 0, f"{path}: {reply.error}" if reply.error else ""))

    def _check_alive(self) -> None:
        if (log := recorded(self._connection)) is not None:
            text = f"the strict check inside of the server has failed: see {self._connection.log}, and the op-log {log}"
            raise CheckFailed(text, f"CheckFailed/{log.stem.rpartition('-')[0]}", log)
        if not self._connection.is_healthy:
            died, invalid = ServerDied(*self._connection.last_words()), self._connection.invalid
            raise InvalidRequestFails(invalid, str(died), died.fingerprint) if invalid else died

    def _rest(self, small: Wanted) -> None:
        """Look at the metrics until the server is empty; some count only at the next request, so that one is sent."""
        names = self._api.dialect.metrics.at_rest
        if not any(names):
            return
        shown, num_alike, until = list[float | None](), 0, monotonic() + REST_LIMIT_S
        for _ in range(LOOKS_AT_REST):
            if monotonic() > until:
                return  # what was seen last says nothing
            before, in_use = shown, figures(self._connection)
            shown = [in_use.get(name) for name in names]
            num_alike = num_alike + 1 if shown == before else 0
            if not any(shown) or num_alike == LOOKS_ALIKE:
                break
            sleep(REST_S)
            nudge = small._replace(prompt=small.prompt[:1], max_new_tokens=1, sequences=1)
            [reply] = self._watched(partial(self._connection.replies, self._api, self._config, [nudge]))
            if reply.status != OK:
                self._notice(Answered(0, reply.status, 0, 0, reply.error))
                break
        if any(figure is not None for figure in shown):
            self.log.notice(Rested(*shown))

    # --- the answers

    def _is_tie(self, wanted: Wanted, answer: Sequence[int], judged: JudgedToken) -> bool | Reply:
        """Without log-probabilities: whether the answered token also follows the tokens before it, in a new prompt.

        The reference is asked, else this server and then a new one, whose cache cannot be wrong: without --restart the
        answer is not judged from there on.  A reply that is no answer is returned.
        """
        if self._api.has_ids or judged.answered in (judged.expected, END):
            return False
        prompt = [*wanted.prompt, *answer[: judged.place]]
        again = wanted._replace(prompt=prompt, max_new_tokens=1, stop_texts=(), sequences=1)
        server = self._connection.server
        for is_new in (False, True)[: 2 if server.restart and not server.reference else 1]:
            if is_new:
                self._check_alive()  # of the process that ends here
                self._connection.start()
            token = self._judgement(again, [judged.answered])
            if isinstance(token, Reply):
                return token
            if [scored.id for scored in token] != [judged.answered]:
                return False
        return True

    def _judgement(self, wanted: Wanted, answer: Sequence[int]) -> list[Token] | Reply:
        """What the judge says; a reference has no metrics here, and the time of one call."""
        judge = partial(self._connection.judge, self._api, self._config, wanted, answer)
        return judge() if self._connection.server.reference else self._watched(judge)

    def _judge(self, request: RoundRequest) -> None:
        """Compare an answer with that of a server without a cache."""
        if not request.tokens or request.reply.status != OK or self._connection.invalid:
            return
        answer = [token.id for token in request.tokens]
        cold = self._judgement(request.wanted, answer)
        if isinstance(cold, Reply):
            self._notice(Answered(request.id, cold.status, 0, 0, cold.error, is_judge=True))
            return
        is_greedy, is_whole = request.wanted.seed is None, not request.reply.is_cut
        judged = compared(request.tokens, cold, self._config.tolerance, is_greedy=is_greedy, is_whole=is_whole)
        if judged is None:
            return
        is_tie = self._is_tie(request.wanted, answer, judged)
        if isinstance(is_tie, Reply):
            self._notice(Answered(request.id, is_tie.status, 0, 0, is_tie.error, is_judge=True))
        elif not is_tie:
            end = (begin := len(request.wanted.prompt)) + judged.place
            numbers = (judged.difference, self._config.tolerance, judged.answered, judged.expected)
            self.log.notice(Compared(self._steps, request.id, begin, end, end, *numbers))
