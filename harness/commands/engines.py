"""swarden engines: lists the installed targets."""

from typing import Annotated

import typer

from harness.commands.console import OUT, print_json
from harness.core.registry import UnknownEngine, installed, target_of


def engines(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """List the installed engines with their versions; for one that cannot be loaded, print the reason."""
    found = []
    for name, entry in installed().items():
        row = {"name": name, "target": entry.value, "version": None, "why": None}
        try:
            row["version"] = target_of(name).version()
        except UnknownEngine as error:
            row["why"] = str(error)
        found.append(row)
    if as_json:
        print_json({"engines": found})
    for row in () if as_json else found:
        line = f"{row['name']} {row['version']} ({row['target']})" if row["why"] is None else str(row["why"])
        OUT.print(line, markup=False)
