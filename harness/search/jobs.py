"""Jobs that may hang or crash, each in its own forked process."""

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import parent_process
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import ForkProcess
from multiprocessing.popen_fork import Popen
from threading import Thread
from typing import Any, Generic, TypeVar

from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import STOPPING

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class JobDeath:
    """The process of a job ended without a result.  A job limits its own CPU seconds with an ITIMER_PROF."""

    exit_code: int
    cpu_seconds: float

    @property
    def has_hung(self) -> bool:
        """Whether the job has used up its own CPU limit."""
        return self.exit_code == -signal.SIGPROF

    @property
    def name(self) -> str:
        """The name of the signal that ended the process; "exit" if there was none."""
        return signal.Signals(-self.exit_code).name if self.exit_code < 0 else "exit"

    def __str__(self) -> str:
        if self.has_hung:
            return "worker stopped answering"
        return f"worker died: {self.name if self.exit_code < 0 else self.exit_code}"


class _Child(Popen):
    """Keeps the CPU seconds of its process.

    The kernel reports them once, to the first wait: starting another process waits for all that have ended.
    """

    cpu_seconds = 0.0

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            try:
                ended, status, usage = os.wait4(self.pid, flag)
            except ChildProcessError:
                return None
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_seconds = usage.ru_utime + usage.ru_stime
        return self.returncode


class _Process(ForkProcess):
    _Popen = _Child
    _popen: _Child

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds of the ended process."""
        return self._popen.cpu_seconds


@dataclass(frozen=True, slots=True)
class _Running(Generic[JobT]):
    job: JobT
    process: _Process


def run_jobs(
    jobs: Iterable[JobT], work: Callable[[JobT], ResultT], *, workers: int
) -> Generator[tuple[JobT, ResultT | JobDeath], None, None]:
    """Yield each job with its result, in the order in which the jobs end; `workers` jobs run at a time.

    Each process inherits the imported modules.  The processes end with the iterator, and with this process.
    Raises the UsageError that a job raises.
    """
    waiting = iter(jobs)
    running: dict[Connection, _Running[JobT]] = {}
    try:
        while True:
            for job in islice(waiting, workers - len(running)):
                with _signals_deferred():
                    mailbox, process = _start(work, job)
                    running[mailbox] = _Running(job, process)
            if not running:
                return
            for ready in wait(list(running)):
                assert isinstance(ready, Connection), f"{ready}: not one of {list(running)}"
                ended = running.pop(ready)
                yield ended.job, _result(ready, ended.process)
    finally:
        for one in running.values():
            one.process.kill()
            one.process.join()


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Run signal handlers after the body: Python drops errors that a handler raises in the hooks around a fork."""
    caught: list[int] = []
    before = {each: signal.signal(each, lambda number, _: caught.append(number)) for each in STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in caught:
            signal.raise_signal(number)


def _start(work: Callable[[JobT], object], job: JobT) -> tuple[Connection, _Process]:
    mailbox, child_end = Pipe(duplex=False)
    process = _Process(target=_work, args=(work, job, child_end), daemon=True)
    process.start()
    child_end.close()
    return mailbox, process


def _result(mailbox: Connection, process: _Process) -> Any:
    try:
        result = mailbox.recv()
    except EOFError:
        process.join()
        assert process.exitcode is not None, f"{process} has ended"
        return JobDeath(process.exitcode, round(process.cpu_seconds, 3))
    process.join()
    if isinstance(result, UsageError):
        raise result
    return result


def _work(work: Callable[[JobT], object], job: JobT, mailbox: Connection) -> None:
    """The main function of a job's process. The parent handles interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        mailbox.send(work(job))
    except UsageError as error:
        mailbox.send(error)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "only a child process has a parent"
    parent.join()
    os._exit(1)
