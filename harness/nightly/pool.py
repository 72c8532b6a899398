"""The Executor that runs the jobs of a night: the threads of this machine, or the nodes of a scheduler.

A job is a function of harness/nightly/shards.py.  If the node of a job is lost, the job runs again from its beginning,
and only its result counts, so nothing is lost and nothing is counted twice.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from itertools import islice
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.imports import importing
from swarden.harness.nightly.shards import EngineBuild, close_lanes, interrupt_lanes, on_same_build

MAX_LOSSES = 5  # of one job
WAIT_S = 0.5

OnLoss = Callable[["Job", Exception], None]
OnWait = Callable[[int], None]


class Job(NamedTuple):
    """A call of one function, and its subject: an engine, a shard, a finding."""

    subject: Any
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.function.__name__} {self.subject}"


@dataclass(frozen=True)
class JobPool:
    """An Executor for the jobs of a night."""

    executor: Executor
    width: int  # jobs that run at a time
    lost: tuple[type[Exception], ...] = (CancelledError,)  # the errors that mean that a node was lost
    builds: Sequence[EngineBuild] = ()  # that each node must have, if it is another machine than the coordinator's

    def run(self, jobs: Iterable[Job], on_loss: OnLoss, on_wait: OnWait = lambda _: None) -> Iterator[tuple[Any, Any]]:
        """Yield the subject of each job with its result, in the order in which the jobs end.

        Jobs are taken from the iterator when they can start.  `on_wait` gets the number of jobs that have ended, every
        WAIT_S while none ends.  Raises UsageError if a job raises it, or is lost MAX_LOSSES times.
        """
        waiting, running, losses, ended = iter(jobs), dict[Future[Any], Job](), Counter[str](), 0
        while True:
            for job in islice(waiting, max(0, self.width - len(running))):
                running[self._submitted(job)] = job
            if not running:
                return
            future = next(iter(wait(running, timeout=WAIT_S, return_when=FIRST_COMPLETED).done), None)
            if future is None:
                on_wait(ended)
                continue
            job = running.pop(future)
            try:
                result = future.result()
            except self.lost as error:
                losses[job.name] += 1
                if losses[job.name] == MAX_LOSSES:
                    raise UsageError(f"{job.name}: its node was lost {MAX_LOSSES} times: {error!r}") from error
                on_loss(job, error)
                running[self._submitted(job)] = job
            else:
                del future  # while the future exists, Dask runs the job again if the node with its result is lost
                ended += 1
                yield job.subject, result

    def _submitted(self, job: Job) -> Future[Any]:
        if self.builds:
            return self.executor.submit(on_same_build, self.builds, job.function, *job.arguments)
        return self.executor.submit(job.function, *job.arguments)


@contextmanager
def local_pool(workers: int | None = None) -> Iterator[JobPool]:
    """A thread of this process for each worker, one per core; the thread drives a worker process for each engine."""
    workers = workers or os.cpu_count() or 1
    executor = ThreadPoolExecutor(workers, thread_name_prefix="shard")
    try:
        yield JobPool(executor, workers)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        interrupt_lanes()
        executor.shutdown()
        close_lanes()


@contextmanager
def pool_of_scheduler(address: str, workers: int | None, builds: Sequence[EngineBuild]) -> Iterator[JobPool]:
    """The nodes of a Dask scheduler, which must have these builds; raises UsageError without Dask or without a node."""
    with importing("--scheduler: its client"):
        cluster = EntryPoint("", "swarden.harness.nightly.cluster:cluster", "").load()
    with cluster(address, workers) as (executor, width, lost):
        yield JobPool(executor, width, (CancelledError, *lost), builds)
