"""A server that runs each case in a process of its own: `python -m tests.hostile.cases`.

It reads a case a line from standard input and answers with an outcome a line.  The engine is imported once, so a case
costs a fork.  A case that would write outside its folders is ended before it does.
"""

import gc
import io
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec

from swarden.harness.cli import app, run
from swarden.harness.commands import report  # imported before the first case
from swarden.harness.core.files import write_whole
from swarden.harness.core.replay import Replays, Verdict, not_run
from swarden.harness.nightly.page import page_of
from swarden.harness.nightly.shards import ShardResult
from tests.harness.nightly.some_nights import DOUBLE_FREE, FAILED, FIXED, LEAK, ORDER, Table, night_of, table
from tests.hostile.archives import rare_shard, valid_archive
from tests.hostile.bounded import MAX_CPU_SECONDS

WALL_SECONDS = 60  # a blocked read uses no CPU
SPARE_BYTES = 2 << 30  # of address space
MOST_SHARDS = 20
OUTSIDE = 99  # exit code of a case that would have written outside
SHARED_MEMORY = "/dev/shm/pym-"  # of multiprocessing
PATHS = {"open": 1, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.chmod": 1, "os.link": 2}
PATHS |= {"os.symlink": 2, "os.truncate": 1, "os.utime": 1}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REPLAYS: Mapping[str, Replays] = {
    "failed": FAILED,
    "fixed": FIXED,
    "changed": Replays(Verdict.CHANGED, (DOUBLE_FREE,), 3, 3),
    "flaky": Replays(Verdict.FLAKY, (LEAK,), 2, 3),
    "error": not_run("cannot be run"),
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A command on an archive in `folder`: its arguments, or a name of FUNCTIONS and its arguments."""

    folder: str
    command: list[str]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The exit code of a case, or the signal that ended it; its CPU seconds, peak memory, and output."""

    code: int
    signal: int
    cpu_seconds: float
    peak_bytes: int
    output: str


def make_night(root: Path, replay: str, name: str = "") -> int | None:
    """A night whose jobs are answered at once, or the continuation of the one with a name; its JUnit file is read."""
    night = night_of(root, _answers(REPLAYS[replay]), name or ORDER)
    ElementTree.parse(root / "nights" / night.name / "junit.xml")
    return night.exit_code


def make_page(root: Path) -> None:
    """The page of an archive; the op-logs run in this process."""

    class Parts(list[Any]):
        send, beat = list.append, list[Any].__len__

    def parts_of(paths: Any) -> Any:
        parent: Any = Parts()
        report._send_parts(parent, paths)
        return dict(zip(paths, parent, strict=True))

    write_whole(root / "report.html", page_of(root, parts_of, lambda *_: None).encode(errors="backslashreplace"))


FUNCTIONS: dict[str, Callable[..., int | None]] = {"make_night": make_night, "make_page": make_page}


def _answers(replay: Replays) -> Table:
    """Answers of a table; a night without an end is interrupted."""
    left = iter(range(MOST_SHARDS))

    def run_shard(*_: Any) -> ShardResult:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rare_shard()

    return table(run_shard, replay_log=replay)


def _run_and_exit(case: Case) -> None:
    """Run a case in this process, within its bounds."""
    root = Path(case.folder) / "archive"
    temporary = Path(case.folder) / "temporary"
    os.chdir(case.folder)
    for number in (1, 2):
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    signal.alarm(WALL_SECONDS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * MAX_CPU_SECONDS),) * 2)
    sys.addaudithook(partial(_refuse_outside, tuple(map(os.path.realpath, (root, temporary)))))
    name, *arguments = case.command
    command = partial(FUNCTIONS[name], root, *arguments) if name in FUNCTIONS else None
    os._exit(run(command or partial(app, case.command, standalone_mode=False)))


def _refuse_outside(folders: tuple[str, ...], event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook that ends the process before it changes a file outside these folders."""
    if event not in PATHS or (event == "open" and not arguments[2] & WRITES):
        return
    for path in arguments[: PATHS[event]]:
        if isinstance(path, int) or path == os.devnull:
            continue
        real = os.path.realpath(os.fsdecode(path))
        if not any(Path(real).is_relative_to(folder) for folder in folders) and not real.startswith(SHARED_MEMORY):
            os.write(2, f"{event}: {real} is outside\n".encode(errors="backslashreplace"))
            os._exit(OUTSIDE)


def _outcome(case: Case) -> Outcome:
    if not (process := os.fork()):
        _run_and_exit(case)
    _, status, used = os.wait4(process, 0)
    output = (Path(case.folder) / "output").read_text(errors="replace")[-4000:]
    return Outcome(
        code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 0,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        cpu_seconds=used.ru_utime + used.ru_stime,
        peak_bytes=1024 * used.ru_maxrss,
        output=output,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):  # each module is imported now
        valid_archive(Path(folder))
        make_page(Path(folder))
        run(partial(app, ["archive", "list", "--archive", folder], standalone_mode=False))
    gc.freeze()
    for line in sys.stdin.buffer:
        outcome = _outcome(msgspec.json.decode(line, type=Case))
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
