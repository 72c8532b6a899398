"""swarden findings: the known bugs of the engines, as a table, and the page of one."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from swarden.harness.commands.console import OUT, print_page
from swarden.harness.commands.layout import columns_of
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import check_target, write_whole
from swarden.harness.core.known_bug import PRIVATE
from swarden.harness.core.registry import bugs_by_engine, target_of
from swarden.harness.report.known_bug import Row, document, rows_of
from swarden.harness.report.page import page_of_text

LEAST_COLUMNS = 120  # of a table


def findings(
    name: Annotated[str | None, typer.Argument(help="a finding; by default the table of all is printed")] = None,
    *,
    engine: Annotated[str | None, typer.Option(help="only the findings of this engine")] = None,
    html: Annotated[bool, typer.Option("--html", help="write the finding as a page of HTML instead")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="path of the page; NAME.html by default")] = None,
    opens: Annotated[bool, typer.Option("--open", help="with --html: open the page in a browser")] = False,
) -> None:
    """List the bugs that swarden knows in releases of engines, or print the page of one in Markdown."""
    if (out is not None or opens) and not html:
        raise UsageError(f"{'--out: is the path of a page' if out else '--open: opens a page'}; add --html")
    bugs = {owner: [bug for bug in own if bug.verdict != PRIVATE] for owner, own in bugs_by_engine().items() if own}
    if engine is not None and engine not in bugs:
        raise UsageError(f"--engine: {engine} has no findings; name one of {', '.join(bugs)}")
    shown = [engine] if engine is not None else [*bugs]
    if name is None:
        if html:
            raise UsageError("--html: is the page of one finding; name it")
        for owner in shown:
            _print_table(owner, rows_of(bugs[owner], target_of(owner)))
        return
    by_name = {bug.name: (bug, target_of(owner)) for owner in shown for bug in bugs[owner]}
    if name not in by_name:
        close = get_close_matches(name, by_name)
        remedy = f"close to it: {', '.join(close)}" if close else "'swarden findings' lists them"
        raise UsageError(f"{name}: no finding; {remedy}")
    path = out or Path(f"{name}.html")
    text = document(*by_name[name], (path.parent if html else Path()).resolve())
    if html:
        check_target("--out", path)
        write_whole(path, page_of_text(name, text).encode(errors="backslashreplace"))
        print_page(path, is_opened=opens)
    else:
        OUT.print(text, end="", soft_wrap=True)


def _print_table(engine: str, rows: list[Row]) -> None:
    """Print a line for each finding; two lines where the columns would be too narrow."""
    columns = columns_of(OUT)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=engine, title_justify="left")
    for column in Row._fields:
        table.add_column(column, no_wrap=column == "finding")
    for row in rows:
        table.add_row(*row._replace(releases=row.releases.replace(",", ", ")))
    if columns >= LEAST_COLUMNS:
        OUT.print(table, soft_wrap=False, width=columns)
        return
    OUT.print(f"{engine}\n")
    for row in rows:
        OUT.print(f"{row.finding} {row.releases}, {row.status}", soft_wrap=True)
        OUT.print(f"    {row.effect}{row.needs and f'; needs: {row.needs}'}")
    OUT.print()
