"""The files of a checkpoint directory, inside it and read up to a limit each; the keys of config.json are checked."""

import json
import os
from collections.abc import Container, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from swarden.engine_under_test import limits
from swarden.engine_under_test.errors import CheckpointError

REMEDY = "download the checkpoint again"
SNAPSHOTS = "snapshots"  # the cache of Hugging Face has <repository>/snapshots/<revision>, with links to …
BLOBS = "blobs"  # … <repository>/blobs
SLIDING, FULL = "sliding_attention", "full_attention"  # the layer types


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
    too_deep = CheckpointError(f"{path}: nested more than {limits.MAX_JSON_DEPTH} deep; {REMEDY}")
    try:
        with path.open("rb") as file:
            content = file.read(limits.MAX_JSON_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > limits.MAX_JSON_BYTES:
        raise CheckpointError(f"{path}: is larger than {limits.MAX_JSON_BYTES} bytes; {REMEDY}")
    try:
        values = json.loads(content.decode(), object_hook=_number_or_object)
    except RecursionError as error:
        raise too_deep from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}; {REMEDY}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: holds a {type(values).__name__}; want a JSON object")
    level: list[Any] = [values]
    for _ in range(limits.MAX_JSON_DEPTH):
        inner = [child for value in level for child in (value.values() if isinstance(value, dict) else value)]
        level = [value for value in inner if isinstance(value, dict | list)]
    if level:
        raise too_deep
    return values


def _number_or_object(read: dict[str, Any]) -> Any:
    """Read a number that JSON lacks (an infinity or NaN), which transformers writes as an object."""
    number = read.get("__float__")
    return float(number) if number in ("Infinity", "-Infinity", "NaN") and len(read) == 1 else read


class ConfigFile:
    """One JSON object of a configuration.  An invalid key raises a CheckpointError that names the file and the key."""

    def __init__(self, values: Mapping[str, Any], source: str, *, within: str = "") -> None:
        """`source` names the file, `within` the keys that lead to this object, each followed by a dot."""
        self.values = values
        self._source = source
        self._within = within

    def __contains__(self, key: str) -> bool:
        """Whether the key has a value; the value null counts as absent."""
        return self.values.get(key) is not None

    def has(self, key: str) -> bool:
        """Whether the key is in the file, even as null."""
        return key in self.values

    def with_defaults(self, defaults: Mapping[str, Any]) -> "ConfigFile":
        """The object with defaults for absent keys.  Null replaces a default, except the default of an object."""
        written = {
            key: value
            for key, value in self.values.items()
            if value is not None or not isinstance(defaults.get(key), Mapping)
        }
        return ConfigFile({**defaults, **written}, self._source, within=self._within)

    def refuse_others(self, read: Container[str], fixed: Mapping[str, Any], *, reader: str) -> None:
        """Raises CheckpointError for a key in neither `read` nor `fixed`, and for a key in `fixed` with another value.

        Null counts as absent; for a flag it counts as false.  `reader` is the subject of the message.
        """
        for key, value in self.values.items():
            if key in fixed and value != fixed[key] and (value is not None or fixed[key] is True):
                raise self.refusal(key, f"is {shortened(value)}, which {reader} does not support; want {fixed[key]!r}")
            if key not in fixed and key not in read and value is not None:
                raise self.refusal(key, f"is not supported for {reader}; remove it if the model does not depend on it")

    def refusal(self, key: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._source}: {self._within}{key} {problem}")

    def raw(self, key: str) -> Any:
        if key not in self:
            raise self.refusal(key, "is missing; add it as save_pretrained of transformers does")
        return self.values[key]

    def count(self, key: str, *, least: int = 1, most: int = limits.MAX_SIZE) -> int:
        """An integer of at least `least` and at most `most`."""
        value = self.raw(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refusal(key, f"is {shortened(value)}; want an integer from {least} to {most}")
        return value

    def number(self, key: str) -> float:
        """A positive number, neither tiny nor huge."""
        value = self.raw(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not limits.MIN_FRACTION <= value <= limits.MAX_FRACTION:
            raise self.refusal(
                key,
                f"is {shortened(value)}; want a positive number, from {limits.MIN_FRACTION} to {limits.MAX_FRACTION}",
            )
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.raw(key) if key in self else default
        if not isinstance(value, bool):
            raise self.refusal(key, f"is {shortened(value)}; want true or false")
        return value

    def items(self, key: str, *, what: str) -> list[Any]:
        """A list; `what` names its items for the message."""
        value = self.raw(key)
        if not isinstance(value, list):
            raise self.refusal(key, f"is {shortened(value)}; want a list of {what}")
        return value

    def choice(self, key: str, choices: Mapping[str, object]) -> str:
        value = self.raw(key)
        if not isinstance(value, str) or value not in choices:
            raise self.refusal(key, f"is {shortened(value)}; want one of {', '.join(choices)}")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """The token ids in the file under a key: one id, a list of ids, or none."""
        value = self.raw(key) if key in self else []
        ids = value if isinstance(value, list) else [value]
        if not all(type(item) is int and 0 <= item <= limits.MAX_NUMBER for item in ids):
            raise self.refusal(key, f"is {shortened(value)}; want a token id or a list of token ids")
        return tuple(ids)

    def inner(self, key: str) -> "ConfigFile":
        value = self.raw(key)
        if not isinstance(value, dict):
            raise self.refusal(key, f"is {shortened(value)}; want an object")
        return ConfigFile(value, self._source, within=f"{self._within}{key}.")
