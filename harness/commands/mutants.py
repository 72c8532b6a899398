"""swarden mutants: the catalogue of historical bugs, and how fast each is found when planted."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from harness.commands.console import OUT, print_json, progress
from harness.errors import UsageError
from harness.exit_codes import ExitCode
from harness.hunt import Hunted, hunt
from harness.mutants.catalog import BY_ID, CATALOG
from harness.mutants.mutant import Mutant

FINDINGS = Path(".swarden/mutants")

app = typer.Typer(help="Historical bugs: list them, or plant and hunt them.", no_args_is_help=True)


@app.command("list")
def listing() -> None:
    """Every mutant: its id, where it happened, which invariants may catch it."""
    for mutant in CATALOG:
        OUT.print(f"{mutant.id}  {mutant.source}\n     caught by {', '.join(mutant.caught_by)}", markup=False)


@app.command()
def run(
    ids: Annotated[list[str] | None, typer.Argument(help="mutants; all of them by default")] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="hunts per mutant, each from another seed")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="CPU seconds to find, and again to shrink")] = 60.0,
    out: Annotated[Path, typer.Option(help="where the op-logs are written")] = FINDINGS,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Plant each bug and hunt it from a cold start; found, missed, and at what cost (imports not counted)."""
    chosen = [_mutant(name) for name in ids] if ids else list(CATALOG)
    hunts: list[Hunted] = []
    with progress() as bar:
        task = bar.add_task("hunting")
        for mutant in chosen:
            for seed in range(seeds):
                bar.update(task, description=f"{mutant.id} from seed {seed}")
                hunts.append(hunt(mutant, seed=seed, seconds=seconds, out=out))
    if as_json:
        print_json({"mutants": [one.figures() for one in hunts]})
    else:
        OUT.print(_table(hunts))
    missed = any(not one.is_caught for one in hunts)
    raise typer.Exit(ExitCode.RED if missed else ExitCode.CLEAN)


def _mutant(name: str) -> Mutant:
    if name not in BY_ID:
        raise UsageError(f"mutant {name}: not in the catalogue; it has {', '.join(BY_ID)}")
    return BY_ID[name]


def _table(hunts: list[Hunted]) -> Table:
    table = Table("mutant", "seed", "", "by", "found, CPU s", "shrunk, CPU s", "ops", "steps")
    for one in hunts:
        settled = one.settled
        row = [one.mutant.id, str(one.seed), "found" if one.is_caught else "missed"]
        if settled:
            row += [settled.invariant, f"{settled.found_cpu_seconds:.1f}", f"{settled.shrink_cpu_seconds:.1f}"]
            row += [str(settled.ops), str(settled.engine_steps)]
        table.add_row(*row)
    return table
