"""From a finding to what a developer gets: a shrunk op-log, a test that replays it, and the story."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.core.as_code import kinds_in, log_code
from harness.core.driver import Driver, Failure
from harness.core.files import write_whole
from harness.core.fingerprint import slug
from harness.core.oplog import OpLog, OpLogError
from harness.core.replay import failure_like, log_of, run_log
from harness.report.story import Line, Part, replay_line, told_lines
from harness.search.campaign import Finding
from harness.search.shrink import Budget, BudgetSpent, DoesNotFail, shrink

TEST_FILE = '''"""{title}"""

from harness.core.oplog import Header, OpLog
from harness.core.ops import {kinds}
from harness.core.replay import run_log
from harness.report.story import failure_text

LOG = {log}


def test_{name}():
    """Passes once the bug is gone."""
    failure = run_log(LOG, trace_origins=True).failure

    assert failure is None, failure_text(failure)
'''


@dataclass(frozen=True)
class Settled:
    """A finding that was shrunk and written; the figures are those of the shrunk log.

    `path` is None where the log could not be written: `log` is then all that there is.  `engine_steps` is None where
    the log could not be shrunk, `is_confirmed` false where the run passes when it is repeated.
    """

    fingerprints: tuple[str, ...]
    log: OpLog
    engine_steps: int | None
    found_cpu_seconds: float
    shrink_cpu_seconds: float
    path: Path | None
    story: Sequence[Line]
    is_confirmed: bool = True

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]

    @property
    def ops(self) -> int:
        return len(self.log.ops)

    @property
    def invariant(self) -> str:
        """The first invariant or error that tells of it."""
        return self.told_by[0]

    @property
    def told_by(self) -> list[str]:
        """The invariants and errors that tell of it."""
        return list(dict.fromkeys(name.split("/", maxsplit=1)[0] for name in self.fingerprints))

    def figures(self) -> dict[str, Any]:
        """What scripts read."""
        return {
            "fingerprint": self.fingerprint,
            "invariant": self.invariant,
            "ops": self.ops,
            "engine_steps": self.engine_steps,
            "found_cpu_seconds": round(self.found_cpu_seconds, 3),
            "shrink_cpu_seconds": round(self.shrink_cpu_seconds, 3),
            "path": str(self.path) if self.path else None,
        }


def settle(
    finding: Finding,
    out: Path,
    budget: Budget,
    *,
    beat: Callable[[], None] = lambda: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Settled:
    """Shrink a finding and write it below `out`, under a name of its own; its unshrunk log is removed.

    `beat` is called once an engine step; `is_stopped` ends the shrinking with the smallest log so far.
    A log that took a worker down is run once more, and stays as it is.  Raises DoesNotFail where any other finding
    does not show again: then it is written as it was met.
    """

    def still_fails(log: OpLog) -> Failure | None:
        if is_stopped():
            raise BudgetSpent
        return failure_like(log, finding.fingerprint, beat)

    if finding.died:
        failure = run_log(finding.log, hear=lambda *_: beat()).failure
        if failure is None:
            note = "the run was repeated and passed: the process was killed from outside, or lacked memory or time"
            return as_met(finding, out, note, is_confirmed=False)
        log = finding.log.as_regression(failure.fingerprint)
        finding = replace(finding, fingerprint=failure.fingerprint, log=log, died="")
    try:
        small = shrink(finding.log, still_fails, budget)
    except DoesNotFail as never:
        raise _not_shown(finding, out) from never
    log, driver = sealed(small.log)
    if driver.failure is None:
        raise _not_shown(finding, out)
    others = [name for name in driver.failure.fingerprints if name != finding.fingerprint]
    path = _written(log, finding, out)
    return Settled(
        (finding.fingerprint, *others),
        log,
        driver.counts.engine_steps,
        finding.found_cpu_seconds,
        small.cpu_seconds,
        path,
        told_lines(log.header, driver.failure, path),
    )


def _not_shown(finding: Finding, out: Path) -> DoesNotFail:
    """The finding is kept as it was met, and beside it the log of a run that went another way."""
    again = run_log(finding.log, keep_digests=True)
    kept = [_written(finding.log, finding, out)]
    if again.failure is None or finding.fingerprint not in again.failure.fingerprints:
        other = log_of(finding.log.header, again)
        kept.append(_written(other, replace(finding, fingerprint=f"not {finding.fingerprint}", path=None), out))
    places = ", ".join(str(path) for path in kept if path) or "memory alone, for they cannot be written"
    return DoesNotFail(f"{finding.fingerprint}: does not show again; both logs are kept: {places}")


def as_met(finding: Finding, out: Path, note: str, *, is_confirmed: bool = True) -> Settled:
    """A finding that cannot be shrunk: its log is written as it was met, and `note` says why.

    It gets no pytest file: what takes a process down would take the whole test run down.
    """
    header = msgspec.structs.replace(finding.log.header, expected=finding.fingerprint)
    log = OpLog(header, finding.log.ops)
    path = _written(log, finding, out, with_test=False)
    story = [Line(Part.CLAIM, f"{finding.fingerprint}: {finding.died}" if finding.died else finding.fingerprint)]
    story += [Line(Part.EVIDENCE, note), *([replay_line(path)] if path else [])]
    return Settled((finding.fingerprint,), log, None, finding.found_cpu_seconds, 0.0, path, story, is_confirmed)


def _written(log: OpLog, finding: Finding, out: Path, *, with_test: bool = True) -> Path | None:
    """Where the log stands in place of the unshrunk one; None where the place cannot be written."""
    try:
        path = write(log, finding.fingerprint, out, with_test=with_test)
    except (OSError, OpLogError):
        return None
    if finding.path is not None:
        finding.path.unlink(missing_ok=True)
    return path


def sealed(log: OpLog) -> tuple[OpLog, Driver]:
    """The log as a fresh one, with digests and up to the op that fails; and the driver that ran it.

    What fails by itself lacks nothing, whatever it was cut from.
    """
    driver = run_log(log, keep_digests=True, trace_origins=True)
    fresh = log_of(log.header, driver)
    header = msgspec.structs.replace(fresh.header, expected=log.header.expected, truncated="")
    return OpLog(header, fresh.ops, fresh.digests), driver


def write(log: OpLog, fingerprint: str, out: Path, *, with_test: bool = True) -> Path:
    """Save an op-log, and beside it the pytest file that replays it; the name tells both apart from others."""
    name = f"{slug(fingerprint)}-{hashlib.sha256(log.to_bytes()).hexdigest()[:8]}"
    path = out / f"{name}.oplog"
    log.save(path)
    if not with_test:
        return path
    identifier = re.sub(r"\W+", "_", name.replace("+", "_and_"))
    test = TEST_FILE.format(title=fingerprint, name=identifier, kinds=", ".join(kinds_in(log)), log=log_code(log))
    write_whole(path.with_name(f"test_{identifier}.py"), test.encode())
    return path
