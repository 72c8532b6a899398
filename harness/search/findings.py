"""The report of a finding: a shrunk op-log, a test that replays it, and the story."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from swarden.harness.core.as_code import kinds_in, log_code
from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.files import write_whole
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.oplog import OpLog, OpLogError
from swarden.harness.core.printable import printable
from swarden.harness.core.replay import failure_like, log_of, run_log
from swarden.harness.report.story import StoryLine, StoryPart, replay_line, story_lines
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink import BudgetSpent, DoesNotFail, ShrinkBudget, shrink

TEST_FILE = '''"""{title}"""

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import {kinds}
from swarden.harness.core.replay import run_log
from swarden.harness.report.story import failure_text

LOG = {log}


def test_{name}():
    """Passes once the bug is gone."""
    failure = run_log(LOG, trace_origins=True).failure

    assert failure is None, failure_text(failure)
'''


@dataclass(frozen=True)
class FindingReport:
    """A finding after it was shrunk and written; the figures are those of the shrunk log.

    `path` is None if the log could not be written.  `engine_steps` is None if the log could not be shrunk.
    `is_confirmed` is false if the run passes when it is repeated.
    """

    fingerprints: tuple[str, ...]
    log: OpLog
    engine_steps: int | None
    found_cpu_seconds: float
    shrink_cpu_seconds: float
    path: Path | None
    story: Sequence[StoryLine]
    is_confirmed: bool = True

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]

    @property
    def ops(self) -> int:
        return len(self.log.ops)

    @property
    def invariant(self) -> str:
        """The first invariant or error of the finding."""
        return self.laws[0]

    @property
    def laws(self) -> list[str]:
        """The invariants and errors of the finding."""
        return list(dict.fromkeys(name.split("/", maxsplit=1)[0] for name in self.fingerprints))

    def figures(self) -> dict[str, Any]:
        """The figures for scripts."""
        return {
            "fingerprint": self.fingerprint,
            "invariant": self.invariant,
            "ops": self.ops,
            "engine_steps": self.engine_steps,
            "found_cpu_seconds": round(self.found_cpu_seconds, 3),
            "shrink_cpu_seconds": round(self.shrink_cpu_seconds, 3),
            "path": str(self.path) if self.path else None,
        }


def report_finding(
    finding: Finding,
    out: Path,
    budget: ShrinkBudget,
    *,
    heartbeat: Callable[[], None] = lambda: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> FindingReport:
    """Shrink a finding and write it below `out`, under a unique name; its unshrunk log is removed.

    `heartbeat` is called once an engine step; `is_stopped` ends the shrinking, even within a run, with the smallest log
    so far.
    The log of a finding that killed its worker is run once more; if it passes, it is written unshrunk.  Raises
    DoesNotFail if any other finding does not fail again; then it is written unshrunk.
    """

    def go_on() -> None:
        if is_stopped():
            raise BudgetSpent
        heartbeat()

    def still_fails(log: OpLog) -> Failure | None:
        go_on()
        return failure_like(log, finding.fingerprint, go_on)

    if finding.died:
        failure = run_log(finding.log, observe=lambda *_: heartbeat()).failure
        if failure is None:
            note = "the run was repeated and passed: the process was killed from outside, or lacked memory or time"
            return write_unshrunk(finding, out, note, is_confirmed=False)
        log = finding.log.as_regression(failure.fingerprint)
        finding = replace(finding, fingerprint=failure.fingerprint, log=log, died="")
    try:
        small = shrink(finding.log, still_fails, budget)
    except DoesNotFail as error:
        raise _not_reproduced(finding, out) from error
    log, driver = sealed(small.log)
    if driver.failure is None or finding.fingerprint not in driver.failure.fingerprints:
        raise _not_reproduced(finding, out)
    further = [name for name in driver.failure.fingerprints if name != finding.fingerprint]
    path = _written(log, finding, out)
    story = story_lines(log.header, driver.failure, path)
    story += [StoryLine(StoryPart.EVIDENCE, f"while this was shrunk: {fault}") for fault in small.target_faults]
    names, steps = (finding.fingerprint, *further), driver.counts.engine_steps
    return FindingReport(names, log, steps, finding.found_cpu_seconds, small.cpu_seconds, path, story)


def _not_reproduced(finding: Finding, out: Path) -> DoesNotFail:
    """Write the unshrunk finding and the log of the run that ended differently; returns the error to raise."""
    again = run_log(finding.log, keep_digests=True)
    kept = [_written(finding.log, finding, out)]
    if again.failure is None or finding.fingerprint not in again.failure.fingerprints:
        other = log_of(finding.log.header, again)
        kept.append(_written(other, replace(finding, fingerprint=f"not {finding.fingerprint}", path=None), out))
    paths = ", ".join(str(path) for path in kept if path) or "in memory only, because they cannot be written"
    return DoesNotFail(f"{finding.fingerprint}: does not fail again; both logs are kept: {paths}")


def write_unshrunk(finding: Finding, out: Path, note: str, *, is_confirmed: bool = True) -> FindingReport:
    """Write the unshrunk log of a finding that cannot be shrunk; `note` is the reason.

    No pytest file is written, because a log that kills its process would kill the whole test run.
    """
    header = msgspec.structs.replace(finding.log.header, expected=finding.fingerprint)
    log = OpLog(header, finding.log.ops)
    path = _written(log, finding, out, with_test=False)
    first, *stack = finding.died.splitlines() or [""]
    story = [StoryLine(StoryPart.CLAIM, f"{finding.fingerprint}: {first}".removesuffix(": "))]
    story += [StoryLine(StoryPart.EVIDENCE, line.strip(), 2 * (len(line) - len(line.lstrip()))) for line in stack]
    story += [StoryLine(StoryPart.EVIDENCE, note), *([replay_line(path)] if path else [])]
    return FindingReport((finding.fingerprint,), log, None, finding.found_cpu_seconds, 0.0, path, story, is_confirmed)


def _written(log: OpLog, finding: Finding, out: Path, *, with_test: bool = True) -> Path | None:
    """Write the log and remove the unshrunk one; returns the path, or None if the file cannot be written."""
    try:
        path = write(log, finding.fingerprint, out, with_test=with_test)
    except (OSError, OpLogError):
        return None
    if finding.path is not None:
        finding.path.unlink(missing_ok=True)
    return path


def sealed(log: OpLog) -> tuple[OpLog, Driver]:
    """The log, run again: with digests, up to the op that fails; and the driver of that run.

    The log is not marked as truncated any more, because it fails by itself.
    """
    driver = run_log(log, keep_digests=True, trace_origins=True)
    fresh = log_of(log.header, driver)
    header = msgspec.structs.replace(fresh.header, expected=log.header.expected, truncated="")
    return OpLog(header, fresh.ops, fresh.digests), driver


def write(log: OpLog, fingerprint: str, out: Path, root: Path | None = None, *, with_test: bool = True) -> Path:
    """Save an op-log, and beside it the pytest file that replays it, inside `root` or `out`; both names are unique."""
    name = f"{slug(fingerprint)}-{hashlib.sha256(log.to_bytes()).hexdigest()[:8]}"
    path = out / f"{name}.oplog"
    log.save(path, inside=root or out)
    if not with_test:
        return path
    identifier = re.sub(r"\W+", "_", name.replace("+", "_and_"))
    title = printable(fingerprint).replace("\\", r"\\").replace('"', r"\"")  # of a log from outside, too
    test = TEST_FILE.format(title=title, name=identifier, kinds=", ".join(kinds_in(log)), log=log_code(log))
    write_whole(path.with_name(f"test_{identifier}.py"), test.encode(), inside=root or out)
    return path
