"""A pair of engines in two child processes, linked over TCP.  The client process sends commands to both."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from operator import index
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import torch

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.tcp import TcpLink
from engine_under_test.engine import Engine, create_engine
from engine_under_test.errors import EngineError
from engine_under_test.ports import Ports
from engine_under_test.request import Generation, Output, serve
from engine_under_test.sampling import SamplingParams

SIDES = ("prefill", "decode")
POLL_S = 0.001  # between two polls of an idle process
START_TIMEOUT_S = 60.0
MAX_POLLS = 60_000  # for one occupancy report


class Submit(NamedTuple):
    """Command: queue a request."""

    transfer_id: int
    token_ids: Sequence[int]
    sampling: SamplingParams
    namespace: int
    priority: int


class Abort(NamedTuple):
    """Command: abort the request of a transfer."""

    transfer_id: int


class ReportOccupancy(NamedTuple):
    """Command: report the occupancy of the pools."""


class Occupancy(NamedTuple):
    """The units of one pool, or the rows: how many there are, are free, and are cached and not locked."""

    capacity: int
    free: int
    evictable: int

    @property
    def is_idle(self) -> bool:
        """Is every unit free or evictable?"""
        return self.free + self.evictable == self.capacity


class EngineSpec(NamedTuple):
    """The arguments of an engine in a child process, all of which can be pickled; `ports` makes its ports there."""

    config: EngineConfig
    checkpoint: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    ports: Callable[[], Ports] = Ports


Command = Submit | Abort | ReportOccupancy
Reply = list[Output] | dict[str, Occupancy]


def run_side(spec: EngineSpec, port: int, client: Connection) -> None:
    """The child process: serve commands until the client process ends.

    The first message to the client is the port of the link, or the error for which there is no engine.
    """
    Thread(target=_exit_with_client, daemon=True).start()
    torch.set_num_threads(1)
    link = TcpLink(port, listens=spec.config.role == SIDES[0])
    ports = replace(spec.ports(), link=link)
    transfer_ids: dict[int, int] = {}
    replies: SimpleQueue[Reply] = SimpleQueue()
    try:
        try:
            engine = create_engine(
                spec.config, checkpoint=spec.checkpoint, device=spec.device, dtype=spec.dtype, ports=ports
            )
        except EngineError as error:
            client.send(error)
            return
        client.send(link.port)
        Thread(target=_send_replies, args=(replies, client), daemon=True).start()
        while True:
            while client.poll(0.0 if engine.scheduler.has_work else POLL_S):
                command: Command = client.recv()
                if isinstance(command, ReportOccupancy):
                    replies.put(occupancy_of(engine))
                else:
                    _execute(command, engine, transfer_ids)
            stepped = engine.step()
            if outputs := [one._replace(request_id=transfer_ids[one.request_id], logits=()) for one in stepped]:
                replies.put(outputs)
            for one in stepped:
                if one.finish_reason is not None:
                    del transfer_ids[one.request_id]
    except (EOFError, ConnectionError):
        return
    finally:
        link.close()


def _exit_with_client() -> None:
    """A thread that exits when the client process has died, even during a forward pass."""
    client = parent_process()
    assert client is not None, "a side is started by its client"
    wait([client.sentinel])
    os._exit(0)


def occupancy_of(engine: Engine) -> dict[str, Occupancy]:
    """By pool, and for "rows"."""
    rows = engine.memory.table.rows
    pools = {
        ledger.name: Occupancy(ledger.capacity, ledger.num_free, engine.cache.evictable(ledger.name))
        for ledger in engine.memory.ledgers.ledgers
    }
    return {**pools, "rows": Occupancy(rows.capacity, rows.num_free, 0)}


def _send_replies(replies: SimpleQueue[Reply], client: Connection) -> None:
    """A thread of its own, so that a client that sends and does not read cannot block the engine."""
    try:
        while True:
            client.send(replies.get())
    except OSError:
        return  # the client has died, and the main thread finds that too


def _execute(command: Submit | Abort, engine: Engine, transfer_ids: dict[int, int]) -> None:
    if isinstance(command, Submit):
        request = engine.submit_transfer(
            command.transfer_id,
            command.token_ids,
            command.sampling,
            namespace=command.namespace,
            priority=command.priority,
        )
        transfer_ids[request] = command.transfer_id
    else:
        for request in [one for one, transfer_id in transfer_ids.items() if transfer_id == command.transfer_id]:
            engine.abort(request)


class SideProcess:
    """A child process with an engine, which can be restarted."""

    def __init__(self, spec: EngineSpec, port: int = 0) -> None:
        self.role = spec.config.role
        self.port = port
        self.occupancy: dict[str, Occupancy] | None = None  # of the last report
        self._spec = spec
        self._start()

    def restart(self) -> None:
        """The new engine knows no earlier request."""
        self.stop()
        self._start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, f"the {self.role} process was never started"
        return self._process.pid

    def _start(self) -> None:
        context = get_context("spawn")
        self.connection, child = context.Pipe()
        self._process = context.Process(target=run_side, args=(self._spec, self.port, child), daemon=True)
        resource_tracker.ensure_running()  # if it were started below, it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # inherited: only the client handles Ctrl-C
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        child.close()
        try:
            if not self.connection.poll(START_TIMEOUT_S):
                self.stop()
                raise EngineError(f"the {self.role} process did not start within {START_TIMEOUT_S:.0f} s")
            started: int | EngineError = self.connection.recv()
        except EOFError as error:
            self.stop()
            raise EngineError(f"the {self.role} process died during its start; see its error above") from error
        if isinstance(started, EngineError):
            self.stop()
            raise started
        self.port = started

    def send(self, command: Command) -> bool:
        """False where the process has died."""
        try:
            self.connection.send(command)
        except OSError:
            return False
        return True

    def receive(self) -> list[Output] | None:
        """The outputs that arrived; None where the process has died and all its outputs were received."""
        outputs: list[Output] = []
        try:
            while self.connection.poll():
                reply: Reply = self.connection.recv()
                if isinstance(reply, dict):
                    self.occupancy = reply
                else:
                    outputs += reply
        except (EOFError, OSError):
            return outputs or None
        return outputs

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()


class ProcessPair:
    """A `Pair` with each engine in a child process, which is restarted when it dies.

    A death of the decode process ends all requests, with that reason.  A death of the prefill process ends none: every
    request without output is submitted to the new process.  It is served if that process is up before the decode side
    times out after `link_timeout_ms`.  A request is ended if it may have run in more than `max_forward_retries` prefill
    processes that died.  Transfers are served in order, so only the first `max_running_requests` may have run.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.prefill = SideProcess(spec._replace(config=spec.config.for_side(SIDES[0])))
        try:
            self.decode = SideProcess(spec._replace(config=spec.config.for_side(SIDES[1])), port=self.prefill.port)
        except EngineError:
            self.prefill.stop()
            raise
        self._config = spec.config
        self._num_transfers = 0
        self._open: dict[int, Submit] = {}  # the requests that have not ended, by transfer id, in order
        self._with_output: set[int] = set()  # transfer ids
        self._outputs: list[Output] = []  # received, and not returned by `step` yet
        self._num_deaths: dict[int, int] = {}  # of prefill processes that may have run a request, by transfer id

    @property
    def has_work(self) -> bool:
        return bool(self._open or self._outputs)

    def submit(
        self, token_ids: Sequence[int], sampling: SamplingParams, *, namespace: int = 0, priority: int = 0
    ) -> int:
        """Queue a request on both sides; the id of its transfer, which its outputs carry.

        Raises TypeError for an argument that is not an integer, and EngineError for `return_logits`, before either
        process has received the request.
        """
        if sampling.return_logits:
            raise EngineError("return_logits: logits do not leave the process that computes them; use create_pair")
        self._num_transfers += 1
        submit = Submit(self._num_transfers, [*map(index, token_ids)], sampling, index(namespace), index(priority))
        self._receive()
        for side in (self.prefill, self.decode):
            if not side.send(submit):
                self._restart(side)
                side.send(submit)
        self._open[submit.transfer_id] = submit
        return submit.transfer_id

    def abort(self, transfer_id: int) -> None:
        """Abort a request on the decode side, which closes its transfer."""
        if transfer_id in self._open:
            self.decode.send(Abort(transfer_id))

    def step(self) -> list[Output]:
        """The outputs that arrived since the last call; waits at most POLL_S for one."""
        wait([self.prefill.connection, self.decode.connection], timeout=POLL_S)
        self._receive()
        received, self._outputs = self._outputs, []
        outputs = []
        for one in received:
            transfer_id = one.request_id
            if transfer_id in self._open:
                outputs.append(one)
                if one.finish_reason is not None:
                    del self._open[transfer_id]
                    self._with_output.discard(transfer_id)
                    self._num_deaths.pop(transfer_id, None)
        return outputs

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
        """Serve prompts until all requests have ended; one result a prompt, in order.  Other outputs are discarded."""
        return serve(self, prompts, sampling)

    def occupancy(self) -> dict[str, dict[str, Occupancy]]:
        """By side and pool; a process that dies is restarted and asked again.

        Raises EngineError where a process does not report in time.
        """
        return {side.role: self._occupancy_of(side) for side in (self.prefill, self.decode)}

    def close(self) -> None:
        """End both processes."""
        self.prefill.stop()
        self.decode.stop()

    def _occupancy_of(self, side: SideProcess) -> dict[str, Occupancy]:
        asked_pid, side.occupancy = 0, None
        for _ in range(MAX_POLLS):
            if side.pid != asked_pid:
                asked_pid = side.pid
                side.send(ReportOccupancy())
            wait([side.connection], timeout=POLL_S)
            self._receive()
            if side.occupancy is not None:
                return side.occupancy
        raise EngineError(f"the {side.role} process does not report its occupancy")

    def _receive(self) -> None:
        """Receive from both processes, and restart one that has died."""
        if self.prefill.receive() is None:
            self._restart(self.prefill)
        outputs = self.decode.receive()
        if outputs is None:
            self._restart(self.decode)
        else:
            self._outputs += outputs
            self._with_output.update(one.request_id for one in outputs if one.request_id in self._open)

    def _restart(self, side: SideProcess) -> None:
        side.restart()
        if side is self.decode:
            self._outputs += [
                Output(transfer_id, (), "the decode process has died", 0, 0) for transfer_id in self._open
            ]
        else:
            self._resubmit()

    def _resubmit(self) -> None:
        """Submit the requests without output to the new prefill process, unless too many processes died with them."""
        without_output = [one for transfer_id, one in self._open.items() if transfer_id not in self._with_output]
        for place, submit in enumerate(without_output):
            may_have_run = place < self._config.max_running_requests
            deaths = self._num_deaths[submit.transfer_id] = self._num_deaths.get(submit.transfer_id, 0) + may_have_run
            if deaths > self._config.max_forward_retries:
                self.decode.send(Abort(submit.transfer_id))
                reason = f"{deaths} prefill processes died with it"
                self._outputs.append(Output(submit.transfer_id, (), reason, 0, 0))
            else:
                self.prefill.send(submit)


def create_process_pair(
    config: EngineConfig, *, checkpoint: str | Path, device: str = "cpu", dtype: str = "float32"
) -> ProcessPair:
    """Two processes with an engine each, of one configuration, that run the model of a checkpoint directory.

    Raises as `create_engine` does, and EngineError where a process does not start; its own error is on standard error.
    """
    return ProcessPair(EngineSpec(config, str(checkpoint), device, dtype))
