"""swarden shrink: makes an op-log smaller that still fails in the same way."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from swarden.harness.commands import servers
from swarden.harness.commands.console import OUT, print_json
from swarden.harness.core.admission import load_for_here
from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import check_target, mode_of
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.replay import failure_like, run_log
from swarden.harness.report.heading import needs_line
from swarden.harness.search.findings import sealed
from swarden.harness.search.shrink.explain import explain, explanation_lines
from swarden.harness.search.shrink.shrink import BudgetSpent, ShrinkBudget
from swarden.harness.search.shrink.shrink import shrink as make_smaller
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS

MAX_REPLAYS = 500


@dataclass(slots=True)
class _Replays:
    """The replays of candidates; an interrupt ends the shrink, which keeps the smallest op-log so far."""

    fingerprint: str
    ended_by: str = "the budget was used up"

    def still_fails(self, candidate: OpLog) -> Failure | None:
        try:
            return failure_like(candidate, self.fingerprint)
        except KeyboardInterrupt as interrupt:
            self.ended_by = "it was interrupted"
            raise BudgetSpent from interrupt


def shrink(
    path: Annotated[Path, typer.Argument(help="an op-log that fails")],
    *,
    out: Annotated[Path | None, typer.Option(help="path of the smaller op-log; FILE.small.oplog by default")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="maximum CPU seconds")] = SHRINK_CPU_SECONDS,
    explain_it: Annotated[
        bool, typer.Option("--explain", help="also say which ops, which order and which values the failure needs")
    ] = False,
    replays: Annotated[int, typer.Option(min=1, help="maximum number of replays of --explain")] = MAX_REPLAYS,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
    server: servers.OfLogs = servers.NONE,
) -> None:
    """Delete ops and simplify their arguments as long as the op-log fails with the same fingerprint."""
    server.publish()
    target = out or path.with_suffix(".small.oplog")
    check_target("--out", target)
    log = load_for_here(path)
    failure = run_log(log).failure
    if failure is None:
        raise UsageError(f"{path}: does not fail; there is nothing to shrink")
    expected = log.header.expected
    fingerprint = expected if expected and failure.is_called(expected) else failure.fingerprint
    replayed = _Replays(fingerprint)
    small = make_smaller(log, replayed.still_fails, ShrinkBudget(cpu_seconds=seconds))
    smaller, driver = sealed(small.log)
    smaller.save(target, mode=mode_of(path))  # it may hold prompts, too
    explanation = explain(small.log, replayed.still_fails, ShrinkBudget(replays, seconds)) if explain_it else None
    figures = {
        "fingerprint": fingerprint,
        "ops": len(smaller.ops),
        "engine_steps": driver.counts.engine_steps,
        "executions": small.executions,
        "shrink_cpu_seconds": round(small.cpu_seconds, 3),
        "complete": small.complete,
        "path": str(target),
    }
    if explanation is not None:
        figures["explanation"] = msgspec.to_builtins(explanation)
    if as_json:
        print_json(figures)
        return
    end = "" if small.complete else f", when {replayed.ended_by}"
    needs = f"\n{line}" if small.complete and (line := needs_line(smaller.header)) else ""
    OUT.print(
        f"{fingerprint}: {len(log.ops)} ops to {len(smaller.ops)} ops and {driver.counts.engine_steps} engine "
        f"steps in {small.cpu_seconds:.1f} s of CPU and {small.executions} runs{end}{needs}\nwritten: {target}"
    )
    if explanation is not None:
        OUT.print("\n".join(explanation_lines(explanation, small.log.ops)))
