"""Jobs that may hang or crash, each in its own forked process."""

import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkProcess
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any, Generic, TypeVar

from harness.core.errors import UsageError
from harness.search.parent import end_with_parent

STOPPING = (signal.SIGINT, signal.SIGTERM)

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class JobDeath:
    """The process of a job ended without a result. A job limits its own CPU seconds with an ITIMER_PROF."""

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


@dataclass(frozen=True, slots=True)
class _Running(Generic[JobT]):
    job: JobT
    process: ForkProcess


def run_jobs(
    jobs: Iterable[JobT], work: Callable[[JobT], ResultT], *, workers: int
) -> Generator[tuple[JobT, ResultT | JobDeath], None, None]:
    """Yield each job with its result, in the order in which the jobs end; `workers` jobs run at a time.

    Each process inherits the imported modules.  The processes end with the iterator, and with this process.
    Raises the UsageError that a job raises.
    """
    context, waiting = get_context("fork"), iter(jobs)
    running: dict[Connection, _Running[JobT]] = {}
    try:
        while True:
            for job in islice(waiting, workers - len(running)):
                with _signals_deferred():
                    mailbox, process = _start(context, work, job)
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


def _start(context: ForkContext, work: Callable[[JobT], object], job: JobT) -> tuple[Connection, ForkProcess]:
    mailbox, child_end = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(work, job, child_end), daemon=True)
    process.start()
    child_end.close()
    return mailbox, process


def _result(mailbox: Connection, process: ForkProcess) -> Any:
    try:
        result = mailbox.recv()
    except EOFError:
        before = _cpu_seconds_of_children()
        process.join()
        assert process.exitcode is not None, f"{process} has ended"
        return JobDeath(process.exitcode, round(_cpu_seconds_of_children() - before, 3))
    process.join()
    if isinstance(result, UsageError):
        raise result
    return result


def _cpu_seconds_of_children() -> float:
    """The CPU seconds of the processes that have ended and were joined."""
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _work(work: Callable[[JobT], object], job: JobT, mailbox: Connection) -> None:
    """The main function of a job's process. The parent handles interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    try:
        mailbox.send(work(job))
    except UsageError as error:
        mailbox.send(error)
