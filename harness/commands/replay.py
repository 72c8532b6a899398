"""swarden replay: op-logs again, each with a verdict."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.console import OUT, print_json
from harness.commands.events import EventLines, EventsOption, event_lines
from harness.driver import STUCK
from harness.errors import UsageError
from harness.exit_codes import ExitCode, worst
from harness.oplog import OpLog
from harness.replay import Replayed, TruncatedLog, Verdict
from harness.replay import replay as run_again
from harness.report import failure_text


def replay(
    paths: Annotated[list[Path], typer.Argument(help="op-logs, as written when a run failed")],
    *,
    events: EventsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run op-logs again: FIXED, FAILED (as before), CHANGED (in another way) or ERROR (unreadable) each."""
    with event_lines(events) as lines:
        codes, told = _replay_all(paths, lines, as_json=as_json)
    if as_json:
        print_json({"replays": told})
    raise typer.Exit(worst(codes))


def _replay_all(
    paths: list[Path], lines: EventLines, *, as_json: bool
) -> tuple[list[ExitCode], list[dict[str, str | None]]]:
    """One after the other, each told of at once; how each ends, in codes and for scripts."""
    codes: list[ExitCode] = []
    told: list[dict[str, str | None]] = []
    for path in paths:
        lines.write("replay", path=str(path))
        try:
            outcome = run_again(OpLog.load(path), lines.write_transition if lines.is_on else None)
        except UsageError as error:
            codes.append(ExitCode.MISUSE)
            told.append({"path": str(path), "verdict": "ERROR", "why": _why(path, error)})
            _print(as_json, f"ERROR {_why(path, error)}")
            continue
        codes.append(_code(outcome))
        failure = outcome.driver.failure
        told.append(
            {
                "path": str(path),
                "verdict": outcome.verdict.value,
                "fingerprint": failure.fingerprint if failure else None,
                "diverged": outcome.diverged,
            }
        )
        _print(as_json, _story(path, outcome))
    return codes, told


def _why(path: Path, error: UsageError) -> str:
    """What is wrong with a file, with its name."""
    return f"{path}: {error}" if isinstance(error, TruncatedLog) else str(error)


def _code(outcome: Replayed) -> ExitCode:
    if outcome.is_nondeterministic:
        return ExitCode.NONDETERMINISTIC
    if outcome.verdict is Verdict.FIXED:
        return ExitCode.CLEAN
    failure = outcome.driver.failure
    return ExitCode.STUCK if failure and failure.fingerprint == STUCK else ExitCode.VIOLATED


def _story(path: Path, outcome: Replayed) -> str:
    lines = [f"{outcome.verdict.value} {path}"]
    if outcome.diverged and outcome.is_same_build:
        lines.append(f"not deterministic: {outcome.diverged}")
    elif outcome.diverged:
        lines.append(f"remark: another build wrote this log; the state differs from {outcome.diverged}")
    if outcome.log.header.truncated:
        lines.append(f"remark: not all of the run is in this log: {outcome.log.header.truncated}")
    if outcome.driver.failure is not None:
        lines.append(failure_text(outcome.driver.failure, path))
    return "\n".join(lines)


def _print(as_json: bool, text: str) -> None:
    if not as_json:
        OUT.print(text, markup=False)
