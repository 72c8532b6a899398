"""A campaign: batches of random runs from seeds, their counts and their findings."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from hypothesis import reject
from hypothesis.errors import FlakyFailure, Unsatisfiable

from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.changes import Changes
from swarden.harness.core.driver import Driver, Failure, KeptParts
from swarden.harness.core.errors import CheckFailed, EngineGone, InvalidConfig
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Op
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of, failure_like, log_of, replay
from swarden.harness.core.running_log import RunningLog
from swarden.harness.core.target import Launch, prepare
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.report.story import story_lines
from swarden.harness.search.corpus import CHANGED, CorpusPart, RareRun, Share, logs_of
from swarden.harness.search.cures import Deaths, Trials
from swarden.harness.search.findings import save_unshrunk
from swarden.harness.search.fixed_settings import Settings, have_settings, with_settings
from swarden.harness.search.result import Finding, Reached, Result
from swarden.harness.search.run import FIRST_RUN, Features, Run, RunIndex, StartTime, batch_seed
from swarden.harness.search.search import search, turns_of
from swarden.harness.search.shrink.shrink import measure
from swarden.harness.search.steering import CONFIRMATIONS, Steering
from swarden.harness.search.traffic.machine import Player, RunListener
from swarden.harness.search.traffic.profiles import Profile
from swarden.harness.search.verification import Cause, Verifier
from swarden.invariants.transition import Transition

FINISHED_EVERY = 4  # one run of so many finishes its requests at the end
NOT_KEPT = RunningLog(None)
KEPT = KeptParts(moments=1)  # the story of a finding comes from a run of its shrunk log


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The work of one worker of a campaign: every `workers`-th batch, starting with `first_run`.

    `engine` is "NAME" or "NAME==VERSION".  With `machine` None all machines run.  A machine that cannot run `model`
    runs the stand-in.  `max_runs` is the limit of the whole campaign; earlier batches use it up first.  Findings are
    saved in `out` as soon as they are found.  `corpus` is a folder of logs to run first, `part` such logs themselves;
    see corpus.py.  `known` are the shrunk logs of failures that are only counted, and that runs are steered away from.
    `settings` (as JSON) and `fixes` are in all runs; the settings may be those of a `launch` line.
    """

    engine: str
    profile: Profile
    seed: int = 0
    seconds: float = inf
    max_runs: int | None = None
    machine: str | None = None
    mutant: str | None = None
    stop_on_first: bool = False
    out: Path | None = None
    model: str = ""
    workers: int = 1
    first_run: RunIndex = FIRST_RUN
    corpus: Path | None = None
    part: CorpusPart | None = None
    known: Sequence[OpLog] = ()
    settings: Settings = field(default_factory=dict)
    launch: Launch = field(default_factory=Launch)
    fixes: tuple[str, ...] = ()
    deaths: Deaths = field(default_factory=dict)  # in trials of fixes
    change: Sequence[ChangedLine] = ()  # that is followed, and to which runs are steered

    @property
    def changes(self) -> Changes:
        return Changes(self.mutant, self.fixes)

    @property
    def keeps_runs(self) -> bool:
        """Whether runs with new features are added to the corpus; they must be healthy."""
        return (self.corpus, self.part) != (None, None) and self.mutant is None


class Worker(RunListener):
    """Makes the runs of its batches, and collects counts and findings.

    `report` gets the result of every run, and each Trial.  `is_stopped` ends the work before the next op and discards
    the current run, unless that has failed.  `heartbeat` is called with the next run, at least once an engine step.
    `running` is the log of the current run.
    """

    def __init__(
        self,
        plan: Plan,
        report: Callable[[Any], None],
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        heartbeat: Callable[[RunIndex], None] = lambda _: None,
        running: RunningLog = NOT_KEPT,
    ) -> None:
        self.plan = plan
        self.target = target_of(plan.engine)
        self.result = Result()
        self.next_run = plan.first_run
        self._report = report
        self._is_stopped = is_stopped
        self._heartbeat = heartbeat
        self._running = running
        trials = Trials(self._beat, report, plan.deaths, lambda: self._is_stopped())
        self._steering = Steering(Verifier(self.target, plan.fixes, trials), plan.known)
        start = time.monotonic()
        prepare(self.target)
        boot_s = time.monotonic() - start
        self._run = Run(Header(engine=plan.engine, configs=[{}]), self.target.watch(), Features())
        self._corpus = _share_of(plan)
        self._started = StartTime(time.monotonic(), time.process_time(), boot_s)

    @property
    def boot_seconds(self) -> float:
        """The time in which the worker booted the engine; it is not included in any other time."""
        return self._started.boot_s

    @property
    def is_over(self) -> bool:
        """Whether the time is used up, the first finding has ended the work, or the work was stopped."""
        is_found = self.plan.stop_on_first and bool(self.result.findings)
        return is_found or self._is_stopped() or time.monotonic() - self._started.wall_s > self.plan.seconds

    def work(self) -> Result:
        """Make batches until the time or the runs are used up, or the first finding ends the work.

        The work also ends if the engine has refused all draws of a batch for each machine.
        """
        self.next_run = RunIndex(self.plan.first_run.batch)
        num_unfit, num_turns = 0, len(turns_of(self.target, self.plan.machine))
        with self.plan.changes.planted(self.target), self._corpus.reach.counters.planted():
            while self._quota and not self.is_over and num_unfit < num_turns:
                self._run_batch()
                num_unfit += self.result.is_refused
                self.next_run = RunIndex(self.next_run.batch + self.plan.workers)
        self.result.seconds = time.monotonic() - self._started.wall_s
        return self.result

    @property
    def aborts_at_end(self) -> bool:
        """True in three of four runs: finishing the requests takes as many steps as all ops before, for little."""
        return (self._run.header.seed + self._run.header.run) % FINISHED_EVERY != 0

    def fix(self, machine: str, configs: Sequence[Any]) -> Sequence[Any]:
        """The configurations for the model and with the settings of the plan; others are drawn if they are refused."""
        try:
            steered = configs if self._corpus.running else self._corpus.reach.steered(self.target, configs)
            if model := self._model_of(machine):
                with blamed_on(self.target.name, "suited"):
                    steered = [self.target.suited(config, model) for config in steered]
            return with_settings(self.target, steered, self.plan.settings)
        except InvalidConfig as error:
            self._refuse(error)

    def _model_of(self, machine: str) -> str:
        return self.plan.model if self.plan.model in self.target.machines[machine].models else ""

    def _refuse(self, error: InvalidConfig) -> NoReturn:
        """Count and report a refused draw; another one follows."""
        self._send(Result(refused=Counter([str(error)])))
        self._beat()
        reject()

    def drive(self, header: Header) -> Driver | None:
        """The driver of a run; None before the first run of the plan, and after the last run of the batch.

        Rejects the simplest run, with which each search begins, except in the first search of a machine.  Also rejects
        a run whose engines cannot be built with the settings or the model of the plan, so that another configuration is
        drawn.
        """
        current, self.next_run = self.next_run, self.next_run._replace(run=self.next_run.run + 1)
        is_repeated = self._repeats_simplest_run
        if is_repeated and current.run == len(self._corpus.logs):
            reject()
        if current < self.plan.first_run or current.run >= len(self._corpus.logs) + is_repeated + self._quota:
            return None
        header = msgspec.structs.replace(
            header,
            seed=batch_seed(self.plan.seed, current.batch),
            run=current.run,
            mutant=self.plan.mutant,
            fixes=self.plan.fixes,
            model=self._model_of(header.machine),
        )
        self._run = Run(header, self.target.watch(), Features(), self._corpus.running)
        self._steering.begin_run(header)
        self._corpus.reach.counters.begin()
        self._beat()
        self._running.begin(header)
        try:
            return driver_of(header, keep=KEPT._replace(digests=self.target.is_repeatable), observe=self._observe)
        except EngineGone as error:  # a failure ends the work; its finding, or that of a known bug
            if not self.result.tallies.failed_runs:
                raise
            self._send(Result(gone=str(error)))
            self._is_stopped = lambda: True
            return None
        except InvalidConfig as error:
            if not self.plan.settings and not header.model:
                raise
            self.next_run = current
            self._running.end()
            self._refuse(error)

    def _observe(self, change: Transition) -> None:
        self._beat()
        with blamed_on(self.target.name, "watch"):
            self._run.watch.look(change)
        self._run.features.look(change)

    def before_op(self, op: Op) -> bool:
        if self._is_stopped() or self._steering.steer(op):
            return False
        self._running.note(op)
        self._run.features.begin(op)
        return True

    def leave_uncounted(self) -> None:
        self._run = self._run._replace(is_counted=False)

    def on_op(self, driver: Driver) -> None:
        self._beat()

    def on_end(self, header: Header, driver: Driver) -> None:
        """Count and report the run. An interrupted run that has not failed is discarded."""
        if self._is_stopped() and driver.failure is None:
            return
        self.on_op(driver)
        result = Result(run=(self._run.header.seed, self._run.header.run))
        self._run.add_to(result.tallies, driver, self.plan.machine)
        log, failure = log_of(self._run.header, driver), driver.failure
        coverage = self._corpus.reach.counters.coverage
        self._corpus.reach.note(log, coverage.ran, is_healthy=failure is None)
        result.coverage = coverage.beyond(self.result.coverage)
        finding = self._found(failure, log) if failure is not None else None
        if finding is not None:
            self._steering.end_run([finding.kind, *finding.together[1:]])
            result.tallies.count(finding)
            if not finding.cause.bugs:
                self._add(result, finding)
            elif finding.kind not in self.result.known:
                result.known[finding.kind] = finding
            is_rechecked = self._steering.times[finding.kind] < CONFIRMATIONS
        else:
            self._steering.end_run()
            self._keep(result, log)
            is_due = (self.result.tallies.runs + 1) % self.plan.profile.recheck_every == 0
            is_rechecked = is_due and not driver.counts.is_limited
        if is_rechecked and self._run.replays in ("", CHANGED) and self.target.is_repeatable:
            self._recheck(result, log)
        self._send(result)
        if finding is not None:
            small, result = self._steering.record(finding, self._beat), Result()
            if small is not None and small.failure is not None:
                smaller = self._finding(small.failure, small.log, finding.cause)
                self._add(result, smaller.changed(passed=sorted(small.passed)))
                self._send(result)
        self._running.end()

    def _send(self, result: Result) -> None:
        result.cpu_seconds = time.process_time() - self._started.cpu_s - self.result.cpu_seconds
        self.result.add(result)
        self._report(result)

    def on_fault(self, fault: TargetFault, driver: Driver | None) -> None:
        """Report a fault of the target; the log of the first run with it is kept."""
        if self._is_stopped():
            return
        result = Result(run=(self._run.header.seed, self._run.header.run))
        if fault.fingerprint not in self.result.target_faults:
            log = OpLog(self._run.header, [] if driver is None else list(driver.ops))
            path = save_unshrunk(log, fault.fingerprint, self.plan.out, self.plan.seed)
            result.target_faults[fault.fingerprint] = f"{fault}" + (f"; replay: swarden replay {path}" if path else "")
        self._send(result)
        self._running.end()

    @property
    def _quota(self) -> int:
        """The number of runs in this batch: a whole batch, or the rest of the campaign's `max_runs`."""
        whole, most = self.plan.profile.runs_per_batch, self.plan.max_runs
        return whole if most is None else max(0, min(whole, most - self.next_run.batch * whole))

    @property
    def _repeats_simplest_run(self) -> bool:
        """Whether an earlier batch was a search with the same machine, and so with the same simplest run."""
        turns, batch = turns_of(self.target, self.plan.machine), self.next_run.batch
        return turns.index(turns[batch % len(turns)]) < batch

    def _run_logs(self) -> None:
        batch = self.next_run.batch
        self._corpus.begin_batch(batch // self.plan.workers, batch_seed(self.plan.seed, batch))
        for name, log in self._corpus.logs:
            self._corpus.running = name
            player = Player(self)
            player.machine = log.header.machine
            try:
                player.begin([self.target.decode(config) for config in log.header.configs])
            except InvalidConfig:  # of another release of the engine
                continue
            player.apply_all(log.ops)
            player.end()
        self._corpus.running = ""

    def _keep(self, result: Result, log: OpLog) -> None:
        """Keep a healthy run for the corpus if it has new features."""
        if self._run.replays not in ("", CHANGED):
            result.replayed.add(self._run.replays)
        result.reached = Reached(self._run.features.kinds() - self.result.reached.kinds)
        if self.plan.keeps_runs:
            features = self._run.features.hashes()
            if self._corpus.has_new(features):
                result.rare.append(RareRun(log, features, result.tallies.steps))

    def _run_batch(self) -> None:
        turns, batch = turns_of(self.target, self.plan.machine), self.next_run.batch
        machine = turns[batch % len(turns)]
        self._corpus.reach.begin_batch(machine.machine)
        self._run_logs()
        from_seed, calls = batch_seed(self.plan.seed, batch), self.plan.profile.calls_of(batch, num_turns=len(turns))
        try:
            search(machine, self, from_seed=from_seed, max_runs=self._quota, calls=calls)
        except Unsatisfiable:  # of several hundred draws, none fits
            if not self.result.refused:
                raise
        except FlakyFailure as error:  # the error is in one run, and Hypothesis has repeated it with the next one
            raise error.exceptions[0] from None

    def _found(self, failure: Failure, log: OpLog) -> Finding:
        """The finding of a failed run; the log of a failure that known bugs hide has their fixes."""
        cause = self._steering.cause_of(failure, log)
        fixed = log.with_fixes(cause.fails_with)
        if not cause.revealed:
            return self._finding(failure, fixed, cause)
        other = failure_like(fixed, cause.revealed, self._beat)
        if other is None:
            return self._finding(failure, log, cause)
        return self._finding(other, fixed.as_regression(cause.revealed), cause)

    def _finding(self, failure: Failure, log: OpLog, cause: Cause) -> Finding:
        """The finding of a failure; its story is made when it is reported, unless it may not fail again then."""
        finding = Finding(
            log.header.expected or failure.fingerprint,
            log,
            time.process_time() - self._started.cpu_s,
            self.plan.engine,
            story=() if self.target.is_repeatable else story_lines(log.header, failure),
            recorded=str(failure.error.log) if isinstance(failure.error, CheckFailed) else "",
            cause=cause,
            together=failure.fingerprints,
        )
        return finding if cause.bugs else self._steering.named(finding, failure, self._beat)

    def _add(self, result: Result, finding: Finding) -> None:
        """Add a finding if its kind is new or its log smaller."""
        old = self.result.findings.get(finding.name)
        if old is None or measure(finding.log) < measure(old.log):
            path = save_unshrunk(finding.log, finding.name, self.plan.out, self.plan.seed)
            result.findings[finding.name] = finding.changed(path=path)

    def _beat(self, *_: object) -> None:
        self._heartbeat(self.next_run)

    def _recheck(self, result: Result, log: OpLog) -> None:
        """Run the ops again. A difference is nondeterminism, which outranks a violation; both logs are kept."""
        result.tallies.rechecked += 1
        name = f"batch {self.next_run.batch} run {log.header.run}"
        try:
            again = replay(log, self._beat)
        except TargetFault as fault:
            result.diverged.append(f"{name}: when it was repeated, {fault}")
            return
        if again.diverged is not None:
            paths = [
                save_unshrunk(run, f"nondeterministic {name} {part}", self.plan.out, self.plan.seed)
                for part, run in enumerate((log, again.again), 1)
            ]
            kept = f"; both logs are kept: {', '.join(map(str, paths))}" if all(paths) else ""
            result.diverged.append(f"{name}: {again.diverged}{kept}")


def _share_of(plan: Plan) -> Share:
    """The part of the corpus for the worker of this plan: every `workers`-th log."""
    if plan.part is not None:
        return Share(plan.part, plan.change)
    logs = logs_of(plan.corpus, plan.engine, plan.machine) if plan.corpus is not None else []
    target = target_of(plan.engine)
    logs = [log for log in logs if have_settings(target, log.log.header.configs, plan.settings)]
    return Share(CorpusPart(logs[plan.first_run.batch % plan.workers :: plan.workers]), plan.change)
