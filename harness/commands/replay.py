"""swarden replay: runs op-logs again, each with a verdict."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands import servers
from swarden.harness.commands.console import OUT, print_json
from swarden.harness.commands.events import EventsOption, event_lines
from swarden.harness.commands.help import output_option
from swarden.harness.commands.layout import print_lines
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.printable import printable
from swarden.harness.core.replay import RUNS
from swarden.harness.search.replaying import STAND_IN, Elsewhere, Replayer

GIT_SKIPS = 125  # the exit code for which git bisect run skips a commit


def replay(
    paths: Annotated[list[Path], typer.Argument(help="op-log files")],
    *,
    engine: Annotated[
        str | None, typer.Option(help="replay on this engine, NAME or NAME==VERSION, not on the one that the log names")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help=f"replay with this model, or with {STAND_IN!r}, not with what the log names")
    ] = None,
    with_fix: Annotated[
        list[str] | None,
        typer.Option("--with-fix", help="replay with the fix of this known bug, or of 'all'", metavar="NAME"),
    ] = None,
    runs: Annotated[int, typer.Option("--repeat", min=1, help="runs of each op-log; FLAKY if they differ")] = RUNS,
    events: EventsOption = None,
    as_json: Annotated[bool, output_option("--json", help="one JSON object on standard output")] = False,
    for_git: Annotated[bool, typer.Option("--git-bisect", help="end with an exit code for git bisect run")] = False,
    server: servers.OfLogs = servers.NONE,
) -> None:
    """Run op-logs again, each with a verdict.

    FIXED, FAILED (the same failure), CHANGED (another failure), FLAKY (the runs differ) or ERROR (an unusable log).

    With --git-bisect the exit code is 0 for FIXED, 1 for a failure by the law or error that the log expects, else 125,
    for which git skips the commit.
    """
    server.publish()
    replays = []
    with event_lines(events) as lines, ExitStack() as processes:
        on_transition = lines.write_transition if lines.is_on else None
        replayer = Replayer(Elsewhere(engine, model, tuple(with_fix or ())), runs, on_transition, processes)
        for path in paths:
            lines.write("replay", path=printable(str(path)))
            replays.append(replayer.ended(path))
            if not as_json:
                print_lines(OUT, replays[-1].lines)
    if as_json:
        print_json({"replays": [ended.figures for ended in replays]})
    if for_git:
        are_bad = [ended.is_bad for ended in replays]
        raise typer.Exit(ExitCode.VIOLATED if True in are_bad else GIT_SKIPS if None in are_bad else ExitCode.CLEAN)
    raise typer.Exit(worst(ended.code for ended in replays))
