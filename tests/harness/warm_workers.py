"""Processes of harness/core/process.py that are forked from the warm one of some_processes."""

import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from swarden.harness.core.exit_codes import STOPPING
from swarden.harness.core.process import serve
from tests.harness.some_processes import enter


class WarmWorker(ForkServerProcess):
    """Has what a Process needs of `subprocess.Popen`."""

    def __init__(self, numbers: Sequence[int]) -> None:
        files = [Connection(os.dup(number)) for number in (*numbers, 2, 2)]
        super().__init__(target=_serve, args=(os.getcwd(), {**os.environ}, sys.path, files), daemon=True)
        self.start()

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> int | None:
        self.join()
        return self.exitcode

    def send_signal(self, number: int) -> None:
        assert self.pid is not None, "the process was started"
        os.kill(self.pid, number)


def _serve(folder: str, variables: dict[str, str], path: list[str], files: Sequence[Connection]) -> None:
    enter(folder, variables, files[2:])
    sys.path[:] = path
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    serve(*(os.dup(file.fileno()) for file in files[:2]))
