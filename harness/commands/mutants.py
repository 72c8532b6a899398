"""swarden mutants: the catalogue of bugs, how fast each is found when planted, and who tells of which."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from harness.commands.console import OUT, print_json, progress
from harness.commands.sample import sample
from harness.exit_codes import ExitCode
from harness.hunt import Scope, Score, hunt_all
from harness.kill_matrix import matrix_of, page
from harness.mutants.catalog import CATALOG, ROWS, Row, planted_mutant
from harness.mutants.mutant import Mutant
from harness.mutants.unplanted import ForTheOracle, Waiting

FINDINGS = Path(".swarden/mutants")
OPLOGS = Path("tests/quality/oplogs")
SEEDS_FILE = "seeds.json"

app = typer.Typer(help="Bugs by their number: list them, plant and hunt them, or say who tells of which.")
app.command()(sample)


@app.callback(invoke_without_command=True)
def listing(context: typer.Context) -> None:
    """Every bug of the catalogue: its id, whether it is planted, where it happened."""
    if context.invoked_subcommand is None:
        for row in ROWS:
            OUT.print(f"{row.id:4} {_status(row)}: {row.source}", markup=False)


@app.command("list", hidden=True)
def list_again(context: typer.Context) -> None:
    """The same as without a command."""
    context.invoked_subcommand = None
    listing(context)


@app.command()
def run(
    ids: Annotated[list[str] | None, typer.Argument(help="mutants; all of them by default")] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="hunts per mutant, each from another seed")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="CPU seconds to find, and again to shrink")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="processes that share the mutants")] = 1,
    out: Annotated[Path, typer.Option(help="where op-logs and the figures of each seed are written")] = FINDINGS,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Plant each bug and hunt it from a cold start; found, missed, and at what cost (imports not counted)."""
    chosen = [planted_mutant(name) for name in ids] if ids else list(CATALOG)
    with progress() as bar:
        task = bar.add_task(f"hunting {len(chosen)} mutants")
        scores = hunt_all(
            chosen,
            Scope(seeds, seconds, out),
            workers=workers,
            tell=lambda score: bar.update(task, description=f"{score.mutant.id} {_found(score)}"),
        )
    _keep_seeds(scores, out)
    if as_json:
        print_json({"mutants": [score.figures() for score in scores]})
    else:
        OUT.print(_table(scores))
    raise typer.Exit(ExitCode.CLEAN if all(score.is_found for score in scores) else ExitCode.RED)


@app.command()
def matrix(
    oplogs: Annotated[Path, typer.Option(help="where the op-log of each mutant is, as ID.oplog")] = OPLOGS,
) -> None:
    """The page of the kill matrix: which invariant tells of which bug, by replaying their op-logs."""
    OUT.file.write(page(matrix_of(oplogs)))


def _status(row: Row) -> str:
    if isinstance(row, Mutant):
        return "planted"
    if isinstance(row, ForTheOracle):
        return "for the oracle"
    return f"waits for {row.capability}" if isinstance(row, Waiting) else "excluded by design"


def _keep_seeds(scores: list[Score], out: Path) -> None:
    """The figures of every single hunt, for who wants more than medians."""
    out.mkdir(parents=True, exist_ok=True)
    hunts = [asdict(one) for score in scores for one in score.hunts]
    (out / SEEDS_FILE).write_text(json.dumps(hunts, indent=1) + "\n")


def _found(score: Score) -> str:
    return f"{'found' if score.is_found else 'missed'} from {len(score.caught)} of {len(score.hunts)} seeds"


def _table(scores: list[Score]) -> Table:
    table = Table("mutant", "", "by", "found, CPU s", "shrunk, CPU s", "ops", "steps")
    for score in scores:
        figures = score.figures()
        named = ("found_cpu_seconds", "shrink_cpu_seconds", "ops", "engine_steps")
        medians = ["-" if figures[name] is None else f"{figures[name]:g}" for name in named]
        table.add_row(score.mutant.id, _found(score), score.invariant or "-", *medians)
    return table
