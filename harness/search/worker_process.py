"""One worker of a campaign in a process of its own, and the parent's handle of it.

Nothing is shared under a lock, for a process that was killed releases none: a pipe each, and a few plain numbers.
"""

import faulthandler
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from harness.core.fingerprint import fingerprint_of_error
from harness.core.running_log import RunningLog
from harness.search.campaign import Finding, Place, Plan, Result, Worker
from harness.search.deaths import CRASH, FAULT, HANG
from harness.search.findings import Settled, settle
from harness.search.parent import end_with_parent
from harness.search.process import prepare_process
from harness.search.shrink import Budget, DoesNotFail

START_S = 60.0  # the least that a process has until its first step: it imports first
STACK_S = 0.2  # for a hung worker to write its stack
HANDLED = (signal.SIGINT, signal.SIGTERM)  # the parent handles them for its workers
BEAT, BATCH, RUN = range(3)  # the numbers that a worker shares with its parent


class Settling(NamedTuple):
    """A finding that a worker is to settle."""

    finding: Finding
    out: Path
    budget: Budget


class NotSettled(NamedTuple):
    """Why a finding could not be settled."""

    why: str


class Done(NamedTuple):
    """The task is at its end, and the worker waits for the next."""


class Died(NamedTuple):
    """How a worker process ended before its time: `name` is that of its kind, `stack` is Python's, if any."""

    name: str
    how: str
    stack: str


Task = Plan | Settling
Message = Result | Settled | NotSettled | Done | Died


class WorkerProcess:
    """The parent's handle of one worker process: gives it tasks, passes on what it sends, and sees whether it lives.

    `tell` is called in a thread of its own, with Died as the last message.
    """

    def __init__(self, running: Path, stop: Any, tell: Callable[["WorkerProcess", Message], None]) -> None:
        """`running` is where the process writes its current run ahead; `stop` is the flag that ends its task."""
        context = get_context("spawn")
        self.running = running
        self.task: Task | None = None
        self.silent_s = 0.0
        self.ended_run: tuple[int, int] | None = None  # the seed and the ordinal of the last run that it told of
        self._tell = tell
        self._hung = ""
        self._last_beat = 0
        self._shared = context.RawArray("Q", 3)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._shared, stop, running), daemon=True)
        resource_tracker.ensure_running()  # started below, it would unblock the signals
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # the process inherits that
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        theirs.close()
        Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def place(self) -> Place:
        """The place after the run that was begun last."""
        return Place(self._shared[BATCH], self._shared[RUN])

    @property
    def has_started(self) -> bool:
        """Whether the process has begun a run, or made a step."""
        return bool(self._shared[BEAT])

    def give(self, task: Task) -> None:
        """Hand over a task; a process that is dead has told so, or will."""
        self.task, self.silent_s = task, 0.0
        if isinstance(task, Plan):
            self._shared[BATCH], self._shared[RUN] = task.begin
        with suppress(OSError):
            self._connection.send(task)

    def look(self, elapsed_s: float, *, hang_seconds: float) -> None:
        """Kill a process that has a task and shows no progress for `hang_seconds`; its stack is written first."""
        beat = self._shared[BEAT]
        has_moved, self._last_beat = beat != self._last_beat, beat
        self.silent_s = 0.0 if has_moved or self.task is None else self.silent_s + elapsed_s
        bound = hang_seconds if beat or not hang_seconds else max(hang_seconds, START_S)
        if self.silent_s >= bound and not self._hung:
            self._hung = f"stopped answering for {bound:g} s" if bound else "did not end when it was interrupted"
            if beat:  # before the first, nothing listens to the signal yet
                os.kill(self._process.pid or 0, signal.SIGUSR1)
                time.sleep(STACK_S)
            self._process.kill()

    def kill(self) -> None:
        """End the process, and remove what it wrote ahead."""
        self._process.kill()
        self._process.join()
        self.clear()

    def clear(self) -> None:
        """Remove what the process wrote ahead."""
        for path in (self.running, _stack_path(self.running)):
            with suppress(OSError):
                path.unlink()

    def _listen(self) -> None:
        """A read from a process that was stopped in the middle of a message blocks nothing else."""
        try:
            while True:
                self._tell(self, self._connection.recv())
        except (EOFError, OSError):
            self._tell(self, self._died())

    def _died(self) -> Died:
        self._process.join()
        code = self._process.exitcode or 0
        stack = ""
        with suppress(OSError):
            stack = _stack_path(self.running).read_text(errors="replace").strip()
        if self._hung:
            return Died(HANG, self._hung, stack)
        if code >= 0:
            return Died(f"{CRASH}/exit", f"ended with exit code {code}", stack)
        name = signal.Signals(-code).name
        return Died(f"{CRASH}/{name}", f"was killed by {name}", stack)


def _stack_path(running: Path) -> Path:
    return running.with_suffix(".stack")


# --- in the process


def _serve(connection: Connection, shared: Any, stop: Any, running: Path) -> None:
    """The process of a worker: one task after the other, until the parent is gone."""
    end_with_parent(running, _stack_path(running))
    os.dup2(2, 1)  # what an engine prints is no part of the campaign's output
    prepare_process()
    with suppress(OSError):  # without a file, a crash has no stack to show
        stack = os.open(_stack_path(running), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        faulthandler.enable(stack)
        faulthandler.register(signal.SIGUSR1, stack)
    with suppress(EOFError, BrokenPipeError):
        while True:
            task = connection.recv()
            try:
                _do(task, connection, shared, stop, RunningLog(running))
            except (EOFError, BrokenPipeError):
                raise
            except Exception as error:  # what an engine raises has ended in the driver
                connection.send(_fault_of(error))
                return


def _fault_of(error: Exception) -> Died:
    """How a worker ends that met a fault of swarden itself."""
    stack = "".join(traceback.format_exception(error)).strip()
    return Died(f"{FAULT}/{fingerprint_of_error(error, '')}", f"met a fault of swarden itself, {error!r},", stack)


def _do(task: Task, connection: Connection, shared: Any, stop: Any, running: RunningLog) -> None:
    def beat(place: Place) -> None:
        shared[BEAT] += 1
        shared[BATCH], shared[RUN] = place

    def is_stopped() -> bool:
        return bool(stop.value)

    if isinstance(task, Plan):
        Worker(task, connection.send, is_stopped, beat=beat, running=running).work()
    else:
        try:
            connection.send(settle(*task, beat=lambda: beat(Place(0)), is_stopped=is_stopped))
        except DoesNotFail as gone:
            connection.send(NotSettled(str(gone)))
    connection.send(Done())
