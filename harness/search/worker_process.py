"""One worker of a campaign in its own process, and the parent's handle of the process.

Parent and worker share no lock, because a killed process releases none. They share a pipe and a few plain numbers.
"""

import faulthandler
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import STOPPING
from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import Repeated, Verdict, repeat
from swarden.harness.core.running_log import FLAGS, RunningLog
from swarden.harness.report.story import story_lines
from swarden.harness.search.campaign import Plan, RunIndex, Worker
from swarden.harness.search.deaths import CRASH, FAULT, HANG
from swarden.harness.search.findings import FindingReport, report_finding
from swarden.harness.search.parent import end_with_parent
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shrink import DoesNotFail, ShrinkBudget

BOOT_S = 600.0  # the time limit of the first heartbeat is at least this, because a new process boots its engine first
STACK_S = 0.2  # for a hung worker to write its stack
HEARTBEAT, BATCH, RUN = range(3)  # indexes of the numbers that a worker shares with its parent


class WorkerLimits(NamedTuple):
    """The limits of a worker process: `hang_seconds` without an engine step, and the bytes of its data (0: none).

    A temporary folder does not outlive the process and its parent.
    """

    hang_seconds: float
    memory_bytes: int = 0
    is_folder_temporary: bool = False


class ReportTask(NamedTuple):
    """A finding that a worker shrinks and writes."""

    finding: Finding
    out: Path
    budget: ShrinkBudget


class ReplayTask(NamedTuple):
    """A log that a worker runs `runs` times; `with_story` asks for the story of its failure."""

    log: OpLog
    runs: int
    with_story: bool


class Replays(NamedTuple):
    """The runs of a log; `diverged` describes the first difference among them, or from a log of the same build.

    `story` has the lines of the story of the failure, if it was asked for.
    """

    verdict: Verdict
    fingerprints: tuple[str, ...]
    failures: int
    runs: int
    diverged: str = ""
    story: tuple[str, ...] = ()


class NotReproduced(NamedTuple):
    """A finding that does not fail again, and the reason as text."""

    reason: str


class Done(NamedTuple):
    """The task has ended, and the worker waits for its next task."""


class Booted(NamedTuple):
    """The process can make runs now; it has booted the engine in this time."""

    seconds: float


class WorkerDeath(NamedTuple):
    """An unexpected end of a worker process: `name` is the kind of death, `stack` the Python stack, if any.

    `how` is a verb phrase for messages, such as "was killed by SIGSEGV".
    """

    name: str
    how: str
    stack: str


Task = Plan | ReportTask | ReplayTask
Message = Booted | Result | FindingReport | NotReproduced | Replays | Done | WorkerDeath | UsageError


class WorkerProcess:
    """The parent's handle of one worker process: sends tasks, passes on messages, and kills a hung process.

    `on_message` is called in its own thread, with WorkerDeath as the last message.
    """

    def __init__(
        self,
        running: Path,
        stop: Any,
        on_message: Callable[["WorkerProcess", Message], None],
        limits: WorkerLimits,
    ) -> None:
        """`running` is the path of the log of the current run; `stop` is the flag that ends the task.

        If the parent dies, the process removes the log, or its folder if that is temporary.
        """
        context = get_context("spawn")
        self.running = running
        self.task: Task | None = None
        self.silent_s = 0.0
        self.ended_run: tuple[int, int] | None = None  # the seed and the ordinal of the last run with a result
        self._on_message = on_message
        self._hung = ""
        self._last_heartbeat = 0
        self._shared = context.RawArray("Q", 3)
        self._connection, child_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(child_end, self._shared, stop, running, limits), daemon=True
        )
        resource_tracker.ensure_running()  # if it started later, it would unblock the signals
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # the process inherits the mask: its parent handles them
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        child_end.close()
        Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def next_run(self) -> RunIndex:
        """The run after the last one that the process has started."""
        return RunIndex(self._shared[BATCH], self._shared[RUN])

    @property
    def has_started(self) -> bool:
        """Whether the process has started a run, or made a step."""
        return bool(self._shared[HEARTBEAT])

    def give(self, task: Task) -> None:
        """Send a task. For a dead process a WorkerDeath is sent by the listening thread."""
        self.task, self.silent_s = task, 0.0
        if isinstance(task, Plan):
            self._shared[BATCH], self._shared[RUN] = task.first_run
        with suppress(OSError):
            self._connection.send(task)

    def kill_if_hung(self, elapsed_s: float, *, hang_seconds: float) -> None:
        """Kill a process that has a task and no heartbeat for `hang_seconds`; the process writes its stack first.

        `elapsed_s` is the time since the last call.  With `hang_seconds` 0 a process that has a task is killed at once.
        """
        heartbeat = self._shared[HEARTBEAT]
        has_progress, self._last_heartbeat = heartbeat != self._last_heartbeat, heartbeat
        self.silent_s = 0.0 if has_progress or self.task is None else self.silent_s + elapsed_s
        bound = hang_seconds if heartbeat or not hang_seconds else max(hang_seconds, BOOT_S)
        if self.silent_s >= bound and not self._hung:
            self._hung = f"stopped answering for {bound:g} s" if bound else "did not end when it was interrupted"
            if heartbeat:  # before the first heartbeat no handler is installed
                os.kill(self._process.pid or 0, signal.SIGUSR1)
                time.sleep(STACK_S)
            self._process.kill()

    def kill(self) -> None:
        """Kill the process, and remove its running log."""
        self._process.kill()
        self._process.join()
        self.clear()

    def clear(self) -> None:
        """Remove the running log and the stack of the process."""
        for path in (self.running, _stack_path(self.running)):
            with suppress(OSError):
                path.unlink()

    def _listen(self) -> None:
        """Receive messages in this thread only: a process that is stopped within a message blocks no other thread."""
        try:
            while True:
                self._on_message(self, self._connection.recv())
        except (EOFError, OSError):
            self._on_message(self, self._death())

    def _death(self) -> WorkerDeath:
        self._process.join()
        code = self._process.exitcode or 0
        stack = ""
        with suppress(OSError):
            stack = _stack_path(self.running).read_text(errors="replace").strip()
        if self._hung:
            return WorkerDeath(HANG, self._hung, stack)
        if code >= 0:
            return WorkerDeath(f"{CRASH}/exit", f"ended with exit code {code}", stack)
        name = signal.Signals(-code).name
        return WorkerDeath(f"{CRASH}/{name}", f"was killed by {name}", stack)


def _stack_path(running: Path) -> Path:
    return running.with_suffix(".stack")


# --- in the process


def _serve(connection: Connection, shared: Any, stop: Any, running: Path, limits: WorkerLimits) -> None:
    """The main loop of a worker process: one task after the other, until the parent has closed the pipe."""
    end_with_parent(running, _stack_path(running), *[running.parent] * limits.is_folder_temporary)
    if limits.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
    os.dup2(2, 1)  # the output of an engine is not the output of the campaign
    prepare_process()
    with suppress(OSError):  # without a file, a crash has no stack
        stack = os.open(_stack_path(running), FLAGS | os.O_TRUNC, 0o644)
        faulthandler.enable(stack)
        faulthandler.register(signal.SIGUSR1, stack)
    log = RunningLog(running)
    with suppress(EOFError, BrokenPipeError):
        while True:
            task = connection.recv()
            try:
                _run_task(task, connection, shared, stop, log)
            except (EOFError, BrokenPipeError):
                raise
            except Exception as error:  # the driver catches the errors of engines
                connection.send(_death_by_fault(error))
                return
    Event().wait()  # the parent is dead: the process ends when its files are removed


def _death_by_fault(error: Exception) -> WorkerDeath:
    """The death of a worker by an internal error."""
    stack = "".join(traceback.format_exception(error)).strip()
    return WorkerDeath(f"{FAULT}/{fingerprint_of_error(error, '')}", f"met an internal error, {error!r},", stack)


def _run_task(task: Task, connection: Connection, shared: Any, stop: Any, running: RunningLog) -> None:
    def heartbeat(next_run: RunIndex) -> None:
        shared[HEARTBEAT] += 1
        shared[BATCH], shared[RUN] = next_run

    def is_stopped() -> bool:
        return bool(stop.value)

    def on_step(*_: object) -> None:
        heartbeat(RunIndex(0))

    try:
        if isinstance(task, Plan):
            worker = Worker(task, connection.send, is_stopped, heartbeat=heartbeat, running=running)
            connection.send(Booted(worker.boot_seconds))
            worker.work()
        elif isinstance(task, ReplayTask):
            _boot(task.log, on_step)
            connection.send(
                _replays(repeat(task.log, task.runs, on_step, trace_origins=task.with_story), task.with_story)
            )
        else:
            _boot(task[0].log, on_step)
            connection.send(report_finding(*task, heartbeat=on_step, is_stopped=is_stopped))
    except DoesNotFail as error:
        connection.send(NotReproduced(str(error)))
    except UsageError as error:  # the engine cannot be booted, or a mutant does not fit it
        connection.send(error)
    connection.send(Done())


def _boot(log: OpLog, heartbeat: Callable[[], None]) -> None:
    """Boot the engine of a log, so that a hang in its first operation is not taken for a slow boot."""
    log.header.target.prepare_process()
    heartbeat()


def _replays(repeated: Repeated, with_story: bool) -> Replays:
    shown = repeated.reported
    failure = shown.driver.failure
    story = story_lines(shown.log.header, failure) if with_story and failure is not None else []
    diverged = repeated.first_difference or (shown.is_nondeterministic and shown.diverged) or ""
    return Replays(
        Verdict.FLAKY if diverged else repeated.verdict,
        tuple(failure.fingerprints) if failure is not None else (),
        repeated.num_failed,
        len(repeated.runs),
        diverged,
        tuple(map(str, story)),
    )
