"""The files of an archive: records in JSON, and texts, which are read and written only below its root."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_whole, resolved, write_whole
from swarden.harness.core.limits import MAX_ARCHIVE_BYTES
from swarden.harness.core.oplog import OpLog, OpLogError, OpLogText
from swarden.harness.core.validation import NOT_DECODED
from swarden.harness.search.result import Count

LogName = Annotated[str, msgspec.Meta(pattern=r"^[^/\0]*$", max_length=200)]  # of a file in the folder of a finding
RecordT = TypeVar("RecordT", bound=msgspec.Struct)


class ArchiveError(UsageError):
    """A file of an archive that cannot be read or written."""


class UnreadableFile(ArchiveError):
    """A file of an archive that cannot be read."""


def read(path: Path, kind: type[RecordT], root: Path) -> RecordT:
    """The record in a JSON file of the archive in `root`; raises UnreadableFile."""
    try:
        content = read_whole(path, most=MAX_ARCHIVE_BYTES, inside=root)
        return msgspec.json.decode(content, type=kind, dec_hook=partial(_decoded, path))
    except OSError as error:
        raise UnreadableFile(unreadable(path, error)) from error
    except OpLogError as error:
        raise UnreadableFile(str(error)) from error
    except NOT_DECODED as error:
        raise UnreadableFile(f"{path}: not a {kind.__name__}: {error}; restore it, or move it away") from error


def read_all(
    paths: Iterator[Path] | Sequence[Path], kind: type[RecordT], errors: list[str], root: Path
) -> Iterator[RecordT]:
    """The records in these files, in the order of their paths; a line for each unreadable one is added to `errors`."""
    for path in sorted(paths):
        try:
            yield read(path, kind, root)
        except ArchiveError as error:
            errors.append(str(error))


def check_inside(path: Path, root: Path) -> None:
    """Raise ArchiveError if a path in the archive leads out of it."""
    try:
        resolved(path, root)
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}; replace the link by what it leads to") from error


def save(path: Path, record: msgspec.Struct, root: Path) -> None:
    """Write a record as indented JSON; raises ArchiveError."""
    write(path, msgspec.json.format(msgspec.json.encode(record, enc_hook=_encoded), indent=1) + b"\n", root)


def write(path: Path, content: bytes, root: Path) -> None:
    """Write a file of the archive in `root`, and the folders above it; raises ArchiveError."""
    try:
        write_whole(path, content, inside=root)
    except OSError as error:
        raise ArchiveError(
            f"{path}: cannot be written: {error.strerror}; free space, or name another folder"
        ) from error


def unreadable(path: Path, error: OSError) -> str:
    """The line for a file that cannot be read."""
    return f"{path}: cannot be read: {error.strerror}; restore it, or move it away"


def _encoded(value: Any) -> str:
    return value.to_bytes().decode() if isinstance(value, OpLog) else str(value)


def _decoded(path: Path, kind: type[Any], value: Any) -> Any:
    """Decode what msgspec has no type for: a counter of Tallies, an op-log, which no engine has admitted, or a path."""
    if kind == Counter[str]:
        return Counter(msgspec.convert(value, dict[str, Count]))
    if kind is not OpLog:
        return kind(value)
    text = OpLogText(msgspec.convert(value, str).encode(), path)
    return text.log(text.header({}), lambda _: "")
