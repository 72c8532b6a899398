"""Op-logs that are run again, here or elsewhere: each with its verdict, its figures and its story."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.admission import check_version, load_log
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.driver import STUCK, Driver
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.fingerprint import law_of
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import CRASH, HANG, Death, Process, ProcessDied, ProcessLimits
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import Replays, Verdict, not_run, repeat, replays_of, verdict_on
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.heading import change_lines, configuration_line, opening_lines
from swarden.harness.report.story import StoryLine, StoryPart, story_lines
from swarden.invariants.transition import Transition

HANG_SECONDS = 60.0  # without an engine step, until a log that is run again counts as hung
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
    """The end of one op-log: its exit code, its replays, its figures for scripts, and its lines for people."""

    code: ExitCode
    replays: Replays
    figures: dict[str, Any]
    lines: list[StoryLine]
    expected: str | None = None

    @property
    def is_bad(self) -> bool | None:
        """Whether it has failed by the law or the error that the op-log expects; None if that cannot be known."""
        if self.replays.verdict is Verdict.FIXED:
            return False
        names, expected = self.replays.fingerprints, [self.expected] if self.expected else []
        is_bad = bool(names) and verdict_on(names, expected, by_law=True) is Verdict.FAILED
        return True if is_bad else None


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
            return _end(path, log, self._where, *_died(error.death, log))
        return ended


def ended_in_error(path: Path, error: UsageError) -> Ended:
    """The result for a log that cannot be run."""
    why = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
    replays = not_run(why)
    figures = {"path": str(path), "verdict": replays.verdict.value, "why": why}
    return Ended(ExitCode.MISUSE, replays, figures, [StoryLine(StoryPart.VERDICT, replays.text)])


def replayed(
    log: OpLog, path: Path | None, runs: int, on_transition: OnTransition | None = None
) -> tuple[Replays, list[StoryLine]]:
    """Run a log in this process, with the story of its failure; one that expects a death, in a process of its own."""
    if law_of(log.header.expected or "") in (CRASH, HANG):
        from swarden.harness.search.tasks import replay_log  # noqa: PLC0415  # it needs Hypothesis

        with Process(limits=ProcessLimits(HANG_SECONDS)) as process:
            try:
                [_] = process.stream(replay_log, log, 1, False, nullcontext)
            except ProcessDied as error:
                return _died(error.death, log)
    replays = repeat(log, runs, on_transition, tracer_of=decision_tracer)
    return replays, story_lines(log.header, replays.failure, path) if replays.failure is not None else []


def _died(death: Death, log: OpLog) -> tuple[Replays, list[StoryLine]]:
    replays = replays_of(death, log)
    how = f"{replays.fingerprints[0]}: run in a process of its own, which {death.how}"
    return replays, [StoryLine(StoryPart.EVIDENCE, how)]


def _ended(path: Path, log: OpLog, where: Elsewhere, runs: int, on_transition: OnTransition | None) -> Ended:
    try:
        if where.engine is None:
            here = f"give --engine {log.header.engine} to replay it on the installed version"
            check_version(path, log.header, or_else=here)
        replays, story = replayed(log, path, runs, on_transition)
    except UsageError as error:
        return ended_in_error(path, error)
    return _end(path, log, where, replays, story)


def _end(path: Path, log: OpLog, where: Elsewhere, replays: Replays, story: Sequence[StoryLine]) -> Ended:
    lines, figures = _lines_of(path, log, replays, story), _figures(path, log, replays, story)
    if where.text:
        lines.insert(1, StoryLine(StoryPart.EVIDENCE, f"replayed {where.text}"))
    return Ended(_code(replays), replace(replays, failure=None), figures, lines, log.header.expected)


def _code(replays: Replays) -> ExitCode:
    if replays.is_nondeterministic:
        return ExitCode.NONDETERMINISTIC
    if not replays.failures:
        return ExitCode.CLEAN
    return ExitCode.STUCK if replays.fingerprints[0] == STUCK else ExitCode.VIOLATED


def _figures(path: Path, log: OpLog, replays: Replays, story: Sequence[StoryLine]) -> dict[str, Any]:
    """The figures of one op-log for scripts; `fingerprint` is the expected one if it was found."""
    names, header = list(replays.fingerprints), log.header
    has_died = replays.failures and replays.failure is None
    return {
        "path": str(path),
        "verdict": replays.verdict.value,
        "engine": header.engine,
        "version": target_for(header).version(),
        "model": header.model or None,
        "mutant": header.mutant,
        "runs": replays.runs,
        "failures": replays.failures,
        "fingerprint": header.expected if header.expected in names else next(iter(names), None),
        "fingerprints": names,
        "diverged": replays.diverged or None,
        **({"why": story[0].text} if has_died else {}),
    }


def _lines_of(path: Path, log: OpLog, replays: Replays, story: Sequence[StoryLine]) -> list[StoryLine]:
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
        configurations = (configuration_line(header, engine) for engine in range(len(header.configs)))
        headings = [*opening_lines(header), *configurations] if story else change_lines(header)
        return [*lines, *story, *(StoryLine(StoryPart.HEADING, line) for line in headings)]
    if header.expected and not failure.is_called(header.expected):
        lines.append(StoryLine(StoryPart.EVIDENCE, f"expected: {header.expected}"))
    lines.append(StoryLine(StoryPart.EVIDENCE, f"found: {', '.join(failure.fingerprints)}"))
    return [*lines, *story]
