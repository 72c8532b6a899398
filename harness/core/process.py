"""One process that holds one release of an engine: it runs functions one by one, and its death is reported as data.

Its Python can be that of another environment, which needs swarden's core and msgspec.  Parent and process share no
lock, because a killed process releases none.  They share a connection, and memory with a few numbers and the stack of a
process that dies.
"""

import faulthandler
import mmap
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

from swarden.harness.core.errors import UsageError, text_of
from swarden.harness.core.exit_codes import STOPPING
from swarden.harness.core.fingerprint import fingerprint_of_error

CRASH, HANG, FAULT = "crash", "hang", "fault"  # the kinds of death in fingerprints; FAULT is of swarden itself
ResultT = TypeVar("ResultT")
BOOT_S = 600.0  # the time limit of the first heartbeat is at least this, because a new process boots its engine first
STACK_S = 0.2  # for a hung process to write its stack
POLL_S = 0.2  # between two looks at a process
BEATS, STOP, BATCH, RUN, NUM_NUMBERS = range(5)  # indexes of the shared numbers
STACK_AT, SHARED_BYTES = 8 * NUM_NUMBERS, 1 << 16
SERVE = (
    "import sys; path = sys.argv[3:]; sys.path[:] = path + [one for one in sys.path if one not in path];"
    f"from {__name__} import serve; serve(*map(int, sys.argv[1:3]))"
)


class Interpreter(NamedTuple):
    """The Python of a process: `path` comes before its own path, `variables` are added to the parent's environment.

    One of the two paths has swarden and msgspec.
    """

    executable: str
    path: Sequence[str]
    variables: Mapping[str, str] = {}


class ProcessLimits(NamedTuple):
    """The limits of a process: `hang_seconds` without progress, and the bytes of its data (0: none).

    A temporary folder does not outlive the process and its parent.
    """

    hang_seconds: float = inf
    memory_bytes: int = 0
    is_folder_temporary: bool = False


NO_LIMITS = ProcessLimits()


class Death(NamedTuple):
    """An unexpected end of a process: `name` is the kind of death and its cause, `stack` the Python stack, if any.

    `how` is a verb phrase for messages, such as "was killed by SIGSEGV".
    """

    name: str
    how: str
    stack: str

    @property
    def kind(self) -> str:
        return self.name.split("/")[0]


class ProcessDied(RuntimeError):
    """The process died before its task ended."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"the process {death.how}\n{death.stack}".strip())
        self.death = death


class Task(NamedTuple):
    """A function that the process calls with its Parent and these arguments; all are pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Ended(NamedTuple):
    """A task has ended with this result, or with a UsageError, and the process waits for its next task."""

    result: Any


class Process:
    """A new process, as its parent sees it.  It ends with its parent, which alone handles SIGINT and SIGTERM.

    What the process prints goes to standard error.  A task sends any messages, then Ended; Death is the very last one.
    """

    def __init__(
        self, running: Path | None = None, limits: ProcessLimits = NO_LIMITS, interpreter: Interpreter | None = None
    ) -> None:
        """`running` is the path of the log that tasks write ahead.

        If the parent dies, the process removes the log, or its folder if that is temporary.
        """
        self.running = running
        self.task: Task | None = None  # until its end is handled
        self.silent_s = 0.0
        self._hung = ""
        self._last_beats = 0
        self._looked_at = time.monotonic()
        self._limits = limits
        self._connection, child_end = Pipe()
        with child_end, TemporaryFile() as shared:
            shared.write(bytes(SHARED_BYTES))  # a hole in the file would be a SIGBUS on a full disk
            shared.flush()
            shared.seek(STACK_AT)
            self._memory = memoryview(mmap.mmap(shared.fileno(), SHARED_BYTES))
            self._child = _started(interpreter, (child_end.fileno(), shared.fileno()))
        self._numbers = self._memory[:STACK_AT].cast("Q")
        with suppress(OSError):
            self._connection.send((running, limits))

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def place(self) -> tuple[int, int]:
        """The batch and the run that the last heartbeat named."""
        return self._numbers[BATCH], self._numbers[RUN]

    @property
    def has_started(self) -> bool:
        """Whether a task has had a heartbeat."""
        return bool(self._numbers[BEATS])

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the process, and return its result; see `stream`."""
        [result] = self.stream(_called, function, *arguments)
        return result

    def stream(self, function: Callable[..., Any], *arguments: Any) -> Generator[Any, None, None]:
        """Yield the messages of a task, and at last its result; a message is a heartbeat.

        Raises UsageError as the task did, and ProcessDied.  If the iterator ends early, the process is killed.
        """
        self.give(function, *arguments)
        try:
            while self.task is not None:
                message = self._received()
                if isinstance(message, Death):
                    raise ProcessDied(message)
                if isinstance(message, Ended):
                    self.task, message = None, message.result
                    if isinstance(message, UsageError):
                        raise message
                yield message
        finally:
            if self.task is not None:
                self.kill()
                with suppress(EOFError, OSError):
                    while self._connection.poll():  # what it has sent since is for no later task
                        self._connection.recv_bytes()

    def give(self, function: Callable[..., Any], *arguments: Any, place: tuple[int, int] = (0, 0)) -> None:
        """Start a task; its messages come by `listen`.  A dead process sends no message but its Death."""
        self.task, self.silent_s = Task(function, arguments), 0.0
        self._numbers[BATCH], self._numbers[RUN] = place
        with suppress(OSError):
            self._connection.send(self.task)

    def listen(self, on_message: Callable[["Process", Any], None]) -> None:
        """Pass on all messages from now on, in a thread: a stopped process then blocks no other thread."""

        def receive() -> None:
            message = None
            while not isinstance(message, Death):
                message = self._next()
                on_message(self, message)

        Thread(target=receive, daemon=True).start()

    def stop(self) -> None:
        """Ask the current task and all later ones to end early."""
        self._numbers[STOP] = True

    def go_on(self) -> None:
        """Let later tasks run to their end again, after `stop`."""
        self._numbers[STOP] = False

    def kill_if_hung(self, hang_seconds: float) -> None:
        """Kill a process that has a task and no heartbeat for `hang_seconds`; the process writes its stack first.

        Call this often: little of the time since the last call counts, because this process may have been stopped in
        it. With `hang_seconds` 0 a process that has a task is killed at once.
        """
        now, beats = time.monotonic(), self._numbers[BEATS]
        elapsed_s, self._looked_at = min(now - self._looked_at, 5 * POLL_S), now
        has_progress, self._last_beats = beats != self._last_beats, beats
        self.silent_s = 0.0 if has_progress or self.task is None else self.silent_s + elapsed_s
        bound = hang_seconds if beats or not hang_seconds else max(hang_seconds, BOOT_S)
        if self.task is not None and self.silent_s >= bound and not self._hung:
            self._hung = f"stopped answering for {bound:g} s" if bound else "did not end when it was interrupted"
            if beats:  # before the first heartbeat no handler may be installed
                self._child.send_signal(signal.SIGUSR1)
                time.sleep(STACK_S)
            self._child.kill()

    def kill(self) -> None:
        """Kill the process, and remove its running log."""
        self._child.kill()
        self._child.wait()
        if self.running is not None:
            with suppress(OSError):
                self.running.unlink()

    def _received(self) -> Any:
        """Wait for the next message; a process without progress is killed."""
        limit = self._limits.hang_seconds
        while limit < inf and not self._connection.poll(POLL_S):
            self.kill_if_hung(limit)
        self.silent_s = 0.0
        return self._next()

    def _next(self) -> Any:
        try:
            message = self._connection.recv_bytes()
        except (EOFError, OSError):
            return self._death()
        try:
            return pickle.loads(message)
        except Exception as error:  # such as of an error with other arguments than its text
            self._child.kill()
            return _fault(f"sent a message that cannot be read, {type(error).__name__}: {text_of(error)},", error)

    def _death(self) -> Death:
        code = self._child.wait()
        stack = bytes(self._memory[STACK_AT:]).rstrip(b"\0").decode(errors="replace").strip()
        if self._hung:
            return Death(HANG, self._hung, stack)
        if code >= 0:
            return Death(f"{CRASH}/exit", f"ended with exit code {code}", stack)
        try:
            name = signal.Signals(-code).name
        except ValueError:  # a real-time signal
            name = f"SIG{-code}"
        return Death(f"{CRASH}/{name}", f"was killed by {name}", stack)


def run_to_end(work: Generator[None, None, ResultT]) -> ResultT:
    """The result of work that yields while it waits for a process."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result


def _started(interpreter: Interpreter | None, numbers: tuple[int, int]) -> subprocess.Popen[bytes]:
    executable, path, variables = interpreter or Interpreter(sys.executable, sys.path)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)  # the process inherits it
    try:
        return subprocess.Popen(
            [executable, "-P", "-c", SERVE, *map(str, numbers), *path],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=os.environ | variables,
            pass_fds=numbers,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


# --- in the process


class Parent:
    """The parent, as a task sees it; `running` is the path of the log that the task writes ahead."""

    def __init__(self, connection: Connection, numbers: memoryview, running: Path | None) -> None:
        self.running = running
        self._connection = connection
        self._numbers = numbers

    def send(self, message: Any) -> None:
        self._connection.send(message)

    def beat(self, place: Sequence[int] = (0, 0)) -> None:
        """Send a heartbeat: the task makes progress, in the run with this batch and ordinal."""
        self._numbers[BEATS] += 1
        self._numbers[BATCH], self._numbers[RUN] = place

    def is_stopped(self) -> bool:
        """Whether the parent has asked the task to end early."""
        return bool(self._numbers[STOP])


def serve(connection_number: int, shared: int) -> None:
    """The main loop of a process: one task after the other, until the parent has closed the connection."""
    del sys.argv[1:]
    connection = Connection(connection_number)
    try:
        running, limits = connection.recv()
    except (EOFError, OSError):  # the parent is dead already
        return
    _end_with_parent(connection_number, running, limits)
    with suppress(EOFError, OSError):
        if limits.memory_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
        faulthandler.enable(shared)
        faulthandler.register(signal.SIGUSR1, shared)
        parent = Parent(connection, memoryview(mmap.mmap(shared, STACK_AT)).cast("Q"), running)
        while True:
            task, is_last = connection.recv_bytes(), True
            try:
                function, arguments = pickle.loads(task)
                ended = pickle.dumps(Ended(function(parent, *arguments)))
                is_last = False
            except UsageError as error:
                ended, is_last = pickle.dumps(Ended(error)), False
            except MemoryError as error:
                ended = pickle.dumps(Death(f"{CRASH}/MemoryError", "ran out of memory", _stack_of(error)))
            except Exception as error:  # the driver catches the errors of engines
                ended = pickle.dumps(_fault(f"met an internal error, {type(error).__name__}: {text_of(error)},", error))
            connection.send_bytes(ended)
            if is_last:
                return
    Event().wait()  # the parent is dead: the process ends when its files are removed


def _called(_: Parent, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _fault(how: str, error: Exception) -> Death:
    """The Death of a process that ends by an internal error."""
    return Death(f"{FAULT}/{fingerprint_of_error(error, '')}", how, _stack_of(error))


def _stack_of(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).strip()


def _end_with_parent(connection_number: int, running: Path | None, limits: ProcessLimits) -> None:
    """Remove the running log, and the folder if it is temporary, and end as soon as the parent has died."""
    hung_up = select.poll()
    hung_up.register(connection_number, 0)

    def watch() -> None:
        hung_up.poll()
        if running is not None:
            if limits.is_folder_temporary:
                rmtree(running.parent, ignore_errors=True)
            with suppress(OSError):
                running.unlink()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
