"""A campaign: batches of random runs from seeds, what they found, and whether its green was earned."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.core.driver import STUCK, Driver, Failure, Kept
from harness.core.fingerprint import slug
from harness.core.oplog import Header, OpLog, OpLogError
from harness.core.ops import Op
from harness.core.registry import target_of
from harness.core.replay import driver_of, log_of, planted, replay
from harness.core.running_log import RunningLog
from harness.core.target import ENGINE, Target, Watch
from harness.search.known import CONFIRMATIONS, KnownFailures
from harness.search.machine import Listener, Machine
from harness.search.profiles import Profile
from invariants.transition import Transition


class Place(NamedTuple):
    """A run of a campaign: its batch, and its ordinal there."""

    batch: int
    run: int = 0


FIRST = Place(0)
KEPT = Kept(moments=1)  # the story of a finding is told by a run of its shrunk log


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker of a campaign is to do: every `workers`-th batch, from the run at `begin` on.

    `engine` is "NAME" or "NAME==VERSION".  Machines that can run `model`, or else the stand-in.
    `max_runs` holds for the campaign, whose batches share them out in their order.  Findings are kept
    in `out` as soon as they are met.
    """

    engine: str
    profile: Profile
    seed: int
    seconds: float
    max_runs: int | None = None
    machine: str | None = None
    mutant: str | None = None
    stop_on_first: bool = False
    out: Path | None = None
    model: str = ""
    workers: int = 1
    begin: Place = FIRST


@dataclass
class Finding:
    """The first failure of its fingerprint, as it was met; `path` is where it was written at once.

    `died` tells of a worker process that ended or stopped answering within the run; empty for all other findings.
    """

    fingerprint: str
    log: OpLog
    found_cpu_seconds: float
    path: Path | None = None
    died: str = ""

    @property
    def invariant(self) -> str:
        """The invariant or error that the fingerprint names first."""
        return self.fingerprint.split("/")[0]


@dataclass
class Tallies:
    """What all runs of a campaign did, added up; `probes` counts runs, the rest occurrences, `fired` by fault."""

    runs: int = 0
    steps: int = 0
    failed_runs: int = 0
    rechecked: int = 0
    stuck: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    noops: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    not_applicable: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    machine_runs: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tallies") -> None:
        for name in ("runs", "steps", "failed_runs", "rechecked", "stuck"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("ops", "noops", "evaluated", "not_applicable", "probes", "fired", "machine_runs"):
            getattr(self, name).update(getattr(other, name))


@dataclass
class Result:
    """What came of one run, or of all runs of a worker or a campaign."""

    tallies: Tallies = field(default_factory=Tallies)
    findings: dict[str, Finding] = field(default_factory=dict)
    diverged: list[str] = field(default_factory=list)
    mishaps: list[str] = field(default_factory=list)  # deaths of workers that no run can be blamed for
    seconds: float = 0.0
    run: tuple[int, int] | None = None  # the seed and the ordinal of a run, of which alone this is the result

    def add(self, other: "Result") -> None:
        """Sum up counts; of equal findings the one that took less CPU time stays."""
        self.tallies.add(other.tallies)
        self.diverged += other.diverged
        self.mishaps += other.mishaps
        for finding in other.findings.values():
            known = self.findings.setdefault(finding.fingerprint, finding)
            if finding.found_cpu_seconds < known.found_cpu_seconds:
                self.findings[finding.fingerprint] = finding


class Began(NamedTuple):
    """When a worker began, by the clock on the wall and by its CPU time."""

    wall_s: float
    cpu_s: float


class Run(NamedTuple):
    """The current run: its header, and the probes that it has seen."""

    header: Header
    watch: Watch


class Worker(Listener):
    """Runs its batches one after the other, hears how each run ends, and keeps what matters.

    `tell` gets the result of every run; `is_enough` ends the work at the next op, and discards the run that it is of.
    `beat` is called with the worker's place, at least once an engine step; `running` keeps the ops of the current run.
    """

    def __init__(
        self,
        plan: Plan,
        tell: Callable[[Result], None],
        is_enough: Callable[[], bool] = lambda: False,
        *,
        beat: Callable[[Place], None] = lambda _: None,
        running: RunningLog | None = None,
    ) -> None:
        self.plan = plan
        self.target = target_of(plan.engine)
        self.result = Result()
        self.place = plan.begin
        self._tell = tell
        self._is_enough = is_enough
        self._beat = beat
        self._running = running
        self._known = KnownFailures()
        self.target.prepare_process()
        self._run = Run(Header(engine=plan.engine, configs=[{}]), self.target.watch())
        self._began = Began(time.monotonic(), time.process_time())
        self._is_stopped = False

    @property
    def is_over(self) -> bool:
        return self._is_stopped or self._is_enough()

    def work(self) -> Result:
        """Batches until the time or the runs are used up, or the first finding where that is enough."""
        self.place = Place(self.plan.begin.batch)
        with planted(self.target, self.plan.mutant):
            while self._quota and not self.is_over:
                self._run_batch()

                self.place = Place(self.place.batch + self.plan.workers)
        self.result.seconds = time.monotonic() - self._began.wall_s
        return self.result

    def drive(self, header: Header) -> Driver | None:
        """None for the runs before the first of the plan, and beyond the last of the batch."""
        here, self.place = self.place, self.place._replace(run=self.place.run + 1)
        if here < self.plan.begin or here.run >= self._quota:
            return None
        header = msgspec.structs.replace(
            header,
            seed=batch_seed(self.plan.seed, here.batch),
            run=here.run,
            mutant=self.plan.mutant,
            model=self.plan.model if self.plan.model in self.target.machines[header.machine].models else "",
        )
        self._run = Run(header, self.target.watch())
        self._known.begin_run(header)
        self._beat(self.place)
        if self._running is not None:
            self._running.begin(header)
        return driver_of(header, keep=KEPT, tell=self._look)

    def _look(self, change: Transition) -> None:
        self._beat(self.place)
        self._run.watch.look(change)

    def before_op(self, op: Op) -> bool:
        if self._is_enough() or self._known.leaves_out(op):
            return False
        if self._running is not None:
            self._running.note(op)
        return True

    def on_op(self, driver: Driver) -> None:
        self._beat(self.place)
        found = driver.failure is not None and self.plan.stop_on_first
        self._is_stopped |= found or time.monotonic() - self._began.wall_s > self.plan.seconds

    def on_end(self, header: Header, driver: Driver) -> None:
        """An interrupted run is discarded, unless it had failed before."""
        if self._is_enough() and driver.failure is None:
            return
        self.on_op(driver)
        told = Result(run=(self._run.header.seed, self._run.header.run))
        self._note(told.tallies, driver)
        log = log_of(self._run.header, driver)
        self._known.end_run(driver.failure)
        if driver.failure is not None:
            self._known.meet(driver.failure, log, lambda: self._beat(self.place))
            self._keep(told, driver.failure, log)
            is_rechecked = self._known.times[driver.failure.fingerprint] <= CONFIRMATIONS
        else:
            is_rechecked = (self.result.tallies.runs + 1) % self.plan.profile.recheck_every == 0
        if is_rechecked:
            self._recheck(told, log)
        self.result.add(told)
        self._tell(told)
        if self._running is not None:
            self._running.end()

    @property
    def _quota(self) -> int:
        """The runs of this batch: a whole one, or what those before it leave of the campaign's."""
        whole, most = self.plan.profile.runs_per_batch, self.plan.max_runs
        return whole if most is None else max(0, min(whole, most - self.place.batch * whole))

    def _run_batch(self) -> None:
        turns, batch = turns_of(self.target, self.plan.machine), self.place.batch
        batch_settings = settings(
            max_examples=self._quota,
            stateful_step_count=self.plan.profile.ops_of(batch, num_turns=len(turns)),
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        search = seed(batch_seed(self.plan.seed, batch))(partial(turns[batch % len(turns)], self))
        run_state_machine_as_test(search, settings=batch_settings)  # type: ignore[arg-type]  # any factory will do

    def _note(self, tallies: Tallies, driver: Driver) -> None:
        counts, machine = driver.counts, self._run.header.machine
        tallies.runs = 1
        tallies.steps = counts.engine_steps
        tallies.failed_runs = int(driver.failure is not None)
        tallies.stuck = int(driver.failure is not None and driver.failure.fingerprint == STUCK)
        tallies.ops.update(counts.ops)
        tallies.noops.update(counts.noops)
        for name, judged in counts.tally.items():
            tallies.evaluated[name] += judged.evaluated
            if machine in (ENGINE, self.plan.machine):  # a part of an engine has less to judge by nature
                tallies.not_applicable[name] += judged.not_applicable
        probes_of = {name: spec.probes for name, spec in self.target.machines.items()}
        others = {name for other, probes in probes_of.items() if other != machine for name in probes}
        tallies.probes.update(self._run.watch.seen - others)
        tallies.fired.update(self._run.watch.fired)
        tallies.machine_runs[machine] = 1

    def _keep(self, told: Result, failure: Failure, log: OpLog) -> None:
        if failure.fingerprint not in self.result.findings:
            told.findings[failure.fingerprint] = Finding(
                failure.fingerprint,
                log,
                time.process_time() - self._began.cpu_s,
                kept_as_met(log, failure.fingerprint, self.plan),
            )

    def _recheck(self, told: Result, log: OpLog) -> None:
        """Run the ops again: whatever differs is nondeterminism, and worse than a violation.  Both logs are kept."""
        told.tallies.rechecked += 1
        again = replay(log, lambda *_: self._beat(self.place))
        if again.diverged is not None:
            name = f"batch {self.place.batch} run {log.header.run}"
            paths = [
                kept_as_met(one, f"nondeterministic {name} {part}", self.plan)
                for part, one in enumerate((log, again.again), 1)
            ]
            kept = f"; both logs are kept: {', '.join(map(str, paths))}" if all(paths) else ""
            told.diverged.append(f"{name}: {again.diverged}{kept}")


def kept_as_met(log: OpLog, name: str, plan: Plan) -> Path | None:
    """Write a log that waits to be shrunk or read; of equal names the last stays.

    None where the plan keeps nothing or the place cannot be written: then the log is in memory alone.
    """
    if plan.out is None:
        return None
    path = plan.out / f"{slug(name)}-seed{plan.seed}.unshrunk.oplog"
    try:
        log.save(path, overwrite=True)
    except OpLogError:
        return None
    return path


def turns_of(target: Target, name: str | None) -> list[type[Machine]]:
    """The Hypothesis machines of the machine of that name, or all, in the order in which batches go to them."""
    return [machine for machine in map(_loaded, target.traffic) if name in (None, machine.machine)]


@cache
def _loaded(place: str) -> type[Machine]:
    """The class of "module:Class"."""
    machine: type[Machine] = EntryPoint("", place, "").load()
    assert issubclass(machine, Machine), f"{place} is not a Machine"
    return machine


def batch_seed(campaign_seed: int, batch: int) -> int:
    """The seed of a batch: the same for any number of workers."""
    name = f"{campaign_seed}/{batch}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest())
