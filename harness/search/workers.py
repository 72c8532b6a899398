"""The worker processes of a campaign: started, replaced when one dies or hangs, and interrupted."""

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil, inf
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from tempfile import mkdtemp

from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import STOPPING
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import name_of
from swarden.harness.core.replay import RUNS, Verdict
from swarden.harness.core.running_log import last_run
from swarden.harness.search.campaign import Plan, RunIndex, save_unshrunk
from swarden.harness.search.findings import FindingReport, write_unshrunk
from swarden.harness.search.result import Finding, Result, Tallies
from swarden.harness.search.shrink import ShrinkBudget
from swarden.harness.search.worker_process import (
    Booted,
    Done,
    Message,
    NotReproduced,
    Replays,
    ReplayTask,
    ReportTask,
    WorkerDeath,
    WorkerLimits,
    WorkerProcess,
)

POLL_S = 0.2  # between two checks of the workers
GRACE_S = 10.0  # for a worker to end its step after an interrupt
DEATHS_OF_A_BATCH = 3  # of one worker without a finished run; then the worker skips to its next batch
MAX_DEATHS = 3 * DEATHS_OF_A_BATCH  # then the worker is not used any more


class WorkerGroup:
    """The workers of a campaign, one process each, for the length of a `with`.

    The first `interrupt` ends all tasks early: current runs are discarded, findings are kept.  `on_progress` is called
    after each message and at least every POLL_S.  Groups can work side by side in one thread: the iterators of
    `running` and of `report_findings` yield None when all messages are processed.  Without a `folder` the group
    has a temporary one, which is removed even if this process dies.
    """

    def __init__(
        self,
        size: int,
        folder: Path | None,
        *,
        hang_seconds: float,
        on_progress: Callable[["WorkerGroup"], None] = lambda _: None,
        memory_bytes: int = 0,
    ) -> None:
        self.result = Result()
        self.tallies = [Tallies() for _ in range(size)]  # of each worker
        self.workers: list[WorkerProcess] = []
        self.started_at = time.monotonic()  # once a worker has booted its engine, the end of that boot
        self.folder = Path(mkdtemp(prefix="swarden-")) if folder is None else folder
        self._limits = WorkerLimits(hang_seconds, memory_bytes, is_folder_temporary=folder is None)
        self._on_progress = on_progress
        self._stop = get_context("spawn").RawValue("b", 0)
        self._mailbox: SimpleQueue[tuple[WorkerProcess, Message]] = SimpleQueue()
        self._deaths: Counter[int] = Counter()  # of each worker since its last finished run
        self._checked_at = self.started_at
        self._interrupted_at: float | None = None

    def __enter__(self) -> "WorkerGroup":
        self.workers = [self._started(index) for index in range(len(self.tallies))]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.kill()
        if self._limits.is_folder_temporary:
            rmtree(self.folder)

    @property
    def is_interrupted(self) -> bool:
        return self._interrupted_at is not None

    def interrupt(self) -> None:
        """End all tasks early; raises KeyboardInterrupt when it is called again."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        self._interrupted_at = time.monotonic()
        self.stop()

    def stop(self) -> None:
        """End the current tasks early, and discard their current runs."""
        self._stop.value = 1

    def run(self, plan: Plan) -> Result:
        """Make the plan's runs, batch by batch over the workers; returns the merged result of all workers."""
        for _ in self.running(plan):
            pass
        return self.result

    def running(self, plan: Plan) -> Iterator[None]:
        """Make the plan's runs; `result` has the merged result of all workers when the iterator ends.

        Raises UsageError if a worker cannot boot the engine, or the plan's mutant does not fit it.
        """
        plan = replace(plan, workers=len(self.workers))
        self.result, self.started_at = Result(), time.monotonic()
        for index, worker in enumerate(self.workers):
            worker.give(replace(plan, first_run=RunIndex(plan.first_run.batch + index)))
        for received in self._messages():
            if received is None:
                yield
                continue
            index, message = received
            if isinstance(message, UsageError):
                raise message
            if isinstance(message, Booted):
                self._note_boot(message.seconds)
            elif isinstance(message, Result):
                self._deaths[index], self.workers[index].ended_run = 0, message.run
                self._add(index, message)
                if message.findings and plan.stop_on_first:
                    self._stop.value = 1
            elif isinstance(message, WorkerDeath):
                self._replace_dead(index, message, plan)
        self.result.seconds = time.monotonic() - self.started_at
        self._stop.value = 0

    def replay(self, log: OpLog, runs: int = RUNS, *, with_story: bool = False) -> Replays:
        """Run a log `runs` times in the first worker; if that dies, the log has failed with the kind of death.

        With `with_story` a failure that does not kill the worker has its story.  Raises UsageError if the log cannot
        be run, or is truncated and does not fail.
        """
        self.workers[0].give(ReplayTask(log, runs, with_story))
        replays: Replays | UsageError | None = None
        for received in self._messages():
            if received is None:
                continue
            index, message = received
            if isinstance(message, Replays | UsageError):
                replays = message
            elif isinstance(message, WorkerDeath):
                expected = log.header.expected or ""
                same = f"{expected}/".startswith(f"{message.name}/")
                verdict = Verdict.FAILED if same or not expected else Verdict.CHANGED
                replays = Replays(verdict, (expected if same else message.name,), 1, 1)
                self._replace(index)
        if isinstance(replays, UsageError):
            raise replays
        assert replays is not None, "a worker has ended its task without a message"
        return replays

    def report_findings(
        self, out: Path, budget: ShrinkBudget, *, seconds: float = inf
    ) -> Iterator[FindingReport | NotReproduced | None]:
        """Report each finding of the result, shrunk within its budget, and all of them within these seconds.

        A worker shrinks its finding in its share of the time that is left.  When the time is over, each further finding
        is repeated once, and not shrunk.  A finding that kills its worker is written unshrunk, and so is one that still
        waits GRACE_S after an interrupt.
        """
        until = time.monotonic() + seconds
        waiting = deque(self.result.findings.values())
        reported: set[int] = set()  # the workers that have reported their finding, and have not sent Done yet

        def give(worker: WorkerProcess) -> None:
            rounds = ceil(len(waiting) / len(self.workers))
            share_s = max(0.0, until - time.monotonic()) / rounds
            own = replace(budget, cpu_seconds=min(budget.cpu_seconds, share_s))
            worker.give(ReportTask(waiting.popleft(), out, own))

        for worker in self.workers[: len(waiting)]:
            give(worker)
        for received in self._messages():
            if time.monotonic() > until:
                self.stop()
            if received is None:
                yield None
                continue
            index, message = received
            task = self.workers[index].task
            if isinstance(message, FindingReport | NotReproduced):
                reported.add(index)
                yield message
            elif isinstance(message, UsageError) and isinstance(task, ReportTask):  # such as a fault of the target
                reported.add(index)
                yield write_unshrunk(task.finding, out, f"when the run is repeated: {message}")
            elif isinstance(message, WorkerDeath):
                if isinstance(task, ReportTask) and index not in reported:
                    note = f"when the run is repeated, the process {message.how}"
                    yield write_unshrunk(task.finding, out, note, is_confirmed=not self._is_overdue)
                self._replace(index)
            if isinstance(message, Done | WorkerDeath):
                reported.discard(index)
                if self._is_overdue:
                    note = "interrupted before it was repeated"
                    yield from (write_unshrunk(one, out, note, is_confirmed=False) for one in waiting)
                    waiting.clear()
                elif waiting:
                    give(self.workers[index])
        self._stop.value = 0

    # --- the processes

    def _messages(self) -> Iterator[tuple[int, Message] | None]:
        """The messages of the workers, until no worker has a task; a worker is idle once its Done is yielded.

        None is yielded when there is no further message yet.
        """
        while any(worker.task is not None for worker in self.workers):
            self._kill_hung_workers()
            self._on_progress(self)
            try:
                worker, message = self._mailbox.get(timeout=POLL_S)
            except Empty:
                yield None
                continue
            if worker in self.workers:  # a replaced worker is not
                if isinstance(message, Done):
                    worker.task = None
                yield self.workers.index(worker), message
            if self._mailbox.empty():
                yield None

    def _kill_hung_workers(self) -> None:
        """Kill workers that hang; after an interrupt, those that boot or have made no step for GRACE_S.

        Time in which this process itself was stopped does not count.
        """
        now = time.monotonic()
        elapsed_s, self._checked_at = min(now - self._checked_at, 5 * POLL_S), now
        for worker in self.workers:
            if worker.task is not None:
                bound = GRACE_S * worker.has_started if self._is_overdue else self._limits.hang_seconds
                worker.kill_if_hung(elapsed_s, hang_seconds=bound)

    @property
    def _is_overdue(self) -> bool:
        """Whether GRACE_S have passed since an interrupt whose tasks have not all ended."""
        since = self._interrupted_at
        return since is not None and bool(self._stop.value) and time.monotonic() - since > GRACE_S

    def _started(self, index: int) -> WorkerProcess:
        running = self.folder / f".worker-{os.getpid()}-{index}.running.oplog"
        return WorkerProcess(
            running,
            self._stop,
            lambda worker, message: self._mailbox.put((worker, message)),
            self._limits,
        )

    def _replace(self, index: int) -> None:
        self.workers[index].kill()
        self.workers[index] = self._started(index)

    # --- the result

    def _note_boot(self, seconds: float) -> None:
        if not self.result.boots:
            self.started_at = time.monotonic()
        self.result.boots.append(seconds)

    def _add(self, index: int, result: Result) -> None:
        self.result.add(result)
        self.tallies[index].add(result.tallies)

    def _replace_dead(self, index: int, death: WorkerDeath, plan: Plan) -> None:
        """Replace a dead worker: unless the tasks are stopped, its run is a finding, and the new worker continues.

        It continues with the next run, or with its next batch after DEATHS_OF_A_BATCH deaths without a finished run.
        After MAX_DEATHS it gets no further task.
        """
        worker, left_s = self.workers[index], plan.seconds - (time.monotonic() - self.started_at)
        next_run, had_task = worker.next_run, worker.task is not None
        self.result.replaced.append(f"worker {index} {death.how}")
        self._deaths[index] += had_task
        if had_task and not self._stop.value:
            self._add(index, self._result_of_death(index, death, plan))
            self._stop.value = plan.stop_on_first and bool(self.result.findings)
        self._replace(index)
        if not had_task or self._stop.value or left_s <= 0:
            return
        if self._deaths[index] >= MAX_DEATHS:
            note = f"worker {index} died {MAX_DEATHS} times without a finished run in between: not used any more"
            self.result.unexplained_deaths.append(note)
            return
        if self._deaths[index] % DEATHS_OF_A_BATCH == 0:
            next_run = RunIndex(next_run.batch + plan.workers)
        self.workers[index].give(replace(plan, first_run=next_run, seconds=left_s))

    def _result_of_death(self, index: int, death: WorkerDeath, plan: Plan) -> Result:
        """The result of a worker's death: the run that the worker had started has failed."""
        log = last_run(self.workers[index].running)
        if log is not None and (log.header.seed, log.header.run) == self.workers[index].ended_run:
            return Result()
        if log is None:
            if not self.workers[index].has_started:
                return Result()
            return Result(unexplained_deaths=[f"worker {index} {death.how} and left no log of a run"])
        last = name_of(log.ops[-1]) if log.ops else "start"
        fingerprint = f"{death.name}/{last}"
        summary = f"worker {index} {death.how} in op {len(log.ops)}, {last}"
        finding = Finding(
            fingerprint,
            log,
            time.monotonic() - self.started_at,
            save_unshrunk(log, fingerprint, plan),
            died="\n".join([summary, *death.stack.splitlines()]),
        )
        tallies = Tallies(runs=1, failed_runs=1, failures=Counter({fingerprint: 1}))
        return Result(tallies, {fingerprint: finding})


@contextmanager
def interruptible(groups: Sequence[WorkerGroup]) -> Iterator[None]:
    """The first SIGINT or SIGTERM interrupts the workers of all groups; the second raises KeyboardInterrupt."""

    def interrupt(*_: object) -> None:
        for group in groups:
            group.interrupt()

    before = {number: signal.signal(number, interrupt) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
