"""swarden replay: op-logs again, each with a verdict."""

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.console import OUT, print_json
from harness.driver import STUCK
from harness.errors import UsageError
from harness.exit_codes import ExitCode, worst
from harness.oplog import OpLog
from harness.replay import Replayed, Verdict
from harness.replay import replay as run_again
from harness.report import failure_text


def replay(
    paths: Annotated[list[Path], typer.Argument(help="op-logs, as written when a run failed")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run op-logs again: FIXED, FAILED (as before), CHANGED (in another way) or ERROR (unreadable) each."""
    codes: list[ExitCode] = []
    told: list[dict[str, str | None]] = []
    for path in paths:
        try:
            outcome = run_again(OpLog.load(path))
        except UsageError as error:
            codes.append(ExitCode.MISUSE)
            told.append({"path": str(path), "verdict": "ERROR", "why": str(error)})
            _print(as_json, f"ERROR {error}")
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
    if as_json:
        print_json({"replays": told})
    raise typer.Exit(worst(codes))


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
    if outcome.driver.failure is not None:
        lines.append(failure_text(outcome.driver.failure, path))
    return "\n".join(lines)


def _print(as_json: bool, text: str) -> None:
    if not as_json:
        OUT.print(text, markup=False)
