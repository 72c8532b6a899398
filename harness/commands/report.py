"""swarden report: one page of an archive of nights, or of the findings of a campaign."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.console import ERR, OUT
from harness.commands.versions import load_for_here
from harness.core.errors import UsageError
from harness.core.files import write_whole
from harness.core.oplog import OpLog, OpLogError
from harness.nightly.page import Part, page_of
from harness.report.page import part_of_log

SECONDS = 120.0


def report(
    folder: Annotated[Path, typer.Argument(help="an archive, or the folder of a campaign's findings")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="path of the page; DIR/report.html by default")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="maximum seconds for the run of one op-log")] = SECONDS,
) -> None:
    """Write one self-contained page of HTML about an archive or a campaign."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder; name an archive, or the folder of a campaign's findings")
    page = page_of(folder, lambda paths: dict(_parts(paths, seconds)))
    target = out or folder / "report.html"
    write_whole(target, page.encode(errors="backslashreplace"))
    OUT.print(f"written: {target}", markup=False)


def _parts(paths: Sequence[Path], seconds: float) -> Iterator[tuple[Path, Part]]:
    """The part of each op-log; those of one version of an engine run in one process, until one of them ends it."""
    for _, group in groupby(sorted(paths, key=_engine_of), key=_engine_of):
        waiting = list(group)
        while waiting:
            for path, part in _run_in_a_process(waiting, seconds).items():
                waiting.remove(path)
                yield path, part


def _engine_of(path: Path) -> tuple[str, str]:
    try:
        header = OpLog.load(path).header
    except OpLogError:
        return "", ""
    return header.engine, header.version


def _run_in_a_process(paths: Sequence[Path], seconds: float) -> Mapping[Path, Part]:
    """The parts of the first logs up to one that ends the process, or takes too long; at least one part."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_parts, args=(paths, sender), daemon=True)
    process.start()
    sender.close()
    parts: dict[Path, Part] = {}
    with receiver:
        for path in paths:
            ERR.print(f"{path}", markup=False)
            try:
                in_time = receiver.poll(seconds)
                parts[path] = receiver.recv() if in_time else Part(why_not=f"the run took more than {seconds:g} s")
            except EOFError:
                in_time, parts[path] = False, Part(why_not="the run ended its process")
            if not in_time:
                break
    process.kill()
    process.join()
    return parts


def _send_parts(paths: Sequence[Path], sender: Connection) -> None:
    for path in paths:
        try:
            part = Part(html=str(part_of_log(load_for_here(path), path)))
        except UsageError as error:
            part = Part(why_not=str(error))
        sender.send(part)
