"""A pair of engines in two child processes, linked over TCP.  The client process sends commands to both.

The client makes the secret of the link, which both processes get through the pipe that starts them.  It also holds the
listening socket, so that no other process can take its port while a process is restarted.
"""

import signal
import socket
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.reduction import ForkingPickler
from operator import index
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

from swarden.engine_under_test.clock import MonotonicClock
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.handshakes import Address, Refusal
from swarden.engine_under_test.disaggregation.silence import Silence, heartbeat_ms
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, listener_on, new_secret
from swarden.engine_under_test.engine_process import (
    MAX_STARTS,
    POLL_S,
    START_TIMEOUT_MS,
    AbortCommand,
    Command,
    EngineSpec,
    Occupancy,
    Reply,
    ReportState,
    SkipTransfers,
    Started,
    State,
    SubmitCommand,
    run_side,
)
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.request import Generation, Output, serve
from swarden.engine_under_test.sampling import SamplingParams

SIDES = ("prefill", "decode")
MAX_POLLS = 60_000  # for one report of a state
CLOCK = MonotonicClock()
SPAWN = get_context("spawn")
Context = ForkServerContext | SpawnContext


class Child:
    """One process with an engine.

    Two threads move the commands and the replies, so no call waits for a process that is stopped.  The last of the
    `replies` is None: the process has ended.
    """

    def __init__(
        self, context: Context, spec: EngineSpec, end: socket.socket | Address, secret: bytes, arrived: Event
    ) -> None:
        self._connection, child_end = context.Pipe()
        self._process = context.Process(target=run_side, args=(spec, end, secret, child_end), daemon=True)
        resource_tracker.ensure_running()  # if it were started below, it would unblock the signal
        if isinstance(context, ForkServerContext):
            forkserver.ensure_running()  # if it were started below, it would block the signal in all that it forks
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # for a spawned process; a forked one does it itself
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        child_end.close()
        self.replies: SimpleQueue[Reply | None] = SimpleQueue()
        self._commands: SimpleQueue[bytes | None] = SimpleQueue()  # pickled
        self._arrived = arrived
        self._threads = [Thread(target=work, daemon=True) for work in (self._send_commands, self._receive_replies)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "the process was never started"
        return self._process.pid

    def send(self, command: Command) -> None:
        self._commands.put(bytes(ForkingPickler.dumps(command)))

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._commands.put(None)
        for thread in self._threads:
            thread.join()
        self._connection.close()

    def _send_commands(self) -> None:
        with suppress(OSError):  # the process has ended; the thread that waits for it notices, too
            while (command := self._commands.get()) is not None:
                self._connection.send_bytes(command)

    def _receive_replies(self) -> None:
        try:
            while True:
                self.replies.put(self._connection.recv())
                self._arrived.set()
        except (EOFError, OSError):
            self.replies.put(None)
            self._arrived.set()


class SideProcess:
    """A child process with an engine, which can be restarted.  `arrived` is set when the process has sent something."""

    def __init__(
        self, context: Context, spec: EngineSpec, end: socket.socket | Address, secret: bytes, arrived: Event
    ) -> None:
        self.role = spec.config.role
        self.state: State | None = None  # of the last report
        self.failure: str | None = None  # why the process is of no use: it has died, it hangs, or it has no engine
        self.error: EngineError | None = None  # why it has none
        self.is_started = False
        self.num_failed_starts = 0  # of the last processes, in a row
        self._timeout_ms = spec.config.link_timeout_ms
        self._arguments = context, spec, end, secret, arrived
        self._start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def _start(self) -> None:
        self._child = Child(*self._arguments)
        self._silence = Silence(heartbeat_ms(self._timeout_ms), CLOCK.now_ms())
        self.is_started, self.failure, self.error = False, None, None

    def restart(self) -> None:
        """Start a new process; its engine knows no earlier request."""
        self.stop()
        self._start()

    def send(self, command: Command) -> None:
        """Send a command to the process; the command is lost if the process ends before executing it."""
        self._child.send(command)

    def receive(self) -> list[Output]:
        """The outputs that arrived, up to a failure of the process."""
        outputs: list[Output] = []
        with suppress(Empty):
            while self.failure is None:
                reply = self._child.replies.get_nowait()
                self._silence.heard()
                match reply:
                    case None:
                        self._fail("has died" if self.is_started else "died during its start")
                    case EngineError():
                        self.error = reply
                        self._fail(f"has no engine: {reply}")
                    case Started():
                        self.is_started, self.num_failed_starts = True, 0
                    case State():
                        self.state = reply
                    case list():
                        outputs += reply
                    case _:
                        pass
        silent_ms = self._silence.look(CLOCK.now_ms())
        if self.failure is None and silent_ms >= (self._timeout_ms if self.is_started else START_TIMEOUT_MS):
            self._fail(f"has sent nothing for {silent_ms} ms")
        return outputs

    def _fail(self, failure: str) -> None:
        self.failure = failure
        self.num_failed_starts += not self.is_started

    def stop(self) -> None:
        self._child.kill()


class ProcessPair:
    """A `Pair` with each engine in a child process, which is restarted when it dies or hangs.

    A process hangs if it has sent nothing to its client for `link_timeout_ms`; a pass may take longer, because a thread
    of its own sends heartbeats.  A death of the decode process ends all requests, with that reason.  A death of the
    prefill process ends none: every request without output is submitted to the new process.  Transfers are served in
    order, so only the first `max_running_requests` of them may have run in the one that died: each of these is a
    suspect, and is submitted alone, so that no other request dies with it.  A request is ended if it may have run in
    more than `max_forward_retries` prefill processes that died.  All requests end if MAX_STARTS processes in a row do
    not start.

    If the `context` has a fork server that has imported torch, no process imports it again; each has the environment of
    that server.
    """

    def __init__(self, spec: EngineSpec, context: Context = SPAWN) -> None:
        self._listener, secret, self._arrived = listener_on((LOOPBACK, 0)), new_secret(), Event()
        prefill, decode = (spec._replace(config=spec.config.for_side(role)) for role in SIDES)
        self.prefill = SideProcess(context, prefill, self._listener, secret, self._arrived)
        self.decode = SideProcess(context, decode, self.address, secret, self._arrived)
        self._config = spec.config
        self._num_transfers = 0
        self._open: dict[int, SubmitCommand] = {}  # the requests that have not ended, by transfer id, in order
        self._with_output: set[int] = set()  # their transfer ids
        self.undelivered: list[Output] = []  # received, and not returned by `step` yet
        self._held: deque[SubmitCommand] = (
            deque()
        )  # not submitted to the prefill process yet: the suspects, then the others
        self._num_deaths: dict[int, int] = {}  # of prefill processes that may have run a suspect, by transfer id
        self._suspect = 0  # the transfer id of the last suspect that was submitted to the prefill process
        try:
            self._wait_until_started()
        except EngineError:
            self.close()
            raise

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port of the link."""
        host, port = self._listener.getsockname()
        return host, port

    @property
    def has_work(self) -> bool:
        return bool(self._open or self.undelivered)

    def submit(
        self, token_ids: Sequence[int], sampling: SamplingParams, *, namespace: int = 0, priority: int = 0
    ) -> int:
        """Queue a request on both sides; returns the id of its transfer, which its outputs carry.

        Raises TypeError for an argument that is not an integer, and EngineError for `return_logits`, before either
        process has received the request.
        """
        if sampling.return_logits:
            raise EngineError("return_logits: logits do not leave the process that computes them; use create_pair")
        self._receive()
        transfer_id = self._num_transfers + 1
        submit = SubmitCommand(transfer_id, [*map(index, token_ids)], sampling, index(namespace), index(priority))
        self._num_transfers = transfer_id
        self.decode.send(submit)
        self._open[transfer_id] = submit
        self._held.append(submit)
        self._send_held()
        return transfer_id

    def abort(self, transfer_id: int) -> None:
        """Abort a request on the decode side, which closes its transfer."""
        if transfer_id in self._open:
            self.decode.send(AbortCommand(transfer_id))

    def step(self) -> list[Output]:
        """The outputs that arrived since the last call; waits at most POLL_S for one."""
        self._wait()
        outputs, self.undelivered = self.undelivered, []
        return outputs

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
        """Serve prompts to their end, one result each, in order; the next step delivers outputs of other requests."""
        return serve(self, prompts, sampling)

    def occupancy(self) -> dict[str, Mapping[str, Occupancy]]:
        """The occupancy by side and pool, of a new process if one dies; raises EngineError if one reports too late."""
        return {side.role: self._state_of(side).occupancy for side in (self.prefill, self.decode)}

    def refused(self) -> dict[str, Counter[Refusal]]:
        """By side, how many connections its link has closed, by the reason; raises as `occupancy` does."""
        return {side.role: self._state_of(side).refused for side in (self.prefill, self.decode)}

    def close(self) -> None:
        """End both processes."""
        self.prefill.stop()
        self.decode.stop()
        self._listener.close()

    def _wait_until_started(self) -> None:
        while not (self.prefill.is_started and self.decode.is_started):
            self._arrived.wait(POLL_S)
            self._arrived.clear()
            for side in (self.prefill, self.decode):
                side.receive()
                if side.failure is not None:
                    raise side.error or EngineError(f"the {side.role} process {side.failure}; see its error above")

    def _state_of(self, side: SideProcess) -> State:
        asked_pid, side.state = 0, None
        for _ in range(MAX_POLLS):
            if side.pid != asked_pid:
                asked_pid = side.pid
                side.send(ReportState())
            self._wait()
            if side.state is not None:
                return side.state
        raise EngineError(f"the {side.role} process does not report its state")

    def _wait(self) -> None:
        """Receive what arrives within POLL_S."""
        self._arrived.wait(POLL_S)
        self._arrived.clear()
        self._receive()

    def _receive(self) -> None:
        """Receive from both processes, and restart one that has failed."""
        self.prefill.receive()
        self._add_outputs(self.decode.receive())
        for side in (self.prefill, self.decode):
            if side.failure is not None:
                self._restart(side)
        self._send_held()

    def _restart(self, side: SideProcess) -> None:
        """Start a new process.  All requests end if it is on the decode side, or if several in a row do not start."""
        reason, was_started = f"the {side.role} process {side.failure}", side.is_started
        is_hopeless = side.num_failed_starts >= MAX_STARTS or side.error is not None
        side.restart()
        if side is self.decode:
            side.send(SkipTransfers(self._num_transfers))
        if side is self.prefill and is_hopeless:
            for transfer_id in self._open:
                self.decode.send(AbortCommand(transfer_id))
        if side is self.decode or is_hopeless:
            self._end(self._open, reason)
        else:
            self._hold_unserved(was_started=was_started)

    def _add_outputs(self, outputs: Sequence[Output]) -> None:
        """Keep the outputs of requests that have not ended."""
        for output in outputs:
            if output.request_id in self._open:
                self.undelivered.append(output)
                self._with_output.add(output.request_id)
                if output.finish_reason is not None:
                    del self._open[output.request_id]
                    self._with_output.remove(output.request_id)
                    self._num_deaths.pop(output.request_id, None)

    def _end(self, transfer_ids: Iterable[int], reason: str) -> None:
        self._add_outputs([Output(transfer_id, (), reason, 0, 0) for transfer_id in transfer_ids])

    def _hold_unserved(self, *, was_started: bool) -> None:
        """Hold the requests without output for a new prefill process, unless too many processes died with them."""
        held = {submit.transfer_id for submit in self._held}
        unserved = [transfer_id for transfer_id in self._open if transfer_id not in self._with_output]
        submitted = [transfer_id for transfer_id in unserved if transfer_id not in held]
        for transfer_id in submitted[: self._config.max_running_requests] if was_started else ():
            deaths = self._num_deaths[transfer_id] = self._num_deaths.get(transfer_id, 0) + 1
            if deaths > self._config.max_forward_retries:
                self.decode.send(AbortCommand(transfer_id))
                self._end([transfer_id], f"{deaths} prefill processes died with it")
        self._suspect, self._held = 0, deque(self._open[name] for name in unserved if name in self._open)

    def _send_held(self) -> None:
        """Submit the held requests to the prefill process; none after a suspect, until the suspect has an output."""
        while self._held and not self._is_unserved(self._suspect):
            submit = self._held.popleft()
            if self._is_unserved(submit.transfer_id):
                self.prefill.send(submit)
                self._suspect = submit.transfer_id if submit.transfer_id in self._num_deaths else 0

    def _is_unserved(self, transfer_id: int) -> bool:
        return transfer_id in self._open and transfer_id not in self._with_output


def create_process_pair(
    config: EngineConfig, *, checkpoint: str | Path, device: str = "cpu", dtype: str = "float32"
) -> ProcessPair:
    """Two processes with an engine each, of one configuration, that run the model of a checkpoint directory.

    Raises as `create_engine` does, and EngineError where a process does not start; its own error is on standard error.
    """
    return ProcessPair(EngineSpec(config, str(checkpoint), device, dtype))
