"""swarden report: one page of an archive of nights, or of the findings of a campaign."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import EntryPoint
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import typer

from swarden.harness.commands.console import ERR, OUT
from swarden.harness.commands.versions import load_for_here
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import check_target, write_whole
from swarden.harness.core.imports import importing
from swarden.harness.core.oplog import OpLog, OpLogError
from swarden.harness.nightly.page import MeasuredCode, RunPart, page_of
from swarden.harness.report.page import part_of_log

SECONDS = 120.0
SLOWEST = 4  # wall-clock seconds for a CPU second on a busy machine
Send = Callable[[Sequence[Path], Connection], None]


def report(
    folder: Annotated[Path, typer.Argument(help="an archive, or the folder of a campaign's findings")],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="path of the page; DIR/report.html by default")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="maximum seconds for the run of one op-log")] = SECONDS,
    coverage: Annotated[
        float, typer.Option(min=0, help="CPU seconds in which the corpus of each engine runs under coverage.py")
    ] = 0.0,
) -> None:
    """Write one self-contained page of HTML about an archive or a campaign."""
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
    OUT.print(f"written: {target}", markup=False)


def _parts(paths: Sequence[Path], seconds: float) -> Iterator[tuple[Path, RunPart]]:
    """The part of each op-log; those of one version of an engine run in one process, until one of them ends it."""
    for _, group in groupby(sorted(paths, key=_engine_of), key=_engine_of):
        waiting = list(group)
        while waiting:
            with closing(_received(_send_parts, list(waiting), seconds)) as parts:
                is_alive = True
                while waiting and is_alive:
                    path = waiting.pop(0)
                    ERR.print(f"{path}", markup=False)
                    try:
                        yield path, next(parts)
                    except (EOFError, TimeoutError) as error:
                        is_alive = False
                        yield path, RunPart(why_not=f"the run {error}")


def _coverage(engine: str, paths: Sequence[Path], seconds: float) -> MeasuredCode | str:
    """The lines of an engine that these op-logs run, or the reason for which they are not known."""
    with closing(_received(partial(_send_coverage, engine, seconds), paths, seconds * SLOWEST + SECONDS)) as received:
        try:
            measured: MeasuredCode | str = next(received)
        except (EOFError, TimeoutError) as error:
            return f"the corpus {error}"
        return measured


def _received(send: Send, paths: Sequence[Path], seconds: float) -> Generator[Any, None, None]:
    """The objects that `send` sends in a new process.

    Raises TimeoutError if the next one takes longer than `seconds`, and EOFError if the process has ended.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_start, args=(send, paths, sender), daemon=True)
    process.start()
    sender.close()
    try:
        receiver.recv()  # the process has started
        while receiver.poll(seconds):
            yield receiver.recv()
        raise TimeoutError(f"took more than {seconds:g} s")
    except EOFError as error:
        raise EOFError("ended its process") from error
    finally:
        receiver.close()
        process.kill()
        process.join()


def _start(send: Send, paths: Sequence[Path], sender: Connection) -> None:
    sender.send(None)
    send(paths, sender)


def _engine_of(path: Path) -> tuple[str, str]:
    try:
        header = OpLog.load(path, inside=path.parent).header
    except OpLogError:
        return "", ""
    return header.engine, header.version


def _send_parts(paths: Sequence[Path], sender: Connection) -> None:
    for path in paths:
        try:
            part = RunPart(html=str(part_of_log(load_for_here(path, inside=path.parent), path)))
        except UsageError as error:
            part = RunPart(why_not=str(error))
        sender.send(part)


def _send_coverage(engine: str, seconds: float, paths: Sequence[Path], sender: Connection) -> None:
    try:
        with importing("--coverage"):
            measure = EntryPoint("", "swarden.harness.nightly.code_coverage:lines_run_by", "").load()
        sender.send(measure(engine, paths, seconds))
    except UsageError as error:
        sender.send(str(error))
