"""A pair of engines in processes of their own, linked over TCP; whoever asks for tokens talks to both."""

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
IDLE_S = 0.001  # between two looks at what has come, while there is nothing to do
MOST_S = 60.0  # until a process that was started says that its engine is there
MOST_LOOKS = 60_000  # at what has come, until a process says what it is asked


class Asked(NamedTuple):
    """A request for both sides."""

    room: int
    token_ids: Sequence[int]
    sampling: SamplingParams
    namespace: int
    priority: int


class Occupancy(NamedTuple):
    """Of one pool, or of the rows: how many units there are, are free, and are cached with nobody who reads them."""

    capacity: int
    free: int
    evictable: int

    @property
    def is_idle(self) -> bool:
        """Does nobody hold anything?"""
        return self.free + self.evictable == self.capacity


class Tell(NamedTuple):
    """Asks a process what its pools hold."""


class Built(NamedTuple):
    """What an engine in a process is built from, all of which can be sent there; `ports` makes those that it gets."""

    config: EngineConfig
    checkpoint: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    ports: Callable[[], Ports] = Ports


Said = list[Output] | dict[str, Occupancy]


def run_side(built: Built, port: int, to_client: Connection) -> None:
    """A process: an engine that serves what it is asked until the client's process ends.

    The first that it says is its port, or why there can be no engine.
    """
    Thread(target=_end_with_client, daemon=True).start()
    torch.set_num_threads(1)
    link = TcpLink(port, listens=built.config.role == SIDES[0])
    ports = replace(built.ports(), link=link)
    rooms: dict[int, int] = {}
    said: SimpleQueue[Said] = SimpleQueue()
    try:
        try:
            engine = create_engine(
                built.config, checkpoint=built.checkpoint, device=built.device, dtype=built.dtype, ports=ports
            )
        except EngineError as error:
            to_client.send(error)
            return
        to_client.send(link.port)
        Thread(target=_say, args=(said, to_client), daemon=True).start()
        while True:
            while to_client.poll(0.0 if engine.scheduler.has_work else IDLE_S):
                asked = to_client.recv()
                if isinstance(asked, Tell):
                    said.put(occupancy_of(engine))
                else:
                    _take_in(engine, rooms, asked)
            heard = engine.step()
            if outputs := [one._replace(request_id=rooms[one.request_id], logits=()) for one in heard]:
                said.put(outputs)
            for one in heard:
                if one.finish_reason is not None:
                    del rooms[one.request_id]
    except (EOFError, ConnectionError):
        return
    finally:
        link.close()


def _end_with_client() -> None:
    """A thread: the process ends where the client's has died, whatever its engine computes."""
    client = parent_process()
    assert client is not None, "a side is started by its client"
    wait([client.sentinel])
    os._exit(0)


def occupancy_of(engine: Engine) -> dict[str, Occupancy]:
    """By pool, and of the "rows"."""
    rows = engine.memory.table.rows
    pools = {
        ledger.name: Occupancy(ledger.capacity, ledger.num_free, engine.cache.evictable(ledger.name))
        for ledger in engine.memory.ledgers.ledgers
    }
    return {**pools, "rows": Occupancy(rows.capacity, rows.num_free, 0)}


def _say(said: SimpleQueue[Said], to_client: Connection) -> None:
    """A thread of its own, so that a client who asks and does not listen is still heard."""
    try:
        while True:
            to_client.send(said.get())
    except OSError:
        return  # nobody is there; whoever hears what is asked finds that too


def _take_in(engine: Engine, rooms: dict[int, int], asked: Asked | int) -> None:
    """A request, or the room of one that nobody wants any more."""
    if isinstance(asked, Asked):
        request = engine.submit_to_room(
            asked.room, asked.token_ids, asked.sampling, namespace=asked.namespace, priority=asked.priority
        )
        rooms[request] = asked.room
    else:
        for request in [request for request, room in rooms.items() if room == asked]:
            engine.abort(request)


class SideProcess:
    """One process, which is started again when it has died."""

    def __init__(self, built: Built, port: int = 0) -> None:
        self.role = built.config.role
        self.port = port
        self.told: dict[str, Occupancy] | None = None  # what it said last of its pools
        self._built = built
        self._start()

    def start_again(self) -> None:
        """With an engine that knows nothing of what was asked before."""
        self.stop()
        self._start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, f"the {self.role} process was never started"
        return self._process.pid

    def _start(self) -> None:
        context = get_context("spawn")
        self.client, there = context.Pipe()
        self._process = context.Process(target=run_side, args=(self._built, self.port, there), daemon=True)
        resource_tracker.ensure_running()  # started below, it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # inherited: the client alone hears Ctrl-C
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        there.close()
        try:
            if not self.client.poll(MOST_S):
                self.stop()
                raise EngineError(f"the {self.role} process has not said for {MOST_S:.0f} s that it is there")
            said: int | EngineError = self.client.recv()
        except EOFError as error:
            self.stop()
            raise EngineError(f"the {self.role} process has ended before it was there; see above why") from error
        if isinstance(said, EngineError):
            self.stop()
            raise said
        self.port = said

    def ask(self, asked: Asked | int | Tell) -> bool:
        """False where the process has died."""
        try:
            self.client.send(asked)
        except OSError:
            return False
        return True

    def heard(self) -> list[Output] | None:
        """What has come; None where the process has died, and all that it said was heard."""
        outputs: list[Output] = []
        try:
            while self.client.poll():
                said: Said = self.client.recv()
                if isinstance(said, dict):
                    self.told = said
                else:
                    outputs += said
        except (EOFError, OSError):
            return outputs or None
        return outputs

    def stop(self) -> None:
        self.client.close()
        self._process.kill()
        self._process.join()


class ProcessPair:
    """What `Pair` is, with each engine in a process of its own: either may die, and is started again.

    Whoever was served by the decode process then ends with that reason at once.  What the prefill process had not
    handed over is asked of the new one, and goes on where that is there before the decode side has not heard of it for
    `link_timeout_ms`.  Who may have been computed in more than `max_forward_retries` processes that died is given up:
    rooms are made in order, so that is one of the first `max_running_requests`.
    """

    def __init__(self, built: Built) -> None:
        self.prefill = SideProcess(built._replace(config=built.config.for_side(SIDES[0])))
        try:
            self.decode = SideProcess(built._replace(config=built.config.for_side(SIDES[1])), port=self.prefill.port)
        except EngineError:
            self.prefill.stop()
            raise
        self._config = built.config
        self._num_rooms = 0
        self._open: dict[int, Asked] = {}  # the requests that have not ended, by room, in order
        self._begun: set[int] = set()  # the rooms of which something was heard
        self._heard: list[Output] = []  # and not told yet
        self._num_tries: dict[int, int] = {}  # how often the prefill process died with a room in it

    @property
    def has_work(self) -> bool:
        return bool(self._open or self._heard)

    def submit(
        self, token_ids: Sequence[int], sampling: SamplingParams, *, namespace: int = 0, priority: int = 0
    ) -> int:
        """Queue a request on both sides; its room, by which outputs are told apart.

        Raises TypeError for what is no number, and EngineError where logits are asked for, before either process hears
        of it.
        """
        if sampling.return_logits:
            raise EngineError("return_logits: logits do not leave the process that computes them; use create_pair")
        self._num_rooms += 1
        asked = Asked(self._num_rooms, [*map(index, token_ids)], sampling, index(namespace), index(priority))
        self._listen()
        for side in (self.prefill, self.decode):
            if not side.ask(asked):
                self._revive(side)
                side.ask(asked)
        self._open[asked.room] = asked
        return asked.room

    def abort(self, room: int) -> None:
        """End a request on the side that clients hear; the other side hears of it from there."""
        if room in self._open:
            self.decode.ask(room)

    def step(self) -> list[Output]:
        """What has come from the processes since this was asked last; waits a moment where nothing has."""
        wait([self.prefill.client, self.decode.client], timeout=IDLE_S)
        self._listen()
        heard, self._heard = self._heard, []
        outputs = []
        for one in heard:
            room = one.request_id
            if room in self._open:
                outputs.append(one)
                if one.finish_reason is not None:
                    del self._open[room]
                    self._begun.discard(room)
                    self._num_tries.pop(room, None)
        return outputs

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Generation]:
        """Serve prompts until the last has ended; what came of each, in order."""
        return serve(self, prompts, sampling)

    def occupancy(self) -> dict[str, dict[str, Occupancy]]:
        """By side and pool, what is free there; of a process that has died, what the next one says.

        Raises EngineError where a process does not say it, for as long as its engine computes or for good.
        """
        return {side.role: self._told_by(side) for side in (self.prefill, self.decode)}

    def close(self) -> None:
        """End both processes."""
        self.prefill.stop()
        self.decode.stop()

    def _told_by(self, side: SideProcess) -> dict[str, Occupancy]:
        asked_of, side.told = 0, None
        for _ in range(MOST_LOOKS):
            if side.pid != asked_of:
                asked_of = side.pid
                side.ask(Tell())
            wait([side.client], timeout=IDLE_S)
            self._listen()
            if side.told is not None:
                return side.told
        raise EngineError(f"the {side.role} process does not say what its pools hold")

    def _listen(self) -> None:
        """Take in what has come, and see who has died."""
        if self.prefill.heard() is None:
            self._revive(self.prefill)
        outputs = self.decode.heard()
        if outputs is None:
            self._revive(self.decode)
        else:
            self._heard += outputs
            self._begun.update(one.request_id for one in outputs if one.request_id in self._open)

    def _revive(self, side: SideProcess) -> None:
        """Who was in the dead decode process has ended; who was in the dead prefill process may be served anew."""
        side.start_again()
        if side is self.decode:
            self._heard += [Output(room, (), "the decode process has died", 0, 0) for room in self._open]
        else:
            unserved = [asked for room, asked in self._open.items() if room not in self._begun]
            for place, asked in enumerate(unserved):
                is_suspect = place < self._config.max_running_requests
                tries = self._num_tries[asked.room] = self._num_tries.get(asked.room, 0) + is_suspect
                if tries > self._config.max_forward_retries:
                    self.decode.ask(asked.room)
                    reason = f"the prefill process has died {tries} times with it"
                    self._heard.append(Output(asked.room, (), reason, 0, 0))
                else:
                    side.ask(asked)


def create_process_pair(
    config: EngineConfig, *, checkpoint: str | Path, device: str = "cpu", dtype: str = "float32"
) -> ProcessPair:
    """Two processes with an engine each, of one configuration, that run the model of a checkpoint directory.

    Raises as `create_engine` does, and EngineError where a process does not come up, which says why on standard error.
    """
    return ProcessPair(Built(config, str(checkpoint), device, dtype))
