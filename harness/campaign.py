"""A campaign: batches of random runs from seeds, what they found, and whether its green was earned."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from engine_under_test.config import EngineConfig
from fakes.catalog import FAULTS
from harness.driver import STUCK, Driver, Failure
from harness.engines.registry import RUN_MODELS
from harness.fingerprint import slug
from harness.machines.base import Machine
from harness.machines.engine import EngineTraffic, WeightedEngineTraffic
from harness.machines.host import HostTraffic
from harness.machines.ledger import LedgerTraffic
from harness.machines.pd import PairTraffic
from harness.machines.tree import TreeTraffic
from harness.oplog import Header, OpLog
from harness.probes import PROBES_OF
from harness.profiles import MAX_NOOP_SHARE, Profile
from harness.replay import log_of, planted, replay
from invariants.catalog import CATALOG

# In which order batches go to machines: mostly whole engines, half of them with swarm and half without.
ROTATION: tuple[type[Machine], ...] = (
    EngineTraffic,
    WeightedEngineTraffic,
    EngineTraffic,
    WeightedEngineTraffic,
    LedgerTraffic,
    EngineTraffic,
    WeightedEngineTraffic,
    EngineTraffic,
    WeightedEngineTraffic,
    TreeTraffic,
    EngineTraffic,
    PairTraffic,
    WeightedEngineTraffic,
    HostTraffic,
    PairTraffic,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one worker of a campaign is to do: every `workers`-th batch, from batch `worker` on.

    Whole engines run `model`, or the stand-in where none is named.
    `max_runs` holds for the campaign, whose batches share them out in their order.  Findings are kept
    in `out` as soon as they are met.
    """

    profile: Profile
    seed: int
    seconds: float
    max_runs: int | None = None
    machine: str | None = None
    mutant: str | None = None
    stop_on_first: bool = False
    out: Path | None = None
    model: str = ""
    worker: int = 0
    workers: int = 1


@dataclass
class Finding:
    """The first failure of its fingerprint, as it was met; `path` is where it was written at once."""

    fingerprint: str
    invariant: str
    log: OpLog
    engine_steps: int
    found_cpu_seconds: float
    path: Path | None = None


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
    """What one worker brings home."""

    tallies: Tallies = field(default_factory=Tallies)
    findings: dict[str, Finding] = field(default_factory=dict)
    diverged: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Worker:
    """Runs its batches one after the other, hears how each run ends, and keeps what matters.

    `tell` hears of progress after every run; `is_enough` says whether others have found what is looked for.
    """

    def __init__(
        self, plan: Plan, tell: Callable[[Result], None], is_enough: Callable[[], bool] = lambda: False
    ) -> None:
        self.plan = plan
        self.result = Result()
        self._tell = tell
        self._is_enough = is_enough
        self._began = time.monotonic()
        self._began_cpu = time.process_time()
        self._batch = plan.worker
        self._runs_in_batch = 0
        self._is_stopped = False

    @property
    def model(self) -> str:
        return self.plan.model

    @property
    def is_over(self) -> bool:
        """Is the batch done, if not the campaign?"""
        return self._is_stopped or self._runs_in_batch >= self._quota

    def work(self) -> Result:
        """Batches until the time or the runs are used up, or the first finding where that is enough."""
        with planted(self.plan.mutant):
            while self._quota and not self._is_stopped:
                try:
                    self._run_batch()
                except KeyboardInterrupt:  # what was found so far is still shrunk and told
                    self._is_stopped = True
                self._batch, self._runs_in_batch = self._batch + self.plan.workers, 0
        self.result.seconds = time.monotonic() - self._began
        return self.result

    def on_op(self, driver: Driver) -> None:
        found = driver.failure is not None and self.plan.stop_on_first
        self._is_stopped |= found or time.monotonic() - self._began > self.plan.seconds

    def on_end(self, machine: str, configs: Sequence[EngineConfig], driver: Driver) -> None:
        self.on_op(driver)
        self._note(machine, driver)
        header = Header(
            machine=machine,
            engines=[{}],
            seed=batch_seed(self.plan.seed, self._batch),
            run=self._runs_in_batch,
            mutant=self.plan.mutant,
            model=self.model if machine in RUN_MODELS else "",
        )
        log = log_of(header, configs, driver)
        self._runs_in_batch += 1
        if driver.failure is not None:
            self._keep(driver.failure, log, driver)
        if driver.failure is not None or self.result.tallies.runs % self.plan.profile.recheck_every == 0:
            self._recheck(log)
        self._tell(self.result)
        self._is_stopped |= self._is_enough()

    @property
    def _quota(self) -> int:
        """The runs of this batch: a whole one, or what those before it leave of the campaign's."""
        whole, most = self.plan.profile.runs_per_batch, self.plan.max_runs
        return whole if most is None else max(0, min(whole, most - self._batch * whole))

    def _run_batch(self) -> None:
        turns = turns_of(self.plan.machine)
        batch_settings = settings(
            max_examples=self._quota,
            stateful_step_count=self.plan.profile.ops_of(self._batch, num_turns=len(turns)),
            database=None,
            deadline=None,
            derandomize=False,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        search = seed(batch_seed(self.plan.seed, self._batch))(partial(turns[self._batch % len(turns)], self))
        run_state_machine_as_test(search, settings=batch_settings)  # type: ignore[arg-type]  # any factory will do

    def _note(self, machine: str, driver: Driver) -> None:
        tallies, counts = self.result.tallies, driver.counts
        tallies.runs += 1
        tallies.steps += counts.engine_steps
        tallies.failed_runs += driver.failure is not None
        tallies.stuck += driver.failure is not None and driver.failure.fingerprint == STUCK
        tallies.ops.update(counts.ops)
        tallies.noops.update(counts.noops)
        for name, judged in counts.tally.items():
            tallies.evaluated[name] += judged.evaluated
            if machine in ("engine", self.plan.machine):  # a part of an engine has less to judge by nature
                tallies.not_applicable[name] += judged.not_applicable
        others = {name for other, probes in PROBES_OF.items() if other != machine for name in probes}
        tallies.probes.update(driver.watch.seen - others)
        tallies.fired.update(driver.watch.fired)
        tallies.machine_runs[machine] += 1

    def _keep(self, failure: Failure, log: OpLog, driver: Driver) -> None:
        if failure.fingerprint not in self.result.findings:
            self.result.findings[failure.fingerprint] = Finding(
                failure.fingerprint,
                failure.violations[0].invariant if failure.violations else failure.fingerprint,
                log,
                driver.counts.engine_steps,
                time.process_time() - self._began_cpu,
                self._written(failure.fingerprint, log),
            )

    def _written(self, fingerprint: str, log: OpLog) -> Path | None:
        """Where a finding waits to be shrunk; of equal ones of several workers the last stays."""
        if self.plan.out is None:
            return None
        path = self.plan.out / f"{slug(fingerprint)}-seed{self.plan.seed}.unshrunk.oplog"
        log.save(path, overwrite=True)
        return path

    def _recheck(self, log: OpLog) -> None:
        """Run the ops again: whatever differs is nondeterminism, and worse than a violation."""
        self.result.tallies.rechecked += 1
        where = replay(log).diverged
        if where is not None:
            self.result.diverged.append(f"batch {self._batch} run {log.header.run}: {where}")


def turns_of(name: str | None) -> list[type[Machine]]:
    """The machines of that name, or all, in the order in which batches go to them."""
    return [machine for machine in ROTATION if name in (None, machine.machine)]


def batch_seed(campaign_seed: int, batch: int) -> int:
    """The seed of a batch: the same for any number of workers."""
    name = f"{campaign_seed}/{batch}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest())


def merge(results: Sequence[Result]) -> Result:
    """The campaign of all workers; of equal findings the one that was found first."""
    merged = Result(seconds=max(result.seconds for result in results))
    for result in results:
        merged.tallies.add(result.tallies)
        merged.diverged += result.diverged
        for finding in result.findings.values():
            known = merged.findings.setdefault(finding.fingerprint, finding)
            if finding.found_cpu_seconds < known.found_cpu_seconds:
                merged.findings[finding.fingerprint] = finding
    return merged


def why_not_green(result: Result, profile: Profile) -> list[str]:
    """What a campaign without violations still owes, a line each."""
    tallies = result.tallies
    owed = [
        f"op {name}: {tallies.noops[name]} of {count} were no-ops"
        for name, count in sorted(tallies.ops.items())
        if tallies.noops[name] > MAX_NOOP_SHARE * count
    ]
    if profile.must_evaluate:
        owed += [
            f"invariant {invariant.name} was never evaluated"
            for invariant in CATALOG
            if not tallies.evaluated[invariant.name] and not tallies.not_applicable[invariant.name]
        ]
    if profile.must_evaluate:
        owed += [f"fault {fault} never fired" for fault in FAULTS if not tallies.fired[fault]]
    for machine, probes in PROBES_OF.items():
        floor = profile.probe_floor * tallies.machine_runs[machine]
        owed += [
            f"probe {name}: seen in {tallies.probes[name]} runs, want at least {math.ceil(floor)}"
            for name in probes
            if tallies.probes[name] < floor
        ]
    return owed
