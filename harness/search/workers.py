"""The worker processes of a campaign: started, replaced when one dies or hangs, and interrupted."""

import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import ceil, inf
from pathlib import Path
from queue import Empty, SimpleQueue
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import STOPPING
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import name_of
from swarden.harness.core.process import FAULT, POLL_S, Death, Ended, Process, ProcessLimits, run_to_end
from swarden.harness.core.replay import RUNS, Replays, Verdict, replays_of
from swarden.harness.core.running_log import last_run
from swarden.harness.search.campaign import Plan
from swarden.harness.search.cures import Trial
from swarden.harness.search.findings import save_unshrunk, write_unshrunk
from swarden.harness.search.fixed_settings import refusal
from swarden.harness.search.result import Finding, Result, Tallies
from swarden.harness.search.run import RunIndex
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.tasks import Block, make_runs, replay_log, report

GRACE_S = 10.0  # for a worker to end its step after an interrupt
DEATHS_OF_A_BATCH = 3  # of one worker without a finished run; then the worker skips to its next batch
MAX_DEATHS = 3 * DEATHS_OF_A_BATCH  # then the worker is not used any more


@dataclass
class _Past:
    """The past of the workers: their `deaths` since their last finished run, and the last run of each with a result.

    `trials` has the last trial of each worker; `in_trials` those that have ended a process.
    """

    deaths: Counter[int] = field(default_factory=Counter)
    ended_runs: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    trials: dict[int, Trial] = field(default_factory=dict)
    in_trials: dict[frozenset[str], dict[str, str]] = field(default_factory=dict)


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
        self.workers: list[Process] = []
        self.started_at = time.monotonic()  # once a worker has booted its engine, the end of that boot
        self.folder = Path(mkdtemp(prefix="swarden-")) if folder is None else folder
        self._limits = ProcessLimits(hang_seconds, memory_bytes, is_folder_temporary=folder is None)
        self._on_progress = on_progress
        self._is_stopped = False
        self._mailbox: SimpleQueue[tuple[Process, Any]] = SimpleQueue()
        self._past = _Past()
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
        self._is_stopped = True
        for worker in self.workers:
            worker.stop()

    def _go_on(self) -> None:
        self._is_stopped = False
        for worker in self.workers:
            worker.go_on()

    @property
    def shrinking(self) -> Iterator[Finding]:
        """The findings that workers are shrinking now."""
        tasks = (worker.task for worker in self.workers)
        return (task.arguments[0] for task in tasks if task is not None and task.function is report)

    def run(self, plan: Plan, is_over: Callable[[Result], bool] = lambda _: False) -> Result:
        """Make the plan's runs, batch by batch over the workers, until `is_over`; returns their merged result."""
        for _ in self.running(plan):
            if is_over(self.result):
                self.stop()
        return self.result

    def running(self, plan: Plan) -> Iterator[None]:
        """Make the plan's runs; `result` has the merged result of all workers when the iterator ends.

        Raises UsageError if a worker cannot boot the engine, or the plan's mutant does not fit it, or if the
        engine refuses all draws.
        """
        plan = replace(plan, workers=len(self.workers))
        self.result, self.started_at = Result(), time.monotonic()
        self._past.in_trials.clear()
        for index in range(len(self.workers)):
            self._give_runs(index, replace(plan, first_run=RunIndex(plan.first_run.batch + index)))
        for received in self._messages():
            if received is None:
                yield
                continue
            index, message = received
            if isinstance(message, Result):
                self._add(index, message)
                if message.findings and plan.stop_on_first:
                    self.stop()
            elif isinstance(message, Death):
                self._replace_dead(index, message, plan)
            elif isinstance(message.result, UsageError):
                raise message.result
        if self.result.is_refused and not self._is_stopped:
            raise refusal(self.result.refused, plan.settings, plan.model, plan.launch.text)
        self.result.seconds = time.monotonic() - self.started_at
        self._go_on()

    def replay(self, log: OpLog, runs: int = RUNS, *, with_story: bool = False) -> Replays:
        """Run a log as `replaying` does."""
        return run_to_end(self.replaying(log, runs, with_story=with_story))

    def replaying(
        self, log: OpLog, runs: int = RUNS, *, with_story: bool = False, block: Block = nullcontext
    ) -> Generator[None, None, Replays]:
        """Run a log `runs` times in the first worker; if that dies, the log has failed with the kind of death.

        With `with_story` a failure that does not kill the worker has its story.  The runs are within `block`.  The
        iterator returns the replays.  Raises UsageError if the log cannot be run, or is truncated and does not fail.
        """
        result = yield from self.calling(replay_log, log, runs, with_story, block)
        return replays_of(result, log) if isinstance(result, Death) else result

    def calling(self, function: Callable[..., Any], *arguments: Any) -> Generator[None, None, Any]:
        """An iterator whose result is that of a task in the first worker, or the worker's Death."""
        self.workers[0].give(function, *arguments)
        result: Any = None
        for received in self._messages():
            if received is None:
                yield
                continue
            index, message = received
            if isinstance(message, Ended):
                result = message.result
            elif isinstance(message, Death):
                result = message
                self._replace(index)
        if isinstance(result, UsageError):
            raise result
        return result

    def report(
        self, findings: Iterable[Finding], out: Path, budget: ShrinkBudget, *, seconds: float = inf
    ) -> list[Finding]:
        """Report these findings, as `report_findings` does, in place of an earlier result."""
        self.result = Result(findings={finding.name: finding for finding in findings})
        return [finding for finding in self.report_findings(out, budget, seconds=seconds) if finding is not None]

    def report_findings(self, out: Path, budget: ShrinkBudget, *, seconds: float = inf) -> Iterator[Finding | None]:
        """Report each finding of the result, shrunk within its budget, and all of them within these seconds.

        A worker shrinks its finding in its share of the time that is left; when the time is over, each further finding
        is only repeated once. A finding that kills its worker is written with its smallest log so far, and so is one
        that still waits GRACE_S after an interrupt. If the worker died with a fix on trial, the finding is reported
        without that trial, and the crash with the fix is a finding of its own.
        """
        until = time.monotonic() + seconds
        waiting = deque(self.result.findings.values())
        smallest: dict[int, Finding] = {}  # by worker, its finding with the smallest log so far

        def give(index: int) -> None:
            rounds = ceil(len(waiting) / len(self.workers))
            share_s = max(0.0, until - time.monotonic()) / rounds
            own = replace(budget, cpu_seconds=min(budget.cpu_seconds, share_s))
            smallest[index] = waiting.popleft()
            self.workers[index].give(report, smallest[index], out, own, dict(self._past.in_trials))

        for index in range(min(len(self.workers), len(waiting))):
            give(index)
        for received in self._messages():
            if time.monotonic() > until:
                self.stop()
            if received is None:
                yield None
                continue
            index, message = received
            if isinstance(message, Finding):
                smallest[index] = message
                continue
            ended = message.result if isinstance(message, Ended) else message
            trial = self._died_in_trial(index, ended) if isinstance(ended, Death) else None
            if isinstance(ended, Death):
                self._replace(index)
            finding = smallest.pop(index, None)
            if finding is not None and trial is not None:
                crashes = self._crash_with_fix(index, ended, trial, finding.engine)
                new = [crash for crash in crashes if self.result.findings.setdefault(crash.fingerprint, crash) is crash]
                waiting.extend([finding, *new])
            elif finding is not None:
                yield self._report_of(finding, ended, out)
            if self._is_overdue:
                note = "interrupted before it was repeated"
                yield from (write_unshrunk(each, out, note) for each in waiting)
                waiting.clear()
            elif waiting:
                give(index)
        self._go_on()

    def _report_of(self, finding: Finding, ended: Finding | UsageError | Death, out: Path) -> Finding:
        """The report of a finding whose task has ended so; the finding has its smallest log so far."""
        if isinstance(ended, Finding):
            return ended
        how = f", the process {ended.how}" if isinstance(ended, Death) else f": {ended}"  # such as a target's fault
        report = write_unshrunk(finding, out, f"when the run is repeated{how}")
        is_killed = isinstance(ended, Death) and self._is_overdue
        return report if is_killed else report.repeated(Verdict.FAILED, 1, 1)

    # --- the processes

    def _messages(self) -> Iterator[tuple[int, Any] | None]:
        """The messages of the workers, until no worker has a task; a worker keeps its task while its Ended is handled.

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
            if isinstance(message, Trial) and worker in self.workers:
                self._past.trials[self.workers.index(worker)] = message
            elif worker in self.workers:  # a replaced worker is not
                task = worker.task
                yield self.workers.index(worker), message
                if isinstance(message, Ended) and worker.task is task:
                    worker.task = None
            if self._mailbox.empty():
                yield None

    def _kill_hung_workers(self) -> None:
        """Kill workers that hang; after an interrupt, those that boot or have made no step for GRACE_S."""
        for worker in self.workers:
            worker.kill_if_hung(GRACE_S * worker.has_started if self._is_overdue else self._limits.hang_seconds)

    @property
    def _is_overdue(self) -> bool:
        """Whether GRACE_S have passed since an interrupt whose tasks have not all ended."""
        since = self._interrupted_at
        return since is not None and self._is_stopped and time.monotonic() - since > GRACE_S

    def _started(self, index: int) -> Process:
        worker = Process(self.folder / f".worker-{os.getpid()}-{index}.running.oplog", self._limits)
        if self._is_stopped:
            worker.stop()
        worker.listen(lambda process, message: self._mailbox.put((process, message)))
        return worker

    def _give_runs(self, index: int, plan: Plan) -> None:
        self.workers[index].give(make_runs, replace(plan, deaths=dict(self._past.in_trials)), place=plan.first_run)

    def _replace(self, index: int) -> None:
        self.workers[index].kill()
        self.workers[index] = self._started(index)
        self._past.trials.pop(index, None)

    def _died_in_trial(self, index: int, death: Death) -> Trial | None:
        """The trial of fixes in which a worker has died, if it was in one; it is not made again."""
        trial = self._past.trials.get(index, Trial())
        if trial.log is None:
            return None
        if not self._is_overdue:
            self._past.in_trials.setdefault(frozenset(trial.fixes), {})[trial.log.key] = death.how
        return trial

    # --- the result

    def _add(self, index: int, result: Result) -> None:
        """Add the result of a run, of the boot of a worker, or of its death."""
        if result.run is not None:
            self._past.deaths[index], self._past.ended_runs[index] = 0, result.run
        elif result.boots and not self.result.boots:
            self.started_at = time.monotonic()
        self.result.add(result)
        self.tallies[index].add(result.tallies)

    def _replace_dead(self, index: int, death: Death, plan: Plan) -> None:
        """Replace a dead worker: unless the tasks are stopped, its run is a finding, and the new worker continues.

        It continues with the next run, or with its next batch after DEATHS_OF_A_BATCH deaths without a finished run.
        After MAX_DEATHS it gets no further task.
        """
        worker, left_s = self.workers[index], plan.seconds - (time.monotonic() - self.started_at)
        next_run, had_task = RunIndex(*worker.place), worker.task is not None
        trial = self._died_in_trial(index, death)
        where = f" with the fix of {' and '.join(trial.fixes)}" if trial is not None else ""
        self.result.replaced.append(f"worker {index} {death.how}{where}")
        self._past.deaths[index] += had_task
        if had_task and (trial is not None or not self._is_stopped):  # in a trial the run has failed before
            self._add(index, self._result_of_death(index, death, plan, trial))
            if plan.stop_on_first and self.result.findings:
                self.stop()
        self._replace(index)
        if not had_task or self._is_stopped or left_s <= 0:
            return
        if self._past.deaths[index] >= MAX_DEATHS:
            note = f"worker {index} died {MAX_DEATHS} times without a finished run in between: not used any more"
            self.result.unexplained_deaths.append(note)
            return
        if self._past.deaths[index] % DEATHS_OF_A_BATCH == 0:
            next_run = RunIndex(next_run.batch + plan.workers)
        self._give_runs(index, replace(plan, first_run=next_run, seconds=left_s))

    def _result_of_death(self, index: int, death: Death, plan: Plan, trial: Trial | None) -> Result:
        """The result of a worker's death: the run that the worker had started has failed.

        A run that has failed before the worker died in the trial of a fix keeps its failure; the crash with the fix is
        a finding, too.
        """
        log = last_run(self.workers[index].running or self.folder) if trial is None else trial.log
        has_ended = log is not None and (log.header.seed, log.header.run) == self._past.ended_runs.get(index)
        if has_ended and death.kind != FAULT:  # its finding, which was being shrunk, is repeated later
            return Result()
        if log is None:
            if not self.workers[index].has_started:
                return Result()
            return Result(unexplained_deaths=[f"worker {index} {death.how} and left no log of a run"])
        seconds = time.monotonic() - self.started_at
        if trial is not None:
            failures = [Finding(trial.fingerprint, log, seconds, plan.engine)]
            failures += self._crash_with_fix(index, death, trial, plan.engine)
        else:
            last = name_of(log.ops[-1]) if log.ops else "start"
            died = _described(f"worker {index} {death.how} in op {len(log.ops)}, {last}", death)
            failures = [Finding(f"{death.name}/{last}", log, seconds, plan.engine, died=died)]
        findings = {}
        for failure in failures:
            path = save_unshrunk(failure.log, failure.fingerprint, plan.out, plan.seed)
            findings[failure.fingerprint] = failure.changed(path=path)
        return Result(Tallies(runs=1, failed_runs=1, failures=Counter([*findings])), findings)

    def _crash_with_fix(self, index: int, death: Death, trial: Trial, engine: str) -> list[Finding]:
        """The finding that a log kills its process with the fix of a known bug; none if the process was interrupted."""
        if trial.log is None or self._is_overdue:
            return []
        summary = (
            f"worker {index} {death.how} with the fix of {' and '.join(trial.fixes)}: {trial.fingerprint} without it"
        )
        name = f"{death.name}/with {' and '.join(trial.fixes)}"  # other fixes may lead to another crash
        crash = Finding(name, trial.log.with_fixes(trial.fixes), time.monotonic() - self.started_at, engine)
        return [crash.changed(died=_described(summary, death))]


def _described(summary: str, death: Death) -> str:
    return "\n".join([summary, *death.stack.splitlines()])


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
