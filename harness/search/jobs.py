"""Jobs that may hang or crash, each in its own forked process."""

import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from time import monotonic
from typing import Any, Generic, TypeVar

from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import STOPPING

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
FORK = get_context("fork")


@dataclass(frozen=True, slots=True)
class JobDeath:
    """The process of a job ended without a result, after so many seconds of wall-clock time.

    A job limits its own CPU seconds with an ITIMER_PROF.
    """

    exit_code: int
    seconds: float

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


@dataclass(frozen=True, slots=True)
class _Running(Generic[JobT]):
    job: JobT
    process: BaseProcess
    began: float


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
                    running[mailbox] = _Running(job, process, monotonic())
            if not running:
                return
            for ready in wait(list(running)):
                assert isinstance(ready, Connection), f"{ready}: not one of {list(running)}"
                ended = running.pop(ready)
                yield ended.job, _result(ready, ended)
    finally:
        for left in running.values():
            left.process.kill()
            left.process.join()


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


def _start(work: Callable[[JobT], object], job: JobT) -> tuple[Connection, BaseProcess]:
    mailbox, child_end = Pipe(duplex=False)
    process = FORK.Process(target=_work, args=(work, job, child_end), daemon=True)
    process.start()
    child_end.close()
    return mailbox, process


def _result(mailbox: Connection, ended: _Running[Any]) -> Any:
    try:
        result = mailbox.recv()
    except EOFError:
        ended.process.join()
        assert ended.process.exitcode is not None, f"{ended.process} has ended"
        return JobDeath(ended.process.exitcode, round(monotonic() - ended.began, 3))
    ended.process.join()
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
