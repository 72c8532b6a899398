"""The child process of a process pair: one engine, which serves the commands of its client."""

import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.handshakes import Address, Refusal
from swarden.engine_under_test.disaggregation.silence import heartbeat_ms
from swarden.engine_under_test.disaggregation.tcp import TcpLink
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Output
from swarden.engine_under_test.sampling import SamplingParams

POLL_S = 0.001  # between two polls of an idle process
START_TIMEOUT_MS = 120_000
MAX_STARTS = 3  # of a process in a row, if each of them fails


class SubmitCommand(NamedTuple):
    """Command: queue a request."""

    transfer_id: int
    token_ids: Sequence[int]
    sampling: SamplingParams
    namespace: int
    priority: int


class AbortCommand(NamedTuple):
    """Command: abort the request of a transfer."""

    transfer_id: int


class SkipTransfers(NamedTuple):
    """Command: the transfers up to this id, of the process that this one replaces, are over."""

    last_id: int


class ReportState(NamedTuple):
    """Command: report the state of the engine and of its link."""


class Occupancy(NamedTuple):
    """The units of one pool, or the rows: how many there are, are free, and are cached and not locked."""

    capacity: int
    free: int
    evictable: int

    @property
    def is_idle(self) -> bool:
        """Is every unit free or evictable?"""
        return self.free + self.evictable == self.capacity


class State(NamedTuple):
    """Reply: the occupancy by pool and for "rows", and how many connections the link has closed, by the reason."""

    occupancy: Mapping[str, Occupancy]
    refused: Counter[Refusal]


class Started(NamedTuple):
    """Reply, the first one: the engine has been created."""


class Alive(NamedTuple):
    """Reply: nothing else was sent for a while."""


class EngineSpec(NamedTuple):
    """The arguments of an engine in a child process, all of which can be pickled; `ports` makes its ports there."""

    config: EngineConfig
    checkpoint: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    ports: Callable[[], Ports] = Ports


Command = SubmitCommand | AbortCommand | SkipTransfers | ReportState
Reply = Started | EngineError | list[Output] | State | Alive


def run_side(spec: EngineSpec, end: socket.socket | Address, secret: bytes, client: Connection) -> None:
    """Serve commands until the client process ends.  The first reply is Started, or an error, which is the only reply.

    Each engine waits while the client restarts the process of the other, which may take MAX_STARTS times
    START_TIMEOUT_MS.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a fork server has not done it
    Thread(target=_exit_with_client, daemon=True).start()
    torch.set_num_threads(1)
    timeout_ms = spec.config.link_timeout_ms
    config = replace(spec.config, link_timeout_ms=timeout_ms + MAX_STARTS * START_TIMEOUT_MS)
    link = TcpLink(end, secret, spec.config)
    replies: SimpleQueue[Reply] = SimpleQueue()
    try:
        try:
            ports = replace(spec.ports(), link=link)
            engine = create_engine(
                config, checkpoint=spec.checkpoint, device=spec.device, dtype=spec.dtype, ports=ports
            )
        except EngineError as error:
            client.send(error)
            return
        client.send(Started())
        Thread(target=_send_replies, args=(replies, client, heartbeat_ms(timeout_ms)), daemon=True).start()
        _serve(engine, link, client, replies)
    except (EOFError, ConnectionError):
        return
    finally:
        link.close()


def _serve(engine: Engine, link: TcpLink, client: Connection, replies: "SimpleQueue[Reply]") -> None:
    """Execute commands and step the engine.  Raises EOFError or ConnectionError when the client has ended."""
    transfer_ids: dict[int, int] = {}  # by request
    while True:
        while client.poll(0.0 if engine.scheduler.has_work else POLL_S):
            command: Command = client.recv()
            if isinstance(command, ReportState):
                replies.put(State(occupancy_of(engine), link.refused))
            else:
                _execute(command, engine, transfer_ids)
        stepped = engine.step()
        if outputs := [output._replace(request_id=transfer_ids[output.request_id], logits=()) for output in stepped]:
            replies.put(outputs)
        for output in stepped:
            if output.finish_reason is not None:
                del transfer_ids[output.request_id]


def _exit_with_client() -> None:
    """A thread that exits when the client process has died, even during a forward pass."""
    client = parent_process()
    assert client is not None, "a side is started by its client"
    wait([client.sentinel])
    os._exit(0)


def occupancy_of(engine: Engine) -> dict[str, Occupancy]:
    """The occupancy of each pool, and of "rows"."""
    rows = engine.memory.table.rows
    pools = {
        ledger.name: Occupancy(ledger.capacity, ledger.num_free, engine.cache.evictable(ledger.name))
        for ledger in engine.memory.ledgers.ledgers
    }
    return {**pools, "rows": Occupancy(rows.capacity, rows.num_free, 0)}


def _send_replies(replies: "SimpleQueue[Reply]", client: Connection, interval_ms: int) -> None:
    """Send the replies and, while there are none, heartbeats.

    This runs in its own thread: a client that does not read cannot block the engine, and a pass cannot block
    heartbeats.
    """
    try:
        while True:
            try:
                client.send(replies.get(timeout=interval_ms / 1000))
            except Empty:
                client.send(Alive())
    except OSError:
        return  # the client has died, and the main thread finds that too


def _execute(
    command: SubmitCommand | AbortCommand | SkipTransfers, engine: Engine, transfer_ids: dict[int, int]
) -> None:
    match command:
        case SubmitCommand(transfer_id, token_ids, sampling, namespace, priority):
            request = engine.submit_transfer(transfer_id, token_ids, sampling, namespace=namespace, priority=priority)
            transfer_ids[request] = transfer_id
        case AbortCommand(aborted):
            for request in [number for number, transfer_id in transfer_ids.items() if transfer_id == aborted]:
                engine.abort(request)
        case SkipTransfers(last_id):
            engine.skip_transfers(last_id)
