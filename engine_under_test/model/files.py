"""The files of a checkpoint directory: each is inside it, and is read only up to its limit."""

import json
import os
from pathlib import Path
from typing import Any

from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.limits import MAX_JSON_BYTES, MAX_JSON_DEPTH

REMEDY = "download the checkpoint again"
SNAPSHOTS = "snapshots"  # the cache of Hugging Face has <repository>/snapshots/<revision>, with links to …
BLOBS = "blobs"  # … <repository>/blobs


def path_in(directory: Path, name: str) -> Path:
    """The path of a checkpoint's file, which is a regular file inside the directory; raises CheckpointError.

    A link may also lead to the blobs of a cache of Hugging Face, if the directory is a snapshot there.
    """
    path = directory / name
    if Path(name).name != name or "\0" in name:
        raise CheckpointError(f"{path}: is no name of a file in {directory}; {REMEDY}")
    try:
        is_there, target, home = path.is_file(), path.resolve(), directory.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a name that is too long or no text; a loop of links
        raise CheckpointError(f"{path}: cannot be read: {error}; {REMEDY}") from error
    places = [home, home.parent.parent / BLOBS] if home.parent.name == SNAPSHOTS else [home]
    if not any(target.is_relative_to(place) for place in places):
        raise CheckpointError(f"{path}: is a link to {target}, outside of {home}; copy the file there")
    if not is_there:
        raise CheckpointError(f"{path}: no such file; {REMEDY}")
    return path


def is_in(directory: Path, name: str) -> bool:
    """Whether the directory has an optional file; raises CheckpointError if it is there and no regular file."""
    path = directory / name
    try:
        if path.is_file():
            return True
        is_there = os.path.lexists(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}; {REMEDY}") from error
    if is_there:
        raise CheckpointError(f"{path}: is no regular file; {REMEDY}, or remove it")
    return False


def read_json(directory: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of the directory; raises CheckpointError."""
    path = path_in(directory, name)
    too_deep = CheckpointError(f"{path}: nested more than {MAX_JSON_DEPTH} deep; {REMEDY}")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_JSON_BYTES:
        raise CheckpointError(f"{path}: is larger than {MAX_JSON_BYTES} bytes; {REMEDY}")
    try:
        values = json.loads(content.decode(), object_hook=_number_or_object)
    except RecursionError as error:
        raise too_deep from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}; {REMEDY}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: holds a {type(values).__name__}; want a JSON object")
    level: list[Any] = [values]
    for _ in range(MAX_JSON_DEPTH):
        inner = [one for value in level for one in (value.values() if isinstance(value, dict) else value)]
        level = [value for value in inner if isinstance(value, dict | list)]
    if level:
        raise too_deep
    return values


def _number_or_object(read: dict[str, Any]) -> Any:
    """Read a number that JSON lacks (an infinity or NaN), which transformers writes as an object."""
    number = read.get("__float__")
    return float(number) if number in ("Infinity", "-Infinity", "NaN") and len(read) == 1 else read
