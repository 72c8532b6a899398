"""The report of a finding: a shrunk op-log, a test that replays it, and the story."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from math import log as log_of_number
from pathlib import Path

import msgspec

from swarden.harness.core.as_code import log_code
from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import write_whole
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.oplog import OpLog, OpLogError
from swarden.harness.core.printable import printable
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import Replays, Verdict, failure_like, log_of, run_log
from swarden.harness.core.versions import load_for_here
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.story import StoryLine, StoryPart, replay_line, story_lines
from swarden.harness.search.cures import NO_TRIALS, Trials
from swarden.harness.search.keys import is_of, key_of, kind_of, leaves_out
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import BudgetSpent, DoesNotFail, ShrinkBudget, Shrunk, shrink
from swarden.harness.search.verification import Cause, Verifier

RUNS_FOR_RATE, MISSED = 5, 0.05  # of a failure that is not in each run of its log; the share of runs that may miss it
FINDINGS = Path(".swarden/findings")
TEST_FILE = '''"""{title}"""

import swarden
from swarden.kit import Header, OpLog, ops

LOG = {log}


def test_{name}():
    """Passes once the bug is gone."""
    story = swarden.replay(LOG, runs=1).story

    assert not story, "\\n".join(story)
'''


def report_finding(
    finding: Finding,
    out: Path,
    budget: ShrinkBudget,
    *,
    trials: Trials = NO_TRIALS,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Finding:
    """Shrink a finding, run its log again and write it below `out`, under a unique name; its unshrunk log is removed.

    A shrink that was begun before is continued.  `is_stopped` ends the shrinking, even within a run, with the smallest
    log so far. The log of a finding that killed its worker is run once more; if it passes, it is written unshrunk.  So
    is any other finding that does not fail again, which is FLAKY. If the strict check inside of a server has recorded
    an op-log that fails without the server, that op-log is shrunk.
    """
    if finding.recorded is None:
        return _reported(finding, out, budget, trials, is_stopped)
    inner, note = _inner(finding, finding.recorded, trials)
    if inner is None:
        report = _reported(finding, out, budget, trials, is_stopped)
        return replace(report, story=[*report.story, StoryLine(StoryPart.EVIDENCE, note)])
    return _with_inner(finding, _reported(inner, out, budget, trials, is_stopped), out, note)


def _reported(
    finding: Finding, out: Path, budget: ShrinkBudget, trials: Trials, is_stopped: Callable[[], bool]
) -> Finding:
    """Shrink, run again and write a finding, as `report_finding` does."""

    def go_on() -> None:
        if is_stopped():
            raise BudgetSpent
        trials.beat()

    def still_fails(log: OpLog) -> Failure | None:
        go_on()
        found = (failure_like(log, finding.fingerprint, go_on) for _ in range(tries))
        failure = next((failure for failure in found if failure is not None), None)
        if failure is not None and finding.suffix:
            key = key_of(log, failure, go_on)
            return failure if is_of(key, finding.key) or is_of(finding.key, key) else None
        return failure

    if finding.died:
        failure = run_log(finding.log, observe=lambda *_: trials.beat()).failure
        if failure is None:
            note = "the run was repeated and passed: the process was killed from outside, or lacked memory or time"
            return write_unshrunk(finding, out, note, Replays(Verdict.FIXED, (), 0, 1))
        log = finding.log.as_regression(failure.fingerprint)
        finding = replace(finding, fingerprint=failure.fingerprint, log=log, died="")
    tries, rate = _tries_of(finding, trials.beat)
    if not tries:
        report = write_unshrunk(finding, out, rate)
        why = f"{finding.fingerprint}: {rate}; it is kept: {report.path or 'in memory only'}"
        return replace(report, replays=Replays(Verdict.FLAKY, (), 0, RUNS_FOR_RATE, why))
    try:
        small = shrink(finding.log, still_fails, budget, passed=finding.passed)
    except DoesNotFail:
        return _not_reproduced(finding, out)
    sealed_finding = _sealed_finding(finding, small, out, trials, tries)
    if rate:
        sealed_finding = replace(sealed_finding, story=[*sealed_finding.story, StoryLine(StoryPart.EVIDENCE, rate)])
    depth = _depth(sealed_finding.log, lambda *_: trials.beat()) if sealed_finding.is_confirmed else []
    return replace(sealed_finding, story=[*sealed_finding.story, *depth])


def _inner(finding: Finding, path: Path, trials: Trials) -> tuple[Finding | None, str]:
    """The finding in the op-log that the check inside of a server has recorded, and a note about it.

    There is no finding if its engine is not installed here, or if the log passes behind the port of its engine.
    """
    try:
        log = load_for_here(path)
        failure = run_log(log, observe=lambda *_: trials.beat()).failure
    except UsageError as error:
        return None, f"the op-log of the check inside is not replayed: {error}"
    engine = f"{log.header.engine}=={log.header.version}"
    note = f"{len(log.ops)} ops that the check inside has recorded"
    if failure is None:
        return None, f"{note} pass when they are replayed on {engine}: {path}"
    name = failure.fingerprint
    inner = Finding(name, log.as_regression(name), finding.found_cpu_seconds, engine)
    return inner, f"{note} fail when they are replayed on {engine}"


def _with_inner(finding: Finding, inner: Finding, out: Path, note: str) -> Finding:
    """The finding whose cause the inner finding shows: written unshrunk, or counted for the inner known bugs."""
    if inner.cause.bugs:
        return _of_known_bugs(finding, finding.log, inner.cause)
    told = (
        f"{note}, and so do {inner.ops} of them: {inner.path}" if inner.is_confirmed else f"{note}; {inner.why_flaky}"
    )
    shrunk = StoryLine(StoryPart.CLAIM, told)
    whole = replace(finding, inner=inner, story=[*finding.story, shrunk, *inner.story])
    note = "the requests from outside are not shrunk: the op-log above needs no server"
    return write_unshrunk(whole, out, note, Replays(Verdict.FAILED, (finding.fingerprint,), 1, 1))


def _tries_of(finding: Finding, heartbeat: Callable[[], None]) -> tuple[int, str]:
    """How often a log must pass to count as passing, and why; 0 if the finding does not fail again.

    It is 1 if the target is repeatable; else a failure with the measured rate is missed once in twenty times.
    """
    if target_for(finding.log.header).is_repeatable:
        return 1, ""
    runs = [failure_like(finding.log, finding.fingerprint, heartbeat) is not None for _ in range(RUNS_FOR_RATE)]
    rate = sum(runs) / len(runs)
    text = f"the unshrunk log failed in {sum(runs)} of {len(runs)} runs"
    tries = 1 if rate == 1 else ceil(log_of_number(MISSED) / log_of_number(1 - rate)) if rate else 0
    return tries, text


def _sealed_finding(finding: Finding, small: Shrunk, out: Path, trials: Trials, tries: int) -> Finding:
    """Run the shrunk log again and write it; the finding is FLAKY if it does not fail in this way.

    If the shrunk log passes with the fixes of known bugs, and so does the unshrunk one, the finding is of these bugs,
    and no log is written.  If only the shrunk log passes, the unshrunk one is written.
    """
    bare = _without_needless_fixes(small.log, finding, trials.beat)
    for _ in range(tries):
        log, driver = sealed(bare)
        failure = driver.failure
        if failure is not None and failure.is_called(finding.fingerprint):
            break
    else:
        return _not_reproduced(finding, out)
    cause = Verifier(target_for(log.header), log.header.fixes, trials).cause_of(failure, log)
    if cause.bugs and not _is_known(finding, trials):
        note = f"shrinking leads to the known bug {cause.name}, but this log is not verified to be of a known bug"
        return write_unshrunk(finding, out, note, Replays(Verdict.FAILED, (finding.fingerprint,), 1, 1))
    if cause.bugs:
        return _of_known_bugs(finding, log, cause)
    statements = key_of(log, failure, trials.beat)
    if finding.key and leaves_out(failure) and not statements & finding.key:
        note = f"shrinking leads to another failure of this name: {', '.join(sorted(statements))}"
        return write_unshrunk(finding, out, note, Replays(Verdict.FAILED, (finding.fingerprint,), 1, 1))
    finding = replace(finding, statements=statements, suffix=kind_of("", statements) if finding.suffix else "")
    path = _written(log, finding, out)
    faults = [StoryLine(StoryPart.EVIDENCE, f"while this was shrunk: {fault}") for fault in small.target_faults]
    return replace(
        finding,
        log=log,
        story=[*story_lines(log.header, failure, path, is_minimal=small.complete), *faults],
        passed=small.passed,
        path=path,
        engine_steps=driver.counts.engine_steps,
        shrink_cpu_seconds=small.cpu_seconds,
        replays=Replays(Verdict.FAILED, failure.fingerprints, 1, 1),
        cause=cause,
    )


def _of_known_bugs(finding: Finding, log: OpLog, cause: Cause) -> Finding:
    if finding.path is not None:
        finding.path.unlink(missing_ok=True)
    return replace(finding, log=log, cause=cause, path=None)


def _is_known(finding: Finding, trials: Trials) -> bool:
    """Whether the unshrunk log of a finding passes with the fixes of known bugs."""
    header, failure = finding.log.header, failure_like(finding.log, finding.fingerprint, trials.beat)
    if failure is None:
        return False
    return bool(Verifier(target_for(header), header.fixes, trials).cause_of(failure, finding.log).bugs)


def _without_needless_fixes(log: OpLog, finding: Finding, heartbeat: Callable[[], None]) -> OpLog:
    """The log with only those of the fixes planted to exclude known bugs without which it does not fail in this way."""
    behind = finding.cause.behind
    for needless in (behind, *((name,) for name in behind)):
        fixes = tuple(name for name in log.header.fixes if name not in needless)
        bare = OpLog(msgspec.structs.replace(log.header, fixes=fixes), log.ops)
        if fixes != log.header.fixes and failure_like(bare, finding.fingerprint, heartbeat) is not None:
            log = bare
    return log


def _depth(log: OpLog, observe: Callable[..., None]) -> list[StoryLine]:
    """Whether the log of a run with a model also fails with the stand-in, as lines of the story."""
    if not log.header.model:
        return []
    failure = run_log(OpLog(msgspec.structs.replace(log.header, model=""), log.ops), observe=observe).failure
    if failure is None:
        told = f"passes with the stand-in for {log.header.model}: look first at what computes the model"
    else:
        told = f"fails with the stand-in for {log.header.model}, too: {failure.fingerprint}"
    return [StoryLine(StoryPart.EVIDENCE, told)]


def _not_reproduced(finding: Finding, out: Path) -> Finding:
    """The finding with both logs written: the unshrunk log, and the log of the run that ended differently."""
    again = run_log(finding.log, keep_digests=True)
    kept = [_written(finding.log, finding, out)]
    if again.failure is None or not again.failure.is_called(finding.fingerprint):
        other = log_of(finding.log.header, again)
        kept.append(_written(other, replace(finding, fingerprint=f"not {finding.fingerprint}", path=None), out))
    paths = ", ".join(str(path) for path in kept if path) or "in memory only, because they cannot be written"
    why = f"{finding.fingerprint}: does not fail again; both logs are kept: {paths}"
    return replace(finding, path=kept[0], replays=Replays(Verdict.FLAKY, (), 0, 1, diverged=why))


def write_unshrunk(finding: Finding, out: Path, note: str, replays: Replays | None = None) -> Finding:
    """Write the unshrunk log of a finding that cannot be shrunk, with the story that it has; `note` is the reason.

    No pytest file is written, because a log that kills its process would kill the whole test run.
    """
    header = msgspec.structs.replace(finding.log.header, expected=finding.fingerprint)
    log = OpLog(header, finding.log.ops)
    path = _written(log, finding, out, with_test=False)
    first, *stack = finding.died.splitlines() or [""]
    story = [] if finding.story else [StoryLine(StoryPart.CLAIM, f"{finding.fingerprint}: {first}".removesuffix(": "))]
    story += [StoryLine(StoryPart.EVIDENCE, line.strip(), 2 * (len(line) - len(line.lstrip()))) for line in stack]
    story += [*finding.story, StoryLine(StoryPart.EVIDENCE, note), *([replay_line(path)] if path else [])]
    return replace(finding, log=log, story=story, path=path, replays=replays)


def save_unshrunk(log: OpLog, name: str, out: Path | None, seed: int) -> Path | None:
    """Write an unshrunk log; a file of the same name is overwritten.

    Returns None if there is no folder or the file cannot be written; then the log is kept in memory only.
    """
    if out is None:
        return None
    path = out / f"{slug(name)}-seed{seed}.unshrunk.oplog"
    try:
        log.save(path, overwrite=True, inside=out)
    except OpLogError:
        return None
    return path


def _written(log: OpLog, finding: Finding, out: Path, *, with_test: bool = True) -> Path | None:
    """Write the log and remove the unshrunk one; returns the path, or None if the file cannot be written."""
    try:
        path = write(log, finding.name, out, with_test=with_test)
    except (OSError, OpLogError):
        return None
    if finding.path is not None:
        finding.path.unlink(missing_ok=True)
    return path


def sealed(log: OpLog) -> tuple[OpLog, Driver]:
    """The log, run again: with digests, up to the op that fails; and the driver of that run.

    The log is not marked as truncated any more, because it fails by itself.
    """
    driver = run_log(log, keep_digests=True, tracer_of=decision_tracer)
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
    test = test_text(log, fingerprint, name)
    write_whole(path.with_name(f"test_{_identifier(name)}.py"), test.encode(), inside=root or out)
    return path


def test_text(log: OpLog, title: str, name: str) -> str:
    """The pytest file that replays an op-log."""
    title = printable(title).replace("\\", r"\\").replace('"', r"\"")  # of a log from outside, too
    return TEST_FILE.format(title=title, name=_identifier(name), log=log_code(log))


def _identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name.replace("+", "_and_"))
