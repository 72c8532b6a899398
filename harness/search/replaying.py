"""Op-logs that are run again, here or elsewhere: each with its verdict, its figures and its story."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.driver import STUCK, Driver
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import BOOT_S, Death, Process, ProcessDied, ProcessLimits
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import Replays, Verdict, repeat
from swarden.harness.core.versions import check_version
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.heading import change_lines, configuration_line, opening_lines
from swarden.harness.report.story import StoryLine, StoryPart, story_lines
from swarden.harness.search.deaths import death_of, replays_of
from swarden.invariants.transition import Transition

STAND_IN = "stand-in"  # in place of a model
OnTransition = Callable[[Driver, Transition], None]


class Elsewhere(NamedTuple):
    """The engine and the model on which an op-log is replayed, if they differ from those of the log; and more fixes."""

    engine: str | None = None
    model: str | None = None
    fixes: tuple[str, ...] = ()

    def load(self, path: Path) -> OpLog:
        model = "" if self.model == STAND_IN else self.model
        log = load_log(path, engine=self.engine, model=model)
        return log.with_fixes(fixes_of(target_for(log.header), self.fixes))

    @property
    def text(self) -> str:
        """The options of the user as text; "" if there are none."""
        target = target_of(self.engine) if self.engine is not None else None
        on = f"on {target.name} {target.version()}, as --engine says" if target is not None else ""
        model = "the stand-in" if self.model == STAND_IN else self.model
        running = f"with {model}, as --model says" if model is not None else ""
        fixed = f"with the fix of {', '.join(self.fixes)}, as --with-fix says" if self.fixes else ""
        return " and ".join(filter(None, (on, running, fixed)))


class Ended(NamedTuple):
    """The result of the replay of one op-log: its exit code, its figures for scripts, and its lines for people."""

    code: ExitCode
    figures: dict[str, Any]
    lines: list[StoryLine]
    expected: str | None = None

    @property
    def is_bad(self) -> bool | None:
        """Whether it has failed by the law or the error that the op-log expects, wherever the code of that is.

        None if it has failed otherwise, which may hide that failure, or cannot be run.
        """
        if self.verdict == Verdict.FIXED.value:
            return False
        is_same = law_of(self.expected) in map(law_of, self.fingerprints)
        return True if self.verdict == Verdict.FAILED.value or is_same else None

    @property
    def verdict(self) -> str:
        return str(self.figures["verdict"])

    @property
    def fingerprints(self) -> list[str]:
        return [*self.figures.get("fingerprints", ())]

    @property
    def text(self) -> str:
        """The verdict with its reason. ERROR is mostly a configuration that the version does not support."""
        return f"{self.verdict} {self.figures.get('why') or self.figures.get('fingerprint') or ''}".rstrip()


class Replayer:
    """Replays op-logs. A process can load only one of the targets with a `process` name.

    The first of these is loaded in this process, and each further one in a child process. All other logs run in this
    process, except those that expect a crash or a hang.
    """

    def __init__(self, where: Elsewhere, runs: int, on_transition: OnTransition | None, processes: ExitStack) -> None:
        self._where, self._runs, self._on_transition = where, runs, on_transition
        self._processes = processes
        self._first = ""
        self._others: dict[str, Process] = {}

    def ended(self, path: Path) -> Ended:
        try:
            log = self._where.load(path)
            needed = target_for(log.header).process
        except UsageError as error:
            return ended_in_error(path, error)
        self._first = self._first or needed
        if needed in ("", self._first):
            return _ended(path, log, self._where, self._runs, self._on_transition)
        if self._on_transition is not None:
            raise UsageError(
                f"--events: {path} is for {needed}, and an earlier op-log for {self._first}; want one of them"
            )
        if needed not in self._others:
            self._others[needed] = self._processes.enter_context(Process())
        try:
            ended: Ended = self._others[needed].call(_ended, path, log, self._where, self._runs, None)
        except ProcessDied as error:
            del self._others[needed]
            return _ended_by(error.death, path, log)
        return ended


def replay_apart(path: Path, engine: str) -> Ended:
    """One run of an op-log on an engine, in a process of its own, which is ended if it hangs."""
    with Process(limits=ProcessLimits(BOOT_S)) as process:
        try:
            ended: Ended = process.call(_replay_once, path, engine)
        except ProcessDied as error:
            return _ended_by(error.death, path, load_log(path))
    return ended


def _replay_once(path: Path, engine: str) -> Ended:
    try:
        log = load_log(path, engine=engine)
    except UsageError as error:
        return ended_in_error(path, error)
    return _ended(path, log, Elsewhere(engine), 1, None)


def law_of(fingerprint: str | None) -> str | None:
    """The invariant or error that a fingerprint names first."""
    return None if fingerprint is None else fingerprint.split("/")[0]


def ended_in_error(path: Path, error: UsageError) -> Ended:
    """The result for a log that cannot be run."""
    why = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
    figures = {"path": str(path), "verdict": Verdict.ERROR.value, "why": why}
    return Ended(ExitCode.MISUSE, figures, [StoryLine(StoryPart.VERDICT, f"{Verdict.ERROR.value} {why}")])


def _ended(path: Path, log: OpLog, where: Elsewhere, runs: int, on_transition: OnTransition | None) -> Ended:
    try:
        if where.engine is None:
            here = f"give --engine {log.header.engine} to replay it on the installed version"
            check_version(path, log.header, or_else=here)
        death = death_of(log)
        if death is not None:
            return _ended_by(death, path, log)
        replays = repeat(log, runs, on_transition, tracer_of=decision_tracer)
    except UsageError as error:
        return ended_in_error(path, error)
    story = _lines_of(path, log, replays)
    if where.text:
        story.insert(1, StoryLine(StoryPart.EVIDENCE, f"replayed {where.text}"))
    return Ended(_code(replays), _figures(path, log, replays), story, log.header.expected)


def _ended_by(death: Death, path: Path, log: OpLog) -> Ended:
    """The result for a log that killed its process."""
    replays = replays_of(death, log)
    verdict, names = replays.verdict.value, list(replays.fingerprints)
    story = [
        StoryLine(StoryPart.VERDICT, f"{verdict} {path}"),
        StoryLine(StoryPart.EVIDENCE, f"run in a process of its own, which {death.how}"),
    ]
    headings = [
        *opening_lines(log.header),
        *(configuration_line(log.header, n) for n in range(len(log.header.configs))),
    ]
    story += [StoryLine(StoryPart.HEADING, heading) for heading in headings]
    figures = _figures_of(path, log, verdict) | {
        "fingerprint": next(iter(names), None),
        "fingerprints": names,
        "why": f"the process {death.how}",
    }
    return Ended(ExitCode.VIOLATED, figures, story, log.header.expected)


def _code(replays: Replays) -> ExitCode:
    if replays.is_nondeterministic:
        return ExitCode.NONDETERMINISTIC
    if replays.failure is None:
        return ExitCode.CLEAN
    return ExitCode.STUCK if replays.failure.fingerprint == STUCK else ExitCode.VIOLATED


def _figures(path: Path, log: OpLog, replays: Replays) -> dict[str, Any]:
    """The figures of one op-log for scripts; `fingerprint` is the expected one if it was found."""
    found, expected = list(replays.fingerprints), log.header.expected
    return _figures_of(path, log, replays.verdict.value) | {
        "runs": replays.runs,
        "failures": replays.failures,
        "fingerprint": expected if expected in found else next(iter(found), None),
        "fingerprints": found,
        "diverged": replays.diverged or None,
    }


def _figures_of(path: Path, log: OpLog, verdict: str) -> dict[str, Any]:
    return {
        "path": str(path),
        "verdict": verdict,
        "engine": log.header.engine,
        "version": target_for(log.header).version(),
        "model": log.header.model or None,
        "mutant": log.header.mutant,
    }


def _lines_of(path: Path, log: OpLog, replays: Replays) -> list[StoryLine]:
    header, failure, verdict = log.header, replays.failure, replays.verdict
    is_rate = verdict is Verdict.FLAKY or not target_for(header).is_repeatable
    counts = f": failed {replays.failures} of {replays.runs} runs" if is_rate else ""
    lines = [StoryLine(StoryPart.VERDICT, f"{verdict.value} {path}{counts}")]
    if replays.is_nondeterministic:
        lines.append(StoryLine(StoryPart.EVIDENCE, f"not deterministic: {replays.diverged}"))
    elif replays.diverged:
        remark = f"remark: another build wrote this log; the state differs from {replays.diverged}"
        lines.append(StoryLine(StoryPart.EVIDENCE, remark))
    if header.truncated:
        lines.append(StoryLine(StoryPart.EVIDENCE, f"remark: not all of the run is in this log: {header.truncated}"))
    if failure is None:
        return [*lines, *(StoryLine(StoryPart.HEADING, line) for line in change_lines(header))]
    if header.expected and not failure.is_called(header.expected):
        lines.append(StoryLine(StoryPart.EVIDENCE, f"expected: {header.expected}"))
    lines.append(StoryLine(StoryPart.EVIDENCE, f"found: {', '.join(failure.fingerprints)}"))
    return lines + story_lines(header, failure, path)
