"""A command that must have the strict check attached: it runs as a child, and is ended if the check is not attached."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from swarden.harness.core.errors import UsageError
from swarden.harness.strict.status import State

FORWARDED = (*(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT), *(signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2))
LOOK_S = 0.2  # seconds between two checks of the states of the processes
GRACE_S = 30  # from SIGTERM to SIGKILL


class NotAttached(UsageError):
    """A command runs without the check; the text is the reason."""


class RequiredCheck:
    """Runs a command, whose processes write their states to a folder.

    The command leads a process group of its own, and gets the signals that this process gets, each once.  A signal to
    the group of this process, as of Ctrl-C, goes on to the group of the command: it has ended the `witness`, too.
    """

    def __init__(self, folder: Path, *, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals that came before the child was there
        self._witness = _waiting_process()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run the command; returns its exit code, or 128 + N if signal N has ended it.

        Raises NotAttached, and ends the command, if a scheduler is refused, or if none is attached in time after the
        start, or after the last import of the scheduler's module; also if the command ends well before that.
        """
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # as for nohup: the command ignores it, too
                signal.signal(number, self._forward)
        self._child = child = subprocess.Popen(command, env=environment, process_group=0)
        for early in self._early:
            self._forward(early)
        try:
            code = self._ended(child)
        except NotAttached:
            _end(child)
            raise
        finally:
            self._witness.kill()
        for path in sorted(self._files(State.ENDED)):
            unchecked = f"the scheduler of process {path.stem}, which ran on unchecked"
            raise NotAttached(f"the check ended before {unchecked}: {path.read_text()}")
        return code if code >= 0 else 128 - code

    def _forward(self, number: int, _frame: object = None) -> None:
        if self._child is None:
            self._early.append(number)
        elif _code_within(self._witness, LOOK_S) is None:
            self._child.send_signal(number)
        else:
            self._witness = _waiting_process()
            _send_to_group(self._child, number)

    def _ended(self, child: subprocess.Popen[bytes]) -> int:
        waited, num_imported = 0.0, 0
        while (code := _code_within(child, LOOK_S)) is None:
            waited += LOOK_S
            self._check_refused()
            if len(self._files(State.IMPORTED)) > num_imported:
                waited, num_imported = 0.0, len(self._files(State.IMPORTED))
            if waited >= self._seconds and not self._files(State.ATTACHED):
                raise NotAttached(f"{_how_far(num_imported)} within {self._seconds:g} s; the command is ended")
        self._check_refused()
        if code == 0 and not self._files(State.ATTACHED):
            raise NotAttached(f"{_how_far(num_imported)}; the command ended with exit code 0")
        return code

    def _check_refused(self) -> None:
        for path in sorted(self._files(State.REFUSED)):
            raise NotAttached(f"not attached to the scheduler of process {path.stem}: {path.read_text()}")

    def _files(self, state: State) -> set[Path]:
        return set(self._folder.glob(f"*.{state.value}"))


def _how_far(num_imported: int) -> str:
    if num_imported:
        return "not attached: the scheduler's module was imported, but no scheduler was made"
    return (
        "not attached: no process has imported the scheduler's module and our hook"
        " (is PYTHONPATH kept? python -I, -E and -S ignore it)"
    )


def _code_within(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the command, and all other processes of its group."""
    child.terminate()
    if _code_within(child, GRACE_S) is None:
        child.kill()
        child.wait()
    _send_to_group(child, signal.SIGKILL)


def _send_to_group(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):  # the group is empty
        os.killpg(child.pid, number)


def _waiting_process() -> subprocess.Popen[bytes]:
    """A process of our group that waits for a signal, or for our end."""
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
