"""The crew of a campaign: its worker processes, which it replaces where they die or hang, and interrupts."""

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue

from harness.core.ops import name_of
from harness.core.running_log import last_run
from harness.search.campaign import Finding, Place, Plan, Result, Tallies, kept_as_met
from harness.search.findings import Settled, as_met
from harness.search.shrink import Budget
from harness.search.worker_process import HANDLED, Died, Done, Message, NotSettled, Settling, WorkerProcess

LOOK_S = 0.2  # between two looks at the workers
GRACE_S = 10.0  # for a worker to end its op when it is interrupted
DEATHS_OF_A_BATCH = 3  # of one worker with no run in between; then it goes on with its next batch
MAX_DEATHS = 3 * DEATHS_OF_A_BATCH  # then it is not replaced any more


class Crew:
    """The workers of a campaign, one process each, for the length of a `with`.

    The first `interrupt` ends all tasks early: runs under way are discarded, findings are kept.  `tell` is called
    after each message and at least every LOOK_S.
    """

    def __init__(self, size: int, folder: Path, *, hang_seconds: float, tell: Callable[["Crew"], None]) -> None:
        self.result = Result()
        self.tallies = [Tallies() for _ in range(size)]  # of each worker
        self.workers: list[WorkerProcess] = []
        self.began = time.monotonic()
        self._folder = folder
        self._hang_seconds = hang_seconds
        self._tell = tell
        self._stop = get_context("spawn").RawValue("b", 0)
        self._mailbox: SimpleQueue[tuple[WorkerProcess, Message]] = SimpleQueue()
        self._deaths: Counter[int] = Counter()  # of each worker since its last run
        self._looked_at = self.began
        self._interrupted_at: float | None = None

    def __enter__(self) -> "Crew":
        self.workers = [self._started(index) for index in range(len(self.tallies))]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.kill()

    @property
    def is_interrupted(self) -> bool:
        return self._interrupted_at is not None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """SIGINT and SIGTERM interrupt the crew; the second of them raises KeyboardInterrupt."""
        before = {number: signal.signal(number, lambda *_: self._interrupt()) for number in HANDLED}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, plan: Plan) -> Result:
        """The plan's runs, shared out by batches; the merged result of all workers."""
        plan = replace(plan, workers=len(self.workers))
        for index, worker in enumerate(self.workers):
            worker.give(replace(plan, begin=Place(index)))
        for index, message in self._messages():
            if isinstance(message, Result):
                self._deaths[index], self.workers[index].ended_run = 0, message.run
                self._add(index, message)
                if message.findings and plan.stop_on_first:
                    self._stop.value = 1
            elif isinstance(message, Died):
                self._go_on_after(index, message, plan)
        self.result.seconds = time.monotonic() - self.began
        self._stop.value = 0
        return self.result

    def settle(self, out: Path, budget: Budget) -> Iterator[Settled | NotSettled]:
        """Every finding of the result, as it is settled; one that takes its worker down is kept as it was met."""
        waiting = deque(Settling(finding, out, budget) for finding in self.result.findings.values())
        settled: set[int] = set()  # the workers whose task is settled, but not done
        for worker in self.workers[: len(waiting)]:
            worker.give(waiting.popleft())
        for index, message in self._messages():
            task = self.workers[index].task
            if isinstance(message, Settled | NotSettled):
                settled.add(index)
                yield message
            elif isinstance(message, Died):
                if isinstance(task, Settling) and index not in settled:
                    yield as_met(task.finding, out, f"when the run is repeated, the process {message.how}")
                self._replace(index)
            if isinstance(message, Done | Died):
                settled.discard(index)
                if self._is_late:
                    yield from (as_met(left.finding, out, "interrupted before it was repeated") for left in waiting)
                    waiting.clear()
                elif waiting:
                    self.workers[index].give(waiting.popleft())

    # --- the processes

    def _messages(self) -> Iterator[tuple[int, Message]]:
        """What the workers send, until none has a task; a worker is idle again when its Done is told."""
        while any(worker.task is not None for worker in self.workers):
            self._look()
            self._tell(self)
            try:
                worker, message = self._mailbox.get(timeout=LOOK_S)
            except Empty:
                continue
            if worker in self.workers:  # and was not replaced since
                if isinstance(message, Done):
                    worker.task = None
                yield self.workers.index(worker), message

    def _look(self) -> None:
        """Kill workers that hang, or that do not end when they are interrupted.

        Time in which this process was stopped itself does not count.
        """
        now = time.monotonic()
        elapsed_s, self._looked_at = min(now - self._looked_at, 5 * LOOK_S), now
        for worker in self.workers:
            if worker.task is not None:
                worker.look(elapsed_s, hang_seconds=0.0 if self._is_late else self._hang_seconds)

    @property
    def _is_late(self) -> bool:
        """Whether tasks go on long after the interrupt that was to end them."""
        asked = self._interrupted_at
        return asked is not None and bool(self._stop.value) and time.monotonic() - asked > GRACE_S

    def _started(self, index: int) -> WorkerProcess:
        running = self._folder / f".worker-{os.getpid()}-{index}.running.oplog"
        return WorkerProcess(running, self._stop, lambda worker, message: self._mailbox.put((worker, message)))

    def _replace(self, index: int) -> None:
        self.workers[index].kill()
        self.workers[index] = self._started(index)

    def _interrupt(self) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self._interrupted_at = time.monotonic()
        self._stop.value = 1

    # --- the result

    def _add(self, index: int, told: Result) -> None:
        self.result.add(told)
        self.tallies[index].add(told.tallies)

    def _go_on_after(self, index: int, died: Died, plan: Plan) -> None:
        """A worker has died: its run is a finding, and a new worker goes on behind it.

        Where one run after the other takes the worker down, it goes on with its next batch, and in the end not at all.
        """
        worker, left_s = self.workers[index], plan.seconds - (time.monotonic() - self.began)
        place, had_task = worker.place, worker.task is not None
        self._deaths[index] += had_task
        if had_task and not self._stop.value:
            self._add(index, self._loss(index, died, plan))
            self._stop.value = plan.stop_on_first and bool(self.result.findings)
        self._replace(index)
        if not had_task or self._stop.value or left_s <= 0:
            return
        if self._deaths[index] >= MAX_DEATHS:
            self.result.mishaps.append(f"worker {index} died {MAX_DEATHS} times without a run in between: not replaced")
            return
        if self._deaths[index] % DEATHS_OF_A_BATCH == 0:
            place = Place(place.batch + plan.workers)
        self.workers[index].give(replace(plan, begin=place, seconds=left_s))

    def _loss(self, index: int, died: Died, plan: Plan) -> Result:
        """What the death of a worker says: the run that it had begun fails."""
        log = last_run(self.workers[index].running)
        if log is not None and (log.header.seed, log.header.run) == self.workers[index].ended_run:
            return Result()
        if log is None:
            if not self.workers[index].has_started:
                return Result()
            return Result(mishaps=[f"worker {index} {died.how}, in no run that was written ahead"])
        last = name_of(log.ops[-1]) if log.ops else "start"
        fingerprint = f"{died.name}/{last}"
        told = f"worker {index} {died.how} in op {len(log.ops)}, {last}"
        finding = Finding(
            fingerprint,
            log,
            time.monotonic() - self.began,
            kept_as_met(log, fingerprint, plan),
            died="\n".join([told, *died.stack.splitlines()]),
        )
        return Result(Tallies(runs=1, failed_runs=1), {fingerprint: finding})
