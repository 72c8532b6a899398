"""Running an op-log again: through the same driver, with the same bug planted where one was."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum

import msgspec

from harness.core.driver import EVERYTHING, Checking, Driver, Failure, Kept
from harness.core.errors import UsageError
from harness.core.mutant_file import mutant_of
from harness.core.oplog import Header, OpLog
from harness.core.ops import Inject
from harness.core.registry import target_of
from harness.core.target import Target
from invariants.catalog import catalog_of
from invariants.transition import Transition

Hear = Callable[[Driver, Transition], None]
RUNS = 3  # of a log, to see whether it ends in the same way each time


class TruncatedLog(UsageError):
    """A log that does not fail, and lacks a part of its run."""


class Verdict(Enum):
    """How a replay ended, against the fingerprint that the log expects; FLAKY where its runs end in different ways."""

    FIXED = "FIXED"
    FAILED = "FAILED"
    CHANGED = "CHANGED"
    FLAKY = "FLAKY"


@dataclass(frozen=True)
class Replayed:
    """A log that ran to its end or its failure; `diverged` names the first op after which the state is another.

    A log of the same build must agree; for one of another build a divergence is a remark.  The driver has the
    digests of this run.
    """

    log: OpLog
    driver: Driver
    diverged: str | None

    @property
    def verdict(self) -> Verdict:
        failure, expected = self.driver.failure, self.log.header.expected
        if failure is None:
            return Verdict.FIXED
        return Verdict.FAILED if expected in (None, *failure.fingerprints) else Verdict.CHANGED

    @property
    def again(self) -> OpLog:
        """This run as a log of its own: beside the first one where the two are not the same."""
        return log_of(self.log.header, self.driver)

    @property
    def is_same_build(self) -> bool:
        return self.log.header.source_hash == target_of(self.log.header.engine).source_hash()

    @property
    def is_nondeterministic(self) -> bool:
        return self.diverged is not None and self.is_same_build


@dataclass(frozen=True)
class Repeated:
    """The runs of one log, in order."""

    runs: Sequence[Replayed]

    @property
    def num_failed(self) -> int:
        return sum(run.driver.failure is not None for run in self.runs)

    @property
    def differs(self) -> str | None:
        """The first op at which a run parts from the first one."""
        first, others = self.runs[0].again, self.runs[1:]
        differences = [_first_difference(first, run.driver, before="the first run") for run in others]
        return next(filter(None, differences), None)

    @property
    def told(self) -> Replayed:
        """The run to speak of: the first that failed, if any did."""
        return next((run for run in self.runs if run.driver.failure is not None), self.runs[0])

    @property
    def verdict(self) -> Verdict:
        return self.told.verdict if self.differs is None else Verdict.FLAKY


def driver_of(header: Header, *, keep: Kept = EVERYTHING, tell: Callable[[Transition], None] | None = None) -> Driver:
    """A driver over fresh systems, one for each configuration of a header."""
    target = target_of(header.engine)
    systems = target.systems(header.machine, [target.decode(config) for config in header.configs], header.model)
    return Driver(systems, checking=Checking(catalog_of(target.contracts), code=target.code), keep=keep, tell=tell)


def log_of(header: Header, driver: Driver) -> OpLog:
    """The run of a driver as an op-log of this build, with the other fields of `header`."""
    failure, target = driver.failure, target_of(header.engine)
    full = msgspec.structs.replace(
        header,
        version=target.version(),
        source_hash=target.source_hash(),
        faults=sorted({op.fault for op in driver.ops if isinstance(op, Inject) and op.fault is not None}),
        expected=failure.fingerprint if failure else None,
    )
    return OpLog(full, list(driver.ops), list(driver.digests))


def run_log(log: OpLog, *, keep_digests: bool = False, hear: Hear | None = None, trace_origins: bool = False) -> Driver:
    """Apply a log's ops to fresh engines; `hear` is called with each transition.

    With `trace_origins` the history says which place in the engine's code told of each event, for a story.
    Raises UsageError where the log's mutant is not known.
    """

    def tell(change: Transition) -> None:
        if hear is not None:
            hear(driver, change)

    with planted(target_of(log.header.engine), log.header.mutant):
        driver: Driver = driver_of(log.header, keep=Kept(digests=keep_digests), tell=tell)
        for system in driver.systems if trace_origins else ():
            system.log.trace()
        for op in log.ops:
            driver.apply(op)
    return driver


def failure_like(log: OpLog, fingerprint: str, beat: Callable[[], None] = lambda: None) -> Failure | None:
    """How a log fails, if it fails in this way among others; `beat` is called once an engine step."""
    failure = run_log(log, hear=lambda *_: beat()).failure
    return failure if failure and fingerprint in failure.fingerprints else None


def planted(target: Target, mutant: str | None) -> AbstractContextManager[None]:
    """The context in which a mutant is in the engine; no mutant changes nothing."""
    return nullcontext() if mutant is None else mutant_of(target, mutant).planted()


def replay(log: OpLog, hear: Hear | None = None) -> Replayed:
    """Run a log again and compare its states with the digests that it has.

    Raises TruncatedLog where nothing fails and something is missing: then nothing is known.
    """
    return repeat(log, 1, hear).runs[0]


def repeat(log: OpLog, runs: int = RUNS, hear: Hear | None = None, *, trace_origins: bool = False) -> Repeated:
    """Run a log so many times; `hear` is called with each transition of the first run.

    Raises TruncatedLog as `replay` does, where no run fails.
    """
    done = []
    for run in range(runs):
        driver = run_log(log, keep_digests=True, hear=hear if not run else None, trace_origins=trace_origins)
        done.append(Replayed(log, driver, _first_difference(log, driver)))
    repeated = Repeated(done)
    if log.header.truncated and not repeated.num_failed:
        raise TruncatedLog(f"does not fail, and a part of its run is missing: {log.header.truncated}")
    return repeated


def _first_difference(log: OpLog, driver: Driver, *, before: str = "the log") -> str | None:
    """Where a run parts from the one that a log is of, which `before` names."""
    if log.digests is None:
        return None
    for index, (then, now) in enumerate(zip(log.digests, driver.digests, strict=False)):
        if then != now:
            return f"op {index + 1} ({type(log.ops[index]).__name__}): digest {now}, {before} has {then}"
    if len(log.digests) != len(driver.digests):
        return f"op {min(len(log.digests), len(driver.digests)) + 1}: one run failed there and the other did not"
    expected, failure = log.header.expected, driver.failure
    if expected is not None and failure is not None and expected not in failure.fingerprints:
        return f"op {failure.op_index + 1}: failed with {failure.fingerprint}, {before} has {expected}"
    return None
