"""Commands in processes of their own; one that runs on leads a group, to be sent signals."""

import atexit
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from runpy import run_module
from tempfile import TemporaryFile
from threading import Event
from typing import IO

MAX_LOOKS = 24_000
LOOK_S = 0.05
SCRIPT = """import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # of which nohup has made SIG_IGN
sys.argv[0] = 'swarden'
from swarden.harness.cli import main
main()"""
ROOT = Path(__file__).parents[2]
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["tests.harness.warm_imports"])
DEADLINE_S = 1200  # for a command that is blocked, and so uses no CPU; no test judges by it


def swarden_process(
    *arguments: object, cwd: Path, stdout: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process, which knows `environment` and nothing of this process's."""
    return run_warm("swarden.harness.cli", arguments, cwd=cwd, environment=environment, stdout=stdout)


def run_warm(
    module: str, arguments: Sequence[object], *, cwd: Path, environment: Mapping[str, str], stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module as a script in its own process, with this environment beside the variables that all need.

    The process is forked from one that has imported the large libraries, the harness and our engine, and has called
    nothing of them, because the import of torch alone takes longer than most commands.
    """
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    with TemporaryFile() as out, TemporaryFile() as errors:
        written = [out.fileno() if stdout is None else stdout, errors.fileno()]
        ends = [Connection(os.dup(number), readable=False) for number in written]
        words = [str(word) for word in arguments]
        process = WARM.Process(target=_run_command, args=(module, words, str(cwd), variables | {**environment}, ends))
        process.start()
        process.join(DEADLINE_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, DEADLINE_S)
        return subprocess.CompletedProcess(words, process.exitcode, *map(_content, (out, errors)))


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _run_command(
    module: str, words: Sequence[str], folder: str, variables: dict[str, str], files: Sequence[Connection]
) -> None:
    enter(folder, variables, files)
    sys.path[:0] = variables["PYTHONPATH"].split(":")
    sys.argv = ["swarden", *words]
    try:
        run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a process of multiprocessing leaves them out


def enter(folder: str, variables: dict[str, str], files: Sequence[Connection]) -> None:
    """Give this process another folder, another environment, and other files for its output and its errors."""
    for number, file in enumerate(files, start=1):
        os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)


@contextmanager
def running(*arguments: object, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which leads its group; whatever is left of the group is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        subprocess.run(["pkill", "-KILL", "-g", str(process.pid)], check=False)
        process.wait()


def processes_of(group: int) -> list[str]:
    """The processes of a group that have not ended, as ps shows them."""
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in listing.stdout.splitlines()]
    return [" ".join(row) for row in rows if int(row[0]) == group and not row[1].startswith("Z")]


def wait_until(is_reached: Callable[[], bool]) -> None:
    for _ in range(MAX_LOOKS):
        if is_reached():
            return
        Event().wait(LOOK_S)
    raise AssertionError(f"not reached in {MAX_LOOKS} looks, {LOOK_S} s apart")
