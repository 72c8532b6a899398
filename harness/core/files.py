"""Bounded file reads and atomic file writes."""

import errno
import os
import secrets
from pathlib import Path

EVERYBODY, OWNER_ONLY = 0o666, 0o600  # the modes of new files; the umask takes rights from the first


def read_whole(path: Path, *, most: int) -> bytes:
    """The content of a file of at most `most` bytes; raises OSError, also if it has more."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most} bytes", str(path))
    return content


def write_whole(path: Path, content: bytes, *, mode: int = EVERYBODY) -> None:
    """Write to a new temporary file in the same folder, then rename it to `path`; raises OSError if that fails."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
