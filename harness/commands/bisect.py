"""swarden bisect: the first version of an engine that an op-log fails on, and the first on which it no longer does."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.commands.engines import install_release
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.releases.bisect import VersionRange, bisected


def bisect(
    path: Annotated[Path, typer.Argument(help="an op-log that fails")],
    *,
    engine: Annotated[str | None, typer.Option(help="the engine; by default that of the op-log")] = None,
    oldest: Annotated[str | None, typer.Option("--from", help="oldest version; by default of the installed")] = None,
    newest: Annotated[str | None, typer.Option("--to", help="newest version; by default of the installed")] = None,
    install: Annotated[bool, typer.Option("--install", help="install the releases that the search needs")] = False,
    every: Annotated[bool, typer.Option("--all", help="replay on each version, also where not needed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Replay an op-log on versions of its engine, each in a process of its own.

    Without --install only the installed versions are searched, and those between them are named.

    A version fails if the same law is violated or the same error is raised, wherever its code is. A version that cannot
    run the op-log (ERROR) is left out. The search assumes that the failing versions are consecutive; --all replays all.
    """
    limits = VersionRange(oldest, newest, every)
    found = bisected(path, engine, limits, partial(ERR.print, markup=False), install_release if install else None)
    if as_json:
        figures = {"engine": found.engine, "path": str(path), "verdicts": found.verdicts}
        print_json(figures | found.boundaries._asdict())
    else:
        OUT.print(str(found), markup=False)
    raise typer.Exit(ExitCode.CLEAN)
