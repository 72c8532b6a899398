"""swarden bisect: the first version or commit of an engine that an op-log fails on, and the first that passes again."""

from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.commands.engines import install_release
from swarden.harness.core.errors import UsageError
from swarden.harness.releases.bisect import VersionRange, bisected
from swarden.harness.releases.commits import History, bisected_commits, described


def bisect(
    path: Annotated[Path, typer.Argument(help="an op-log that fails")],
    *,
    engine: Annotated[str | None, typer.Option(help="the engine; by default that of the op-log")] = None,
    oldest: Annotated[str | None, typer.Option("--from", help="oldest version; by default of the installed")] = None,
    newest: Annotated[str | None, typer.Option("--to", help="newest version; by default of the installed")] = None,
    install: Annotated[bool, typer.Option("--install", help="install the releases that the search needs")] = False,
    every: Annotated[bool, typer.Option("--all", help="replay on each version, also where not needed")] = False,
    commits: Annotated[
        tuple[Path, str, str] | None,
        typer.Option("--git", help="search the commits of a checkout instead", metavar="DIR GOOD BAD"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Replay an op-log on versions of its engine, each in a process of its own.

    Without --install only the installed versions are searched, and those between them are named.

    A version fails if the same law is violated or the same error is raised, wherever its code is. A version that cannot
    run the op-log (ERROR), or fails otherwise, is left out. The search assumes that the failing versions are
    consecutive; --all replays all.

    With --git, each commit is extracted into a temporary folder; the checkout is not changed.
    """
    note, lines = ERR.print, list[str]()
    if commits is None:
        limits = VersionRange(oldest, newest, every)
        bisection = bisected(path, engine, limits, note, install_release if install else None)
    elif oldest or newest or install:
        raise UsageError("--git: names its commits; leave out --from, --to and --install")
    else:
        history = History(*commits)
        bisection = bisected_commits(path, engine, history, note, every=every)
        lines = described(history, bisection)
    if as_json:
        figures = {"engine": bisection.engine, "path": str(path), "verdicts": bisection.verdicts}
        print_json(figures | bisection.boundaries._asdict())
        return
    for line in (str(bisection), *lines):
        OUT.print(line, soft_wrap=True)
