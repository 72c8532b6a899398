"""The bounded exhaustive search: all sequences of ops up to a length, on a tiny engine.

A level has all sequences of one length: each sequence of the level before is extended by each op of the alphabet.  The
prefix is applied again to fresh engines, unchecked, because the level before has checked it.  A state that was seen
before is not extended.  In each new state a drain is tried, too, which shows a leak; its state is not extended.
"""

import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, NamedTuple

from swarden.harness.core.digest import encoded
from swarden.harness.core.driver import Checking, Driver, KeptParts
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Accept, Drain, Op
from swarden.harness.core.process import CRASH, HANG
from swarden.harness.core.registry import target_for
from swarden.harness.core.system import System
from swarden.harness.core.target import Pool, Shape, Target
from swarden.harness.search.jobs import JobDeath, run_jobs
from swarden.harness.search.result import Finding
from swarden.invariants.catalog import catalog_of
from swarden.invariants.view import Snapshot

TINY = Shape(2, (Pool("full", 8), Pool("swa", 6, window=3)), chunk_len=2, max_running_requests=2, max_context_len=24)
EXTENSIONS_PER_JOB = 400
JOB_CPU_SECONDS = 60.0  # a job of so many needs about a second
KEY_BYTES = 10  # 10 million states collide with a probability of 1e-11

Ops = tuple[Op, ...]
Key = bytes


@dataclass(frozen=True)
class ExploredEngine:
    """The engine to explore: the header of its op-logs, without ops, and the alphabet."""

    header: Header
    alphabet: Sequence[Op]


class Extension(NamedTuple):
    """A sequence to run: `ops`, and one more op after them."""

    ops: Ops
    op: Op


class SequenceResult(NamedTuple):
    """The result of one sequence: its state ("" if its last op fails), its checked engine steps, and its failure."""

    ops: Ops
    key: Key
    steps: int = 0
    finding: Finding | None = None


@dataclass
class ExploredLength:
    """The sequences of one length: the new states, the sequences to a known state, and the first of each finding.

    `steps` are checked engine steps.  `share` is the part of the sequences that were run; below 1 if the time was over.
    """

    length: int
    states: int = 0
    pruned: int = 0
    share: float = 1.0
    steps: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_last(self) -> bool:
        """Whether every longer sequence leads to a state that is known."""
        return self.share == 1 and not self.states


def tiny_config(target: Target, changes: Mapping[str, Any]) -> Any:
    """A configuration with tiny pools; `changes` are settings in their JSON form.

    Raises InvalidConfig if the target cannot be built from it.
    """
    return target.decode({**target.encode(target.config_of(TINY)), **changes})


@dataclass
class Exploration:
    """The search; `levels` makes one level after the other until `seconds` are over, or an `interrupt`.

    An interrupted level has the findings of its finished jobs.
    The same sequences are found with any number of workers, unless the time ends a level early.
    """

    subject: ExploredEngine
    workers: int
    seconds: float
    stop_on_first: bool = False
    is_interrupted: bool = False
    _is_running: bool = False  # jobs, whose end an interrupt does not wait for
    _seen: set[Key] = field(default_factory=set)
    _began: float = field(default_factory=monotonic)

    @property
    def is_over(self) -> bool:
        return self.is_interrupted or monotonic() - self._began > self.seconds

    def interrupt(self, *_: object) -> None:
        """End the search early, as the handler of a signal; raises KeyboardInterrupt when it is called again."""
        is_raised, self.is_interrupted = self.is_interrupted or self._is_running, True
        if is_raised:
            raise KeyboardInterrupt

    def levels(self, depth: int) -> Iterator[ExploredLength]:
        """The levels up to `depth` ops; ends early where no state is new, or the time is over."""
        frontier: list[Ops] = [()]
        fingerprints: set[str] = set()
        for length in range(1, depth + 1):
            level = ExploredLength(length)
            reached = self._extended(frontier, level)
            frontier = []
            for ops, key, steps, finding in reached:
                level.steps += steps
                if finding is not None and finding.fingerprint not in fingerprints:
                    fingerprints.add(finding.fingerprint)
                    level.findings.append(finding)
                if not key:
                    continue
                if key in self._seen:
                    level.pruned += 1
                else:
                    self._seen.add(key)
                    frontier.append(ops)
            level.states = len(frontier)
            yield level
            if not frontier or self.is_over or (self.stop_on_first and fingerprints):
                return

    def _extended(self, frontier: Sequence[Ops], level: ExploredLength) -> list[SequenceResult]:
        """Run each sequence of the frontier with each op, in the order of the sequences."""
        extensions = [Extension(ops, op) for ops in frontier for op in self.subject.alphabet]
        starts = range(0, len(extensions), EXTENSIONS_PER_JOB)
        jobs = [(start, extensions[start : start + EXTENSIONS_PER_JOB]) for start in starts]
        done: dict[int, list[SequenceResult]] = {}
        running = iter(jobs)
        in_time = iter(lambda: None if self.is_over else next(running, None), None)
        try:
            self._is_running = True
            for (index, job), ended in run_jobs(in_time, self._work, workers=self.workers):
                if isinstance(ended, JobDeath):
                    done[index] = [result for extension in job for result in self._alone(extension)]
                else:
                    done[index] = ended
            self._is_running = False
        except KeyboardInterrupt:
            self._is_running, self.is_interrupted = False, True
        level.share = sum(len(job) for index, job in jobs if index in done) / len(extensions)
        return [result for index in sorted(done) for result in done[index]]

    def _alone(self, extension: Extension) -> list[SequenceResult]:
        """Run a sequence in a process of its own, because a sequence of its job has killed the process.

        A process that ends by an exception of swarden itself is no finding: raises RuntimeError.
        """
        [(_, ended)] = run_jobs([(0, [extension])], self._work, workers=1)
        if not isinstance(ended, JobDeath):
            return ended
        if ended.exit_code > 0:
            raise RuntimeError(f"{ended}, in the sequence {[*extension.ops, extension.op]}")
        name = f"{HANG if ended.has_hung else CRASH}/{ended.name}"
        log = OpLog(self.subject.header, [*extension.ops, extension.op, Drain()])
        return [SequenceResult((), b"", 0, Finding(name, log, monotonic() - self._began, died=str(ended)))]

    def _work(self, job: tuple[int, Sequence[Extension]]) -> list[SequenceResult]:
        """Run sequences in a process of their own, as one job."""
        signal.setitimer(signal.ITIMER_PROF, JOB_CPU_SECONDS)
        new: set[Key] = set()
        reached = []
        for extension in job[1]:
            result = self._run(extension, new)
            new.add(result.key)
            reached.append(result)
        return reached

    def _run(self, extension: Extension, new: set[Key]) -> SequenceResult:
        """Run one sequence; a drain follows if its state is neither in `new` nor was seen before."""
        header, ops = self.subject.header, (*extension.ops, extension.op)
        target = target_for(header)
        systems = target.systems(header.machine, [target.decode(config) for config in header.configs], "")
        for op, system in ((op, system) for op in extension.ops for system in systems):
            system.do(op)
            system.capture()  # some ports derive the owners of units in events from the last capture
            system.take_events()
        checking = Checking(catalog_of(target.contracts), code=target.code, target=target.name)
        driver = Driver(systems, checking=checking, keep=KeptParts(digests=False, moments=1))
        driver.apply(extension.op)
        key = b"" if driver.failure else key_of(systems, [driver.snapshot()], ops)
        if key and key not in self._seen and key not in new:
            driver.apply(Drain())
        steps = driver.counts.engine_steps
        if driver.failure is None:
            return SequenceResult(ops, key, steps)
        log = OpLog(header, [*ops, *[Drain()] * (driver.ops[-1] == Drain())])
        return SequenceResult(ops, key, steps, Finding(driver.failure.fingerprint, log, monotonic() - self._began))


def key_of(systems: Sequence[System], snapshots: Sequence[Snapshot], ops: Ops) -> Key:
    """The key of a state: two sequences with one key can be continued in the same way.

    The key has everything in a snapshot but the number of steps, and the tokens of all requests.  It also has what no
    snapshot shows: the steps without a pass, and the drafts that are accepted.
    """
    facts = [
        [replace(snapshot, step=0) for snapshot in snapshots],
        [
            (request.namespace, request.prompt_len, request.tokens, request.len_at_abort)
            for system in systems
            for request in system.reference.expectations.values()
        ],
        [system.steps_without_forward for system in systems],
        [op for op in ops if isinstance(op, Accept)][-1:],
    ]
    return hashlib.blake2b(encoded(facts), digest_size=KEY_BYTES).digest()
