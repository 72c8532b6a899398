"""swarden replay: runs op-logs again, each with a verdict."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from swarden.harness.commands import servers
from swarden.harness.commands.console import OUT, print_json
from swarden.harness.commands.events import EventLines, EventsOption, event_lines
from swarden.harness.commands.help import output_option
from swarden.harness.commands.layout import print_lines
from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.driver import STUCK
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.printable import printable
from swarden.harness.core.process import Death, Process, ProcessDied
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import RUNS, Replays, Verdict, repeat
from swarden.harness.core.versions import check_version
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.heading import change_lines, configuration_line, opening_lines
from swarden.harness.report.story import StoryLine, StoryPart, story_lines
from swarden.harness.search.deaths import death_of, is_expected

STAND_IN = "stand-in"  # in place of a model


@servers.over_http
def replay(
    paths: Annotated[list[Path], typer.Argument(help="op-log files")],
    *,
    engine: Annotated[
        str | None,
        typer.Option(help="replay on this engine, NAME or NAME==VERSION, not on the one that the log names"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"replay with this model, or with {STAND_IN!r}, not with what the log names"),
    ] = None,
    with_fix: Annotated[
        list[str] | None,
        typer.Option("--with-fix", help="replay with the fix of this known bug, or of 'all'", metavar="NAME"),
    ] = None,
    runs: Annotated[int, typer.Option("--repeat", min=1, help="runs of each op-log; FLAKY if they differ")] = RUNS,
    events: EventsOption = None,
    as_json: Annotated[bool, output_option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run op-logs again, each with a verdict.

    FIXED, FAILED (the same failure), CHANGED (another failure), FLAKY (the runs differ) or ERROR (an unusable log).
    """
    replays = []
    with event_lines(events) as lines, ExitStack() as processes:
        replaying = _Replaying(Elsewhere(engine, model, tuple(with_fix or ())), runs, lines, processes)
        for path in paths:
            lines.write("replay", path=printable(str(path)))
            replays.append(replaying.ended(path))
            if not as_json:
                print_lines(OUT, replays[-1].lines)
    if as_json:
        print_json({"replays": [one.figures for one in replays]})
    raise typer.Exit(worst(one.code for one in replays))


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


class _Replaying:
    """Replays op-logs. A process can load only one of the targets with a `process` name.

    The first of these is loaded in this process, and each further one in a child process. All other logs run in this
    process, except those that expect a crash or a hang.
    """

    def __init__(self, where: Elsewhere, runs: int, lines: EventLines, processes: ExitStack) -> None:
        self._where, self._runs, self._lines = where, runs, lines
        self._processes = processes
        self._first = ""
        self._others: dict[str, Process] = {}

    def ended(self, path: Path) -> Ended:
        try:
            log = self._where.load(path)
            needed = target_for(log.header).process
        except UsageError as error:
            return _error(path, error)
        self._first = self._first or needed
        if needed in ("", self._first):
            return _ended(path, log, self._where, self._runs, self._lines)
        if self._lines.is_on:
            raise UsageError(
                f"--events: {path} is for {needed}, and an earlier op-log for {self._first}; want one of them"
            )
        if needed not in self._others:
            self._others[needed] = self._processes.enter_context(Process())
        try:
            ended: Ended = self._others[needed].call(_ended, path, log, self._where, self._runs, EventLines(None))
        except ProcessDied as error:
            del self._others[needed]
            return _ended_by(error.death, path, log)
        return ended


def figures_of_replay(path: Path, engine: str) -> dict[str, Any]:
    """The figures of one run of an op-log on an engine."""
    try:
        log = load_log(path, engine=engine)
    except UsageError as error:
        return _error(path, error).figures
    return _ended(path, log, Elsewhere(engine), 1, EventLines(None)).figures


def _error(path: Path, error: UsageError) -> Ended:
    why = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
    figures = {"path": str(path), "verdict": "ERROR", "why": why}
    return Ended(ExitCode.MISUSE, figures, [StoryLine(StoryPart.VERDICT, f"ERROR {why}")])


def _ended(path: Path, log: OpLog, where: Elsewhere, runs: int, lines: EventLines) -> Ended:
    try:
        if where.engine is None:
            here = f"give --engine {log.header.engine} to replay it on the installed version"
            check_version(path, log.header, or_else=here)
        death = death_of(log)
        if death is not None:
            return _ended_by(death, path, log)
        on_transition = lines.write_transition if lines.is_on else None
        replays = repeat(log, runs, on_transition, tracer_of=decision_tracer)
    except UsageError as error:
        return _error(path, error)
    story = _lines_of(path, log, replays)
    if where.text:
        story.insert(1, StoryLine(StoryPart.EVIDENCE, f"replayed {where.text}"))
    return Ended(_code(replays), _figures(path, log, replays), story)


def _ended_by(death: Death, path: Path, log: OpLog) -> Ended:
    """The result for a log that killed its process."""
    verdict = (Verdict.FAILED if is_expected(log, death) else Verdict.CHANGED).value
    story = [
        StoryLine(StoryPart.VERDICT, f"{verdict} {path}"),
        StoryLine(StoryPart.EVIDENCE, f"run in a process of its own, which {death.how}"),
    ]
    headings = [
        *opening_lines(log.header),
        *(configuration_line(log.header, n) for n in range(len(log.header.configs))),
    ]
    story += [StoryLine(StoryPart.HEADING, heading) for heading in headings]
    figures = _figures_of(path, log, verdict) | {"fingerprint": log.header.expected, "why": f"the process {death.how}"}
    return Ended(ExitCode.VIOLATED, figures, story)


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
    if header.expected not in (None, *failure.fingerprints):
        lines.append(StoryLine(StoryPart.EVIDENCE, f"expected: {header.expected}"))
    lines.append(StoryLine(StoryPart.EVIDENCE, f"found: {', '.join(failure.fingerprints)}"))
    return lines + story_lines(header, failure, path)
