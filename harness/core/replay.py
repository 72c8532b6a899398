"""Replays of op-logs: the same ops through the same driver, with the mutant and the fixes of the log planted."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum

import msgspec

from swarden.harness.core.changes import Changes
from swarden.harness.core.driver import EVERYTHING, Checking, Driver, Failure, KeptParts
from swarden.harness.core.errors import EngineGone, UsageError
from swarden.harness.core.event_log import TracerOf
from swarden.harness.core.fingerprint import is_same, law_of
from swarden.harness.core.limits import MAX_STEPS
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Inject
from swarden.harness.core.process import CRASH, FAULT, HANG, Death
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import prepare
from swarden.harness.core.target_fault import blamed_on
from swarden.invariants.catalog import catalog_of
from swarden.invariants.transition import Transition

Observe = Callable[[Driver, Transition], None]
RUNS = 3  # of a log, to detect nondeterminism


class TruncatedLog(UsageError):
    """The log is truncated and does not fail, so its bug may be fixed or its cause may be missing."""


class Verdict(Enum):
    """The result of a replay."""

    FIXED = "FIXED"  # no failure
    FAILED = "FAILED"  # with the fingerprint that the log expects, or with any if it expects none
    CHANGED = "CHANGED"  # another failure
    FLAKY = "FLAKY"  # the runs of the log differ, in digests or in their failures
    ERROR = "ERROR"  # the log cannot be run


def verdict_on(fingerprints: Sequence[str], expected: Sequence[str], *, by_law: bool = False) -> Verdict:
    """The verdict on a run with these fingerprints, none if it passes; `expected` are those of the failure.

    With `by_law` the failure is the expected one if it has one of its laws or errors, wherever the code of that is.
    """
    if not fingerprints:
        return Verdict.FIXED
    if not expected or is_same(expected, fingerprints):
        return Verdict.FAILED
    has_law = by_law and not {*map(law_of, expected)}.isdisjoint(map(law_of, fingerprints))
    return Verdict.FAILED if has_law else Verdict.CHANGED


@dataclass(frozen=True)
class Replayed:
    """One run of a log, whose driver has its digests; a divergence on the same build is nondeterminism."""

    log: OpLog
    driver: Driver
    diverged: str | None  # the first op at which it differs from the log; None: none, or the log has no digests

    @property
    def verdict(self) -> Verdict:
        failure, expected = self.driver.failure, self.log.header.expected
        return verdict_on(failure.fingerprints if failure is not None else (), [expected] if expected else ())

    @property
    def again(self) -> OpLog:
        """The op-log of this run, with its own digests and failure."""
        return log_of(self.log.header, self.driver)

    @property
    def is_same_build(self) -> bool:
        return self.log.header.source_hash == target_for(self.log.header).source_hash()


@dataclass(frozen=True)
class Replays:
    """The verdict of running a log `runs` times, of which `failures` failed: as the log expects, if any did so.

    The fingerprints and the failure are those of the first of them.
    """

    verdict: Verdict
    fingerprints: tuple[str, ...]
    failures: int
    runs: int
    diverged: str = ""  # the first difference between runs, or of that run and the log; the reason of an ERROR
    is_same_build: bool = True  # else a difference from the log is no nondeterminism
    failure: Failure | None = None  # stays in its process
    story: tuple[str, ...] = ()  # its lines, if requested
    ran: frozenset[int] = frozenset()  # the ordinals of the changed lines that ran, if followed
    known: str = ""  # the known bugs whose fixes cure the failure

    @property
    def is_nondeterministic(self) -> bool:
        return bool(self.diverged) and self.is_same_build

    @property
    def text(self) -> str:
        """The verdict with the fingerprints, or with the reason of an ERROR."""
        why = self.diverged if self.verdict is Verdict.ERROR else ", ".join(self.fingerprints)
        return f"{self.verdict.value} {why}".rstrip()


def not_run(why: str) -> Replays:
    return Replays(Verdict.ERROR, (), 0, 0, why, is_same_build=False)


def verdict_of(runs: Sequence[Replayed]) -> Replays:
    """The verdict on the runs of one log."""
    failed = [run for run in runs if run.driver.failure is not None]
    failed = [run for run in failed if run.verdict is Verdict.FAILED] or failed
    shown = failed[0] if failed else runs[0]
    first = runs[0].again
    differences = (_difference(first, run.driver, before="the first run") for run in runs[1:])
    difference = next(filter(None, differences), None)
    failure, is_flaky = shown.driver.failure, bool(difference) or len({run.verdict for run in runs}) > 1
    return Replays(
        Verdict.FLAKY if is_flaky else shown.verdict,
        failure.fingerprints if failure is not None else (),
        len(failed),
        len(runs),
        difference or shown.diverged or "",
        bool(difference) or shown.diverged is None or shown.is_same_build,
        failure,
    )


def driver_of(
    header: Header, *, keep: KeptParts = EVERYTHING, observe: Callable[[Transition], None] | None = None
) -> Driver:
    """A driver over fresh systems, one per configuration; raises TargetFault if the target cannot make them."""
    target = target_for(header)
    with blamed_on(target.name, "decode"):
        configs = [target.decode(config) for config in header.configs]
    with blamed_on(target.name, "build"):
        systems = target.systems(header.machine, configs, header.model)
    checking = Checking(
        catalog_of(target.contracts), code=target.code, max_steps=MAX_STEPS, target=target.name, engines=len(configs)
    )
    return Driver(systems, checking=checking, keep=keep, observe=observe)


def log_of(header: Header, driver: Driver) -> OpLog:
    """The run of a driver as an op-log of this build; all other fields are those of `header`."""
    failure, target = driver.failure, target_for(header)
    full = msgspec.structs.replace(
        header,
        version=target.version(),
        source_hash=target.source_hash(),
        faults=sorted({op.fault for op in driver.ops if isinstance(op, Inject) and op.fault is not None}),
        expected=failure.fingerprint if failure else None,
    )
    return OpLog(full, list(driver.ops), list(driver.digests) if target.is_repeatable else None)


def run_log(
    log: OpLog,
    *,
    keep_digests: bool = False,
    observe: Observe | None = None,
    tracer_of: TracerOf | None = None,
    inside: AbstractContextManager[object] | None = None,
) -> Driver:
    """Apply a log's ops to fresh engines; `observe` is called with each transition.

    With `tracer_of` the history has the place in the engine's code that emitted each event, and what the tracer has
    found.  The run is `inside` a context, which is entered when the changes of the log are planted.  Raises UsageError
    if the log's mutant or one of its fixes is unknown, or does not fit.
    """
    header, target = log.header, target_for(log.header)
    prepare(target)

    def on_transition(change: Transition) -> None:
        if observe is not None:
            observe(driver, change)

    with Changes(header.mutant, header.fixes).planted(target), inside or nullcontext():
        driver: Driver = driver_of(header, keep=KeptParts(digests=keep_digests), observe=on_transition)
        for system in driver.systems:
            system.log.is_replayed = True
            if tracer_of is not None:
                system.log.trace(tracer_of)
        for op in log.ops:
            driver.apply(op)
    return driver


def failure_like(log: OpLog, fingerprint: str, heartbeat: Callable[[], None] = lambda: None) -> Failure | None:
    """Run a log; returns its failure if this is one of its fingerprints; calls `heartbeat` at each transition."""
    failure = run_log(log, observe=lambda *_: heartbeat()).failure
    return failure if failure and failure.is_called(fingerprint) else None


def replay(log: OpLog, observe: Observe | None = None, *, tracer_of: TracerOf | None = None) -> Replayed:
    """Run a log once, and compare its digests; raises TruncatedLog if the log is truncated and does not fail."""
    [run] = _runs_of(log, 1, observe, tracer_of)
    return run


def repeat(
    log: OpLog, runs: int = RUNS, observe: Observe | None = None, *, tracer_of: TracerOf | None = None
) -> Replays:
    """Run a log `runs` times, the first under `observe`; raises TruncatedLog if it is truncated and no run fails."""
    return verdict_of(_runs_of(log, runs, observe, tracer_of))


def _runs_of(log: OpLog, runs: int, observe: Observe | None, tracer_of: TracerOf | None) -> list[Replayed]:
    """The runs of a log; fewer than `runs` if a run has ended an engine that cannot be started again."""
    done: list[Replayed] = []
    for run in range(runs):
        keep_digests = target_for(log.header).is_repeatable
        try:
            driver = run_log(log, keep_digests=keep_digests, observe=observe if not run else None, tracer_of=tracer_of)
        except EngineGone:
            if not done:
                raise
            break
        done.append(Replayed(log, driver, _difference(log, driver)))
    if log.header.truncated and not any(run.driver.failure for run in done):
        raise TruncatedLog(f"does not fail, and a part of its run is missing: {log.header.truncated}")
    return done


def _difference(log: OpLog, driver: Driver, *, before: str = "the log") -> str | None:
    """The first op at which a run differs from the log; None if none does, or the log has no digests.

    `before` names the log in the text.
    """
    if log.digests is None:
        return None
    for index, (then, now) in enumerate(zip(log.digests, driver.digests, strict=False)):
        if then != now:
            return f"op {index + 1} ({type(log.ops[index]).__name__}): digest {now}, {before} has {then}"
    if len(log.digests) != len(driver.digests):
        return f"op {min(len(log.digests), len(driver.digests)) + 1}: one run failed there and the other did not"
    expected, failure = log.header.expected, driver.failure
    if expected is not None and failure is not None and not failure.is_called(expected):
        return f"op {failure.op_index + 1}: failed with {failure.fingerprint}, {before} has {expected}"
    return None


def is_death(fingerprint: str) -> bool:
    """Whether the failure with this fingerprint has killed its process."""
    return fingerprint.split("/", maxsplit=1)[0] in (CRASH, HANG, FAULT)


def replays_of(death: Death, log: OpLog) -> Replays:
    """The verdict on a log that has killed its process: the name of a death is the beginning of a fingerprint."""
    expected = log.header.expected or ""
    name = expected if f"{expected}/".startswith(f"{death.name}/") else death.name
    return Replays(verdict_on([name], [expected] if expected else ()), (name,), 1, 1)
