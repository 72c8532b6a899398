"""A command that runs on in a process group of its own, to be sent signals."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

MAX_LOOKS = 2400
LOOK_S = 0.05
SCRIPT = "import sys; sys.argv[0] = 'swarden'; from harness.cli import main; main()"


@contextmanager
def running(*arguments: object, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which leads its group; whatever is left of the group is killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
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
