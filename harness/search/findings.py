"""The report of a finding: a shrunk op-log, a test that replays it (the log as Python code), and the story."""

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from math import ceil
from math import log as log_of_number
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import msgspec

from swarden.harness.core.admission import load_for_here
from swarden.harness.core.changes import fitting_fixes
from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.errors import EngineGone, UsageError
from swarden.harness.core.files import write_whole
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.oplog import Header, OpLog, OpLogError
from swarden.harness.core.ops import Drain, Step
from swarden.harness.core.printable import printable
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import Verdict, failure_like, log_of, run_log
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.story import StoryLine, StoryPart, claim_of, replay_line, story_lines
from swarden.harness.search.cures import NO_TRIALS, Trials
from swarden.harness.search.keys import is_of, key_of, kind_of, leaves_out
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import BudgetSpent, DoesNotFail, ShrinkBudget, Shrunk, measure, shrink
from swarden.harness.search.shrink.simpler import with_settings
from swarden.harness.search.verification import Cause, Verifier

INDENT = "    "
# The fields of a header that change a run.
RUN_FIELDS = ("engine", "version", "machine", "configs", "mutant", "fixes", "model")
RUNS_FOR_RATE, MISSED = 5, 0.05  # of a failure that is not in each run of its log; the share of runs that may miss it
CALM_RUNS = 2
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


class Rate(NamedTuple):
    """How often a log must pass to count as passing, and why."""

    tries: int
    text: str


@dataclass(frozen=True)
class Reporting:
    """Makes the reports of findings, below `out`.

    Until a shrink ends, its smallest log so far is in the file of the unshrunk one, and `on_smaller` gets each;
    `is_stopped` ends it with that log, even within a run.
    """

    out: Path
    budget: ShrinkBudget
    trials: Trials = NO_TRIALS
    is_stopped: Callable[[], bool] = lambda: False
    on_smaller: Callable[[Finding], None] = lambda _: None

    def report(self, finding: Finding) -> Finding:
        """Shrink a finding, run its log again and write it under a unique name; its unshrunk log is removed.

        A shrink that was begun before is continued.  The log of a finding that killed its worker is run once more; if
        it passes, it is written unshrunk.  So is any other finding that does not fail again, which is FLAKY.  If the
        strict check inside of a server has recorded an op-log that fails without the server, that op-log is shrunk.
        """
        return self._with_inner(finding, Path(finding.recorded)) if finding.recorded else self._of(finding)

    def _of(self, finding: Finding) -> Finding:
        if finding.died:
            failure = run_log(finding.log, observe=self._beat).failure
            if failure is None:
                note = "the run was repeated and passed: the process was killed from outside, or lacked memory or time"
                return write_unshrunk(finding, self.out, note).repeated(Verdict.FIXED, 0, 1)
            name = failure.fingerprint
            finding = finding.changed(fingerprint=name, log=finding.log.as_regression(name), died="")
        finding = self._calmed(finding)
        tries, text = rate = self._tries_of(finding)
        if not tries:
            report = write_unshrunk(finding, self.out, text)
            why = f"{finding.fingerprint}: {text}; it is kept: {report.path or 'in memory only'}"
            return report.repeated(Verdict.FLAKY, 0, RUNS_FOR_RATE, why)
        try:
            small = self._shrunk(finding, tries)
        except DoesNotFail:
            return self._not_reproduced(finding)
        bare = self._without_needless_fixes(small.log, finding)
        for _ in range(tries):
            log, driver = sealed(bare)
            if driver.failure is not None and driver.failure.is_called(finding.fingerprint):
                return self._judged(finding.changed(log=log), driver, small, finding, rate)
        return self._not_reproduced(finding)

    def _with_inner(self, finding: Finding, path: Path) -> Finding:
        """Report a finding by the op-log that the check inside of a server has recorded, if that fails here."""
        inner, note = self._inner(finding, path)
        if inner is None:
            report = self._of(finding)
            return report.changed(story=[*report.story, StoryLine(StoryPart.EVIDENCE, note)])
        inner = self._of(inner)
        if inner.cause.bugs:
            return _of_known_bugs(finding, inner.cause)
        shown = f"{note}, and so do {inner.ops} of them: {inner.path}"
        claim = StoryLine(StoryPart.CLAIM, shown if inner.is_confirmed else f"{note}; {inner.why_flaky}")
        whole = finding.changed(inner=inner, story=[*finding.story, claim, *inner.story])
        note = "the requests from outside are not shrunk: the op-log above needs no server"
        return write_unshrunk(whole, self.out, note).repeated(Verdict.FAILED, 1, 1)

    def _inner(self, finding: Finding, path: Path) -> tuple[Finding | None, str]:
        """The finding in the op-log that was recorded, and a note; no finding if it passes here, or cannot be run."""
        try:
            recorded = load_for_here(path)
            fixes = tuple(patch.name for patch in fitting_fixes(target_for(recorded.header)))
            for log in (recorded.with_fixes(fixes), recorded):  # a known bug may fail first
                if (failure := run_log(log, observe=self._beat).failure) is not None:
                    break
        except UsageError as error:
            return None, f"the op-log of the check inside is not replayed: {error}"
        engine = f"{log.header.engine}=={log.header.version}"
        note = f"{len(log.ops)} ops that the check inside has recorded"
        if failure is None:
            return None, f"{note} pass when they are replayed on {engine}: {path}"
        name, cause = failure.fingerprint, Cause(fails_with=log.header.fixes)
        inner = Finding(name, log.as_regression(name), finding.found_cpu_seconds, engine, cause=cause)
        return inner, f"{note} fail when they are replayed on {engine}"

    def _beat(self, *_: object) -> None:
        self.trials.beat()

    def _go_on(self) -> None:
        if self.is_stopped():
            raise BudgetSpent
        self.trials.beat()

    def _calmed(self, finding: Finding) -> Finding:
        """The finding with the calm settings of its target, if its log fails with them, each time."""
        log, calm = finding.log, target_for(finding.log.header).calm
        configs = with_settings(log.header.configs, range(len(log.header.configs)), dict(calm))
        calmed = OpLog(msgspec.structs.replace(log.header, configs=configs), log.ops)
        if configs == log.header.configs:
            return finding
        runs = (failure_like(calmed, finding.fingerprint, self._beat) for _ in range(CALM_RUNS))
        return finding if None in runs else finding.changed(log=calmed)

    def _tries_of(self, finding: Finding) -> Rate:
        """How often a log must pass to count as passing, and why; 0 if the finding does not fail again.

        It is 1 if the target is repeatable; else a failure with the measured rate is missed once in twenty times.
        """
        if target_for(finding.log.header).is_repeatable:
            return Rate(1, "")
        runs = [failure_like(finding.log, finding.fingerprint, self._beat) is not None for _ in range(RUNS_FOR_RATE)]
        rate = sum(runs) / len(runs)
        text = f"the unshrunk log failed in {sum(runs)} of {len(runs)} runs"
        tries = 1 if rate == 1 else ceil(log_of_number(MISSED) / log_of_number(1 - rate)) if rate else 0
        return Rate(tries, text)

    def _shrunk(self, finding: Finding, tries: int) -> Shrunk:
        """Shrink the log of a finding, and keep the smallest log so far."""
        smallest = measure(finding.log)

        def still_fails(log: OpLog) -> Failure | None:
            nonlocal smallest
            self._go_on()
            failures = (failure_like(log, finding.fingerprint, self._go_on) for _ in range(tries))
            failure = next((failure for failure in failures if failure is not None), None)
            if failure is not None and finding.suffix:
                key = key_of(log, failure, self._go_on)
                failure = failure if is_of(key, finding.key) or is_of(finding.key, key) else None
            if failure is not None:
                smaller = finding.changed(log=OpLog(log.header, log.ops[: failure.op_index + 1]))
                if measure(smaller.log) < smallest:
                    smallest = measure(smaller.log)
                    _keep(smaller)
                    self.on_smaller(smaller)
            return failure

        return shrink(finding.log, still_fails, self.budget, passed=finding.passed)

    def _without_needless_fixes(self, log: OpLog, finding: Finding) -> OpLog:
        """The log without the planted fixes that do not matter: it fails in the same way without them."""
        planted = finding.cause.fails_with
        for needless in (planted, *((name,) for name in planted)):
            fixes = tuple(name for name in log.header.fixes if name not in needless)
            bare = log.with_header(fixes=fixes)
            if fixes != log.header.fixes and failure_like(bare, finding.fingerprint, self._beat) is not None:
                log = bare
        return log

    def _judged(self, report: Finding, driver: Driver, small: Shrunk, finding: Finding, rate: Rate) -> Finding:
        """The report of a finding whose shrunk log has failed again, written and with its story.

        If the shrunk log passes with the fixes of known bugs, and so does the unshrunk one, the finding is of these
        bugs, and no log is written.  If only the shrunk log passes, the unshrunk one is written.
        """
        log, failure = report.log, driver.failure
        assert failure is not None, f"{report} has failed again"
        cause = self._cause_of(failure, log, rate.tries)
        if cause.bugs and not self._is_known(finding, rate.tries):
            note = f"shrinking leads to the known bug {cause.name}, but this log is not verified to be of a known bug"
            return self._whole(finding, note)
        if cause.bugs:
            return _of_known_bugs(report, cause)
        statements = key_of(log, failure, self.trials.beat)
        if finding.key and leaves_out(failure) and not statements & finding.key:
            note = f"shrinking leads to another failure of this name: {', '.join(sorted(statements))}"
            return self._whole(finding, note)
        report = report.changed(statements=statements, suffix=kind_of("", statements) if finding.suffix else "")
        path = _written(report, self.out)
        remarks = [f"while this was shrunk: {fault}" for fault in small.target_faults]
        remarks += filter(None, [rate.text, self._depth(log), self._behind_port(finding, log)])
        lines = story_lines(log.header, failure, path, is_minimal=small.complete)
        return report.changed(
            story=[*lines, *(StoryLine(StoryPart.EVIDENCE, remark) for remark in remarks)],
            passed=(),
            path=path,
            engine_steps=driver.counts.engine_steps,
            shrink_cpu_seconds=small.cpu_seconds,
            cause=cause,
        ).repeated(Verdict.FAILED, 1, 1, names=failure.fingerprints)

    def _cause_of(self, failure: Failure, log: OpLog, tries: int) -> Cause:
        """The known bugs with whose fixes a log passes, or without which it passes on a server."""
        target, avoided = target_for(log.header), list[str]()
        for name, avoiding in target.avoidances(log.header.configs, failure.fingerprints).items():
            with avoiding, suppress(EngineGone):  # a server that does not know the flags ends at once
                if all(run_log(log, observe=self._beat).failure is None for _ in range(tries)):
                    avoided.append(name)
        if avoided:
            return Cause(tuple(sorted(avoided)), is_either=True)
        return Verifier(target, log.header.fixes, self.trials).cause_of(failure, log)

    def _behind_port(self, finding: Finding, log: OpLog) -> str:
        """How the ops of a server end behind the port of its release; "" if that is not known."""
        try:
            if (place := target_for(log.header).behind_port(log.header.configs)) is None:
                return ""
            engine, configs = place
            name, _, version = engine.partition("==")
            ops = [Drain() if isinstance(op, Step) else op for op in log.ops]  # a round ends at rest
            inner = OpLog(Header(engine=name, version=version, configs=configs), ops)
            failure = run_log(inner, observe=self._beat).failure
        except UsageError as error:
            return f"these ops were not tried behind the port of its release: {error}"
        if failure is None:
            return f"these ops pass behind the port of {engine}: look first at its model, its kernels and its front"
        called = failure.fingerprint
        report = self._of(Finding(called, inner.as_regression(called), finding.found_cpu_seconds, engine))
        note = f"these ops fail behind the port of {engine}, too: {called}"
        where = f": {report.path or 'in memory only'}"
        return note + (f"; they pass with the fix of {report.cause.name}" if report.cause.bugs else where)

    def _is_known(self, finding: Finding, tries: int) -> bool:
        """Whether the unshrunk log of a finding passes with the fixes of known bugs."""
        failure = failure_like(finding.log, finding.fingerprint, self._beat)
        return failure is not None and bool(self._cause_of(failure, finding.log, tries).bugs)

    def _depth(self, log: OpLog) -> str:
        """Whether the log of a run with a model also fails with the stand-in; "" for a run with the stand-in."""
        model = log.header.model
        if not model:
            return ""
        failure = run_log(log.with_header(model=""), observe=self._beat).failure
        if failure is None:
            return f"passes with the stand-in for {model}: look first at what computes the model"
        return f"fails with the stand-in for {model}, too: {failure.fingerprint}"

    def _whole(self, finding: Finding, note: str) -> Finding:
        """The finding with its unshrunk log, which fails again, because the shrunk one shows something else."""
        failure = run_log(finding.log, observe=self._beat, tracer_of=decision_tracer).failure
        story = story_lines(finding.log.header, failure) if failure is not None else ()
        return write_unshrunk(finding.changed(story=story), self.out, note).repeated(Verdict.FAILED, 1, 1)

    def _not_reproduced(self, finding: Finding) -> Finding:
        """The finding with both logs written: the unshrunk log, and the log of the run that ended differently."""
        again = run_log(finding.log, keep_digests=True)
        written = [_written(finding, self.out)]
        if again.failure is None or not again.failure.is_called(finding.fingerprint):
            other, name = log_of(finding.log.header, again), f"not {finding.fingerprint}"
            written.append(_written(finding.changed(log=other, fingerprint=name, path=None), self.out))
        paths = ", ".join(map(str, filter(None, written))) or "in memory only, because they cannot be written"
        why = f"{finding.fingerprint}: does not fail again; both logs are kept: {paths}"
        story = finding.story or [StoryLine(StoryPart.CLAIM, claim_of(finding.fingerprint))]
        return finding.changed(path=written[0], story=story).repeated(Verdict.FLAKY, 0, 1, why)


def _of_known_bugs(finding: Finding, cause: Cause) -> Finding:
    if finding.path is not None:
        finding.path.unlink(missing_ok=True)
    return finding.changed(cause=cause, path=None)


def write_unshrunk(finding: Finding, out: Path, note: str) -> Finding:
    """Write the log of a finding that is not shrunk any further, with the story that it has; `note` is the reason.

    No pytest file is written, because a log that kills its process would kill the whole test run.
    """
    finding = finding.changed(log=finding.log.as_regression(finding.fingerprint))
    path = _written(finding, out, with_test=False)
    first, *stack = finding.died.splitlines() or [""]
    claim = f"{finding.fingerprint}: {first}" if first else claim_of(finding.fingerprint)
    story = [] if finding.story else [StoryLine(StoryPart.CLAIM, claim)]
    story += [StoryLine(StoryPart.EVIDENCE, line.strip(), 2 * (len(line) - len(line.lstrip()))) for line in stack]
    story += [*finding.story, StoryLine(StoryPart.EVIDENCE, note), *([replay_line(path)] if path else [])]
    return finding.changed(story=story, path=path)


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


def _keep(finding: Finding) -> None:
    """Write a smaller log into the file of the unshrunk one, if there is one."""
    if finding.path is not None:
        with suppress(OpLogError):
            finding.log.save(finding.path, overwrite=True, inside=finding.path.parent)


def _written(finding: Finding, out: Path, *, with_test: bool = True) -> Path | None:
    """Write the log and remove the unshrunk one; returns the path, or None if the file cannot be written."""
    try:
        path = write(finding.log, finding.name, out, with_test=with_test)
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


def log_code(log: OpLog) -> str:
    """A Python expression for an op-log, one op per line, without settings and arguments that have their defaults."""
    defaults, absent = target_for(log.header).defaults, object()
    configs = [
        {name: value for name, value in config.items() if value != defaults.get(name, absent)}
        for config in log.header.configs
    ]
    header = msgspec.structs.replace(log.header, configs=configs)
    fields = [f"{name}={getattr(header, name)!r},\n" for name in RUN_FIELDS if getattr(header, name)]
    ops = [f"{value_code(op)},\n" for op in log.ops]
    arguments = f"Header(\n{indent(''.join(fields), INDENT)}),\n[\n{indent(''.join(ops), INDENT)}],\n"
    return f"OpLog(\n{indent(arguments, INDENT)})"


def value_code(value: object) -> str:
    """A value as Python code, with types of `swarden.kit.ops`; without the fields that have their defaults."""
    if isinstance(value, Enum):
        return f"ops.{type(value).__name__}.{value.name}"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    bare = type(value)()
    fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
    changed = [f"{name}={value_code(own)}" for name, own in fields if own != getattr(bare, name)]
    return f"ops.{type(value).__name__}({', '.join(changed)})"
