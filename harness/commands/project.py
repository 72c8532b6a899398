"""The options that pyproject.toml has for commands, in its table [tool.swarden]: data only, never code or commands."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_whole
from swarden.harness.core.registry import installed
from swarden.harness.core.validation import validation_text

PROJECT = Path("pyproject.toml")
MAX_BYTES = 1 << 20
Engine = Annotated[str, msgspec.Meta(pattern=r"^[\w-]+(==[\w.-]+)?$")]
Setting = Annotated[str, msgspec.Meta(pattern=r"^\w+$")]
CAMPAIGN = ("engine", "profile", "minutes")
OPTIONS: dict[tuple[str, ...], tuple[str, ...]] = {  # of a command, or of a command and its own command
    ("fuzz",): (*CAMPAIGN, "set"),
    ("nightly",): (*CAMPAIGN, "archive"),
    **{("archive", name): ("archive",) for name in ("list", "show", "quarantine", "verify", "import")},
}
OF_SERVERS = ("engine", "set")  # not with --url


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table. An option has the name of that of the commands; `set` is a table of settings."""

    engine: Engine | tuple[Engine, ...] = ()
    profile: str | None = None
    minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    archive: str | None = None
    set: dict[Setting, Any] = {}

    def __post_init__(self) -> None:
        if self.archive is not None and (PurePath(self.archive).is_absolute() or ".." in PurePath(self.archive).parts):
            raise ValueError(f"archive: {self.archive!r} is not below this folder; name a folder in it")
        for name in (one.partition("==")[0] for one in self.engines):
            if name not in installed():
                raise ValueError(f"engine: {name!r} is not installed; installed are {', '.join(installed())}")

    @property
    def engines(self) -> tuple[str, ...]:
        return (self.engine,) if isinstance(self.engine, str) else self.engine

    def values(self, option: str) -> list[str]:
        """The values of an option of the command line; none if the table does not have it."""
        if option == "engine":
            return list(self.engines)
        if option == "set":
            return [f"{name}={json.dumps(value)}" for name, value in self.set.items()]
        value = getattr(self, option)  # one of OPTIONS
        return [] if value is None else [f"{value:g}" if isinstance(value, float) else str(value)]


def with_project(arguments: Sequence[str]) -> list[str]:
    """The command line with the project's options behind its command; one that is given replaces the project's."""
    words = next((words for words in OPTIONS if tuple(arguments[: len(words)]) == words), None)
    if words is None:
        return list(arguments)
    given = {argument.partition("=")[0] for argument in arguments}
    is_server = "--url" in given
    names = [name for name in OPTIONS[words] if f"--{name}" not in given and not (is_server and name in OF_SERVERS)]
    project = _read(PROJECT)
    added = [word for name in names for value in project.values(name) for word in (f"--{name}", value)]
    return [*words, *added, *arguments[len(words) :]]


def _read(path: Path) -> Project:
    """The table of a pyproject.toml; an empty one if it has none."""
    try:
        raw = tomllib.loads(read_whole(path, most=MAX_BYTES).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}; correct it") from error
    table = raw.get("tool", {}).get("swarden", {})
    try:
        return msgspec.convert(table, Project)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: [tool.swarden]: {validation_text(table, error)}; correct it") from error
