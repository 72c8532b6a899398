"""swarden mute: puts a known bug or a finding aside until a date."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands.console import OUT
from swarden.harness.commands.help import finding_option
from swarden.harness.core.errors import UsageError
from swarden.harness.core.printable import printable
from swarden.harness.core.registry import bugs_by_engine
from swarden.harness.search.mutes import MUTES, Mute, add_mute

MutesOption = Annotated[Path, finding_option(help="file of known bugs and findings that are put aside", metavar="FILE")]


def mute(
    name: Annotated[str, typer.Argument(help="a known bug, or a finding as the line 'new:' names it")],
    *,
    until: Annotated[str, typer.Option(help="date, as in 2026-12-31; from then on it counts again")],
    reason: Annotated[str, typer.Option(help="the reason, such as the issue of the engine")],
    mutes: MutesOption = MUTES,
) -> None:
    """Put a known bug or a finding aside until a date: it is counted, and neither listed nor a reason to fail.

    A known bug is put aside only where its fix lets the run pass.
    """
    entry = Mute(until=date_of(until), reason=reason)
    if "/" not in name and name not in {bug.name for bugs in bugs_by_engine().values() for bug in bugs}:
        raise UsageError(f"{name}: no known bug, and a finding has a / in its name; see 'swarden findings'")
    add_mute(mutes, name, entry)
    OUT.print(f"{mutes}: {printable(name)} {entry}")


def date_of(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--until: {text!r} is not a date; write one as in 2026-12-31") from error
