"""swarden report: one page of an archive of nights, or of the findings of a campaign."""

from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands.archive import ARCHIVE
from swarden.harness.commands.console import ERR, print_page
from swarden.harness.core.admission import load_for_here, load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import check_target, write_whole
from swarden.harness.core.imports import importing
from swarden.harness.core.oplog import OpLogError
from swarden.harness.core.process import HANG, Parent, Process, ProcessDied, ProcessLimits
from swarden.harness.nightly.page import MeasuredCode, RunPart, page_of
from swarden.harness.report.page import part_of_log

SECONDS = 120.0
SLOWEST = 4  # wall-clock seconds for a CPU second on a busy machine


def report(
    folder: Annotated[Path | None, typer.Argument(help="an archive, or the folder of a campaign's findings")] = None,
    *,
    archive: Annotated[Path | None, typer.Option(help=f"folder of an archive; {ARCHIVE} without FOLDER")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="path of the page; DIR/report.html by default")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="maximum seconds for the run of one op-log")] = SECONDS,
    coverage: Annotated[
        float, typer.Option(min=0, help="CPU seconds in which the corpus of each engine runs under coverage.py")
    ] = 0.0,
    opens: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Write one self-contained page of HTML about an archive or a campaign."""
    if folder is not None and archive is not None:
        raise UsageError(f"--archive: {folder} is named, too; name one of them")
    folder = folder or archive or ARCHIVE
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; name an archive, or the folder of a campaign's findings")
    target = out or folder / "report.html"
    check_target("--out", target)
    page = page_of(
        folder,
        lambda paths: dict(_parts(paths, seconds)),
        lambda engine, paths: _coverage(engine, paths, coverage) if coverage else None,
    )
    write_whole(target, page.encode(errors="backslashreplace"), inside=None if out else folder)
    print_page(target, is_opened=opens)


def _parts(paths: Sequence[Path], seconds: float) -> Iterator[tuple[Path, RunPart]]:
    """The part of each op-log; logs of one version of an engine run in one process, until a log ends the process."""
    for _, group in groupby(sorted(paths, key=_engine_of), key=_engine_of):
        waiting = list(group)
        while waiting:
            with Process(limits=ProcessLimits(seconds)) as process:
                parts = process.stream(_send_parts, list(waiting))
                is_alive = True
                while waiting and is_alive:
                    path = waiting.pop(0)
                    ERR.print(f"{path}")
                    try:
                        yield path, next(parts)
                    except ProcessDied as error:
                        is_alive = False
                        yield path, RunPart(why_not=f"the run {_why(error, seconds)}")


def _coverage(engine: str, paths: Sequence[Path], seconds: float) -> MeasuredCode | str:
    """The lines of an engine that these op-logs run, or the reason for which they are not known."""
    limit = seconds * SLOWEST + SECONDS
    with Process(limits=ProcessLimits(limit)) as process:
        try:
            [measured] = process.stream(_measure, engine, paths, seconds)
        except UsageError as error:
            return str(error)
        except ProcessDied as error:
            return f"the corpus {_why(error, limit)}"
    code: MeasuredCode = measured
    return code


def _why(error: ProcessDied, seconds: float) -> str:
    return f"took more than {seconds:g} s" if error.death.kind == HANG else "ended its process"


def _engine_of(path: Path) -> tuple[str, str]:
    try:
        header = load_log(path, inside=path.parent).header
    except OpLogError:
        return "", ""
    return header.engine, header.version


def _send_parts(parent: Parent, paths: Sequence[Path]) -> None:
    parent.beat()
    for path in paths:
        try:
            part = RunPart(html=str(part_of_log(load_for_here(path, inside=path.parent), path)))
        except UsageError as error:
            part = RunPart(why_not=str(error))
        parent.send(part)


def _measure(parent: Parent, engine: str, paths: Sequence[Path], seconds: float) -> MeasuredCode:
    parent.beat()
    with importing("--coverage"):
        measure = EntryPoint("", "swarden.harness.nightly.code_coverage:lines_run_by", "").load()
    measured: MeasuredCode = measure(engine, paths, seconds)
    return measured
