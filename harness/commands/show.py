"""swarden show: prints an op-log as a table of steps, or the state after one of them, or writes it as a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from swarden.harness.commands.console import ERR, OUT, print_page
from swarden.harness.commands.layout import columns_of, print_lines
from swarden.harness.core.admission import load_for_here
from swarden.harness.core.driver import Driver
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import check_target, mode_of, write_whole
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import target_for
from swarden.harness.report import heading
from swarden.harness.report.event_text import op_text
from swarden.harness.report.page import page_of_log
from swarden.harness.report.story import StoryLine, StoryPart, expected_lines, failure_lines
from swarden.harness.report.timeline import PLACES, Row, timeline_of, written
from swarden.harness.report.wording import counted, state_text
from swarden.invariants.transition import Transition
from swarden.invariants.view import Snapshot


def show(
    path: Annotated[Path, typer.Argument(help="an op-log")],
    *,
    step: Annotated[int | None, typer.Option(min=0, help="print the state after this engine step")] = None,
    side: Annotated[int | None, typer.Option(min=0, help="of a pair, only this engine, counted from 0")] = None,
    html: Annotated[bool, typer.Option("--html", help="write a page of HTML instead")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="path of the page; FILE.html by default")] = None,
    opens: Annotated[bool, typer.Option("--open", help="with --html: open the page in a browser")] = False,
) -> None:
    """Print an op-log as a table of ops and steps with pool occupancy; with --step the state after one step."""
    if html and (step, side) != (None, None):
        raise UsageError("--html: the page has all steps and engines; leave out --step and --side")
    if (out is not None or opens) and not html:
        raise UsageError(f"{'--out: is the path of a page' if out else '--open: opens a page'}; add --html")
    log = load_for_here(path)
    if html:
        _write_page(log, path, out or path.with_suffix(".html"))
        print_page(out or path.with_suffix(".html"), is_opened=opens)
        return
    if side is not None and side >= len(log.header.configs):
        raise UsageError(f"{path}: has no engine {side}; the last is {len(log.header.configs) - 1}")
    if not target_for(log.header).is_repeatable:
        if step is not None:
            raise UsageError(f"{path}: is of a server, which shows no states; leave out --step")
        _print_written(log, path)
        return
    shown = range(len(log.header.configs)) if side is None else [side]
    at_step: dict[int, Snapshot] = {}  # by engine, the first state after the step to print

    def keep_state(driver: Driver, change: Transition) -> None:
        if change.after.step == step and driver.acting_system in shown:
            at_step.setdefault(driver.acting_system, change.after)

    timeline, driver = timeline_of(log, observe=keep_state)
    rows = timeline.rows
    if step is None:
        _print_log(log, shown, rows, driver)
        return
    if not at_step:
        last = max((row.step for row in rows if row.engine in shown), default=0)
        named = "" if side is None else f"{heading.engine_name(log.header, side)}: "
        raise UsageError(f"{path}: {named}has no engine step {step}; the last is {last}")
    _print_heading(heading.change_lines(log.header))
    for engine, snapshot in sorted(at_step.items()):
        _print_name(log.header, engine)
        OUT.print(state_text(snapshot))


def _write_page(log: OpLog, path: Path, target: Path) -> None:
    """Write the page with the access rights of the op-log, because it shows prompts, too."""
    check_target("--out", target)
    ERR.print(f"{path}: running {counted(len(log.ops), 'op')} twice, after loading {log.header.engine}")
    page = page_of_log(log, path)
    write_whole(target, page.encode(errors="backslashreplace"), mode=mode_of(path))


def _print_log(log: OpLog, engines: Sequence[int], rows: list[Row], driver: Driver) -> None:
    """Print the heading, a table for each of the engines, and the failure."""
    header, failure = log.header, driver.failure
    _print_heading(heading.opening_lines(header))
    for engine in engines:
        _print_engine(header, engine, driver)
        if own := [row for row in rows if row.engine == engine]:
            OUT.print(_table(own), soft_wrap=False, width=columns_of(OUT))
    if failure is not None:
        if failure.engine not in engines:
            _print_engine(header, failure.engine, driver)
        named = f"{heading.engine_name(header, failure.engine)} " if len(header.configs) > 1 else ""
        OUT.print(f"{named}{heading.failed_line(failure)}")
        print_lines(OUT, failure_lines(failure, expected=header.expected))


def _print_written(log: OpLog, path: Path) -> None:
    """Print a log that is not run: its engine is a server."""
    _print_heading([*heading.opening_lines(log.header), heading.configuration_line(log.header, 0)])
    if log.ops:
        OUT.print(_table(written(log)), soft_wrap=False, width=columns_of(OUT))
    print_lines(OUT, expected_lines(log.header, path))


def _print_engine(header: Header, engine: int, driver: Driver) -> None:
    """Print the name of an engine if there are several, its configuration and its requests."""
    _print_name(header, engine)
    _print_heading(
        [heading.configuration_line(header, engine), *heading.request_lines(driver.systems[engine].reference)]
    )


def _print_name(header: Header, engine: int) -> None:
    if len(header.configs) > 1:
        OUT.print(heading.engine_name(header, engine))


def _print_heading(lines: Iterable[str]) -> None:
    print_lines(OUT, [StoryLine(StoryPart.HEADING, line) for line in lines])


def _table(rows: list[Row]) -> Table:
    """The ops and steps of one engine; the column of a pool has its used pages, and its capacity in the head."""
    first = rows[0]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("op", justify="right")
    table.add_column("", overflow="fold")
    pools = [f"{pool.name}\nof {pool.terms.capacity}" for pool in first.pools]
    for name in ("step", *PLACES[: len(first.places)], *pools):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        raised = f" raised {row.raised}" if row.raised else ""
        figures = (row.step, *row.places, *(pool.used for pool in row.pools))
        table.add_row(str(row.number), f"{op_text(row.op)}{raised}", *map(str, figures))
    return table
