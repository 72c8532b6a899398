"""swarden check: what a target lacks, gets wrong, and would gain from further data."""

from typing import Annotated, Any

import typer

from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.registry import target_of
from swarden.harness.releases.further_data import FurtherData, foreign_data, found_elsewhere, further_data
from swarden.harness.releases.target_check import TargetCheck
from swarden.harness.report.wording import counted, listed
from swarden.harness.search.process import prepare_process, same_draws

MOST_STEPS = 12  # of further data that are printed


def check(
    target: Annotated[str, typer.Argument(help="the engine, as NAME or NAME==VERSION; see 'swarden engines'")],
    *,
    runs: Annotated[int, typer.Option(min=1, help="runs of drawn, and runs of shrunken configurations")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="seed of the runs")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """What a target lacks, gets wrong, and would gain: each line has its remedy, and with one the exit code is 5.

    Each run is made twice, in this process.
    """
    checked = TargetCheck(target_of(target))
    checked.target.check_environment()
    prepare_process()
    kinds = "with drawn configurations, and as many with shrunken ones"
    ERR.print(f"{counted(runs, 'run')} of {target} {kinds}, each twice; Ctrl-C ends it")
    with same_draws():
        checked.run(runs, seed)
    problems = checked.lines()
    foreign = foreign_data(checked.target, checked.missing)
    laws, more = checked.laws(), further_data(checked.missing, found_elsewhere(checked.target), foreign)
    if as_json:
        print_json(_figures(checked, problems, more))
    else:
        for line in [*(f"wrong: {problem}" for problem in problems), *checked.remarks(target)]:
            OUT.print(line)
        OUT.print(f"{counted(len(laws), 'law')} apply: {', '.join(laws)}")
        for line in _lines_of(more):
            OUT.print(line)
        wrong = counted(len(problems), "thing")
        OUT.print(f"{counted(checked.num_runs, 'run')}, each made twice: {wrong} to correct")
    raise typer.Exit(ExitCode.RED if problems else ExitCode.CLEAN)


def _lines_of(more: list[FurtherData]) -> list[str]:
    """A line for each of the further data, in their order."""
    if not more:
        return []
    lines = ["further data, if the engine has such parts, in the order of what their laws found in other engines here:"]
    for step in more[:MOST_STEPS]:
        bugs = f"{counted(step.bugs, 'bug')} and {counted(step.mutants, 'mutant')}"
        lines.append(f"  {', '.join(step.data)}: {bugs}, {counted(len(step.laws), 'law')}: {listed(step.laws, 3)}")
    if len(more) > MOST_STEPS:
        lines.append(f"  and {len(more) - MOST_STEPS} more, in --json")
    return lines


def _figures(checked: TargetCheck, problems: list[str], more: list[FurtherData]) -> dict[str, Any]:
    return {
        "engine": checked.target.name,
        "version": checked.target.version(),
        "runs": checked.num_runs,
        "wrong": problems,
        "failures": dict(checked.failures),
        "laws": checked.laws(),
        "unmet": checked.unmet(),
        "further_data": [step._asdict() for step in more],
    }
