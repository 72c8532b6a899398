"""Bounded reads of files from outside, and writes that replace regular files whole, and nothing else.

A file that is named on the command line can be any file that is read or written in order: a FIFO, a pipe, a device.
A file that is found in a folder is a regular file inside that folder; the functions get the folder as `inside`.
"""

import errno
import io
import os
import secrets
import select
import stat
import time
import tomllib
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from swarden.harness.core.errors import UsageError

EVERYBODY, OWNER_ONLY = 0o666, 0o600  # the modes of new files; the umask takes rights from the first
STANDARD_INPUT = Path("-")
PATIENCE_S = 30.0  # for the other end of a FIFO or a pipe, at its opening and for each part of the content
RETRY_S = 0.05
MAX_TOML_BYTES = 1 << 20


class PolledFile(io.FileIO):
    """A file that never blocks: a read or a write that waits too long for the other end raises TimeoutError."""

    def readinto(self, buffer: Any) -> int:
        while True:
            self._wait(select.POLLIN)
            count: int | None = super().readinto(buffer)
            if count is not None:
                return count

    def write(self, content: Any) -> int:
        """Write the whole content."""
        left = memoryview(content)
        try:
            while left:
                self._wait(select.POLLOUT)
                left = left[super().write(left) or 0 :]
        except OSError as error:  # one of a write, as on a full disk, does not name the file
            raise OSError(error.errno, error.strerror, str(self.name)) from error
        return len(content)

    def _wait(self, event: int) -> None:
        waiting = select.poll()
        waiting.register(self, event)
        if not waiting.poll(1000 * PATIENCE_S):
            raise OSError(errno.ETIMEDOUT, f"the other end was silent for {PATIENCE_S:g} s", str(self.name))


def opened(path: Path, mode: Literal["rb", "wb", "ab"] = "rb", *, inside: Path | None = None) -> PolledFile:
    """Open a file, "-" as standard input; raises OSError, also for a file that is not regular or not `inside`."""
    if inside is None:
        if path == STANDARD_INPUT and mode == "rb":
            return PolledFile(os.dup(0), mode)
        return PolledFile(path, mode, opener=_open)
    stream = PolledFile(resolved(path, inside), mode, opener=_open_regular)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return stream


def resolved(path: Path, inside: Path) -> Path:
    """The path without links, whether it exists or not; raises OSError if it leads outside of a folder."""
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(os.path.realpath(inside)):
        raise OSError(errno.EPERM, f"leads to {target}, outside of {inside}", str(path))
    return target


def read_whole(path: Path, *, most: int, inside: Path | None = None) -> bytes:
    """The content of a file of at most `most` bytes; raises OSError, also if it has more."""
    with opened(path, inside=inside) as stream, io.BufferedReader(stream) as reader:
        is_too_large = os.fstat(stream.fileno()).st_size > most
        content = b"" if is_too_large else reader.read(most + 1)
    if is_too_large or len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a file of TOML; raises UsageError."""
    try:
        return tomllib.loads(read_whole(path, most=MAX_TOML_BYTES).decode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; remove it or make it a file") from error
    except (ValueError, RecursionError) as error:  # ValueError also for a number of more than 4300 digits
        raise UsageError(f"{path}: not TOML: {error}; correct it") from error


def write_whole(path: Path, content: bytes, *, mode: int = EVERYBODY, inside: Path | None = None) -> None:
    """Write to a new temporary file in the same folder, then rename it to `path`; raises OSError if that fails.

    A link stays a link to the file that is written.  A file that is not regular, such as a FIFO, is written directly,
    or refused if the file must be `inside` a folder; the folders between are created.
    """
    target = Path(os.path.realpath(path))
    if inside is not None:
        resolved(path, inside).parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        with opened(path, "wb", inside=inside) as stream:
            stream.write(content)
        return
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with PolledFile(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def why_not_writable(folder: Path) -> str:
    """The reason for which no file can be written to a folder, such as a full disk; "" if one can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix=".trial-") as trial:
            trial.write(b"swarden writes here\n")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def check_target(option: str, path: Path | None) -> None:
    """Raise UsageError for a folder, before the work whose result would be written there."""
    if path is not None and path.is_dir():
        raise UsageError(f"{option}: {path} is a folder; name a file")


def mode_of(path: Path) -> int:
    """The access rights for a file made from this one: the same if it is regular, else only those of the owner."""
    return path.stat().st_mode & EVERYBODY if path.is_file() else OWNER_ONLY


def _open(path: str, flags: int) -> int:
    """Open a file without blocking; a FIFO that is opened for writing waits until it has a reader."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, EVERYBODY)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
            if time.monotonic() > give_up:
                raise OSError(errno.ETIMEDOUT, f"had no reader for {PATIENCE_S:g} s", path) from error
            time.sleep(RETRY_S)


def _open_regular(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW, EVERYBODY)
