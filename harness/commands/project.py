"""The options that pyproject.toml has for commands, in its table [tool.swarden]: data only, never code or commands."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import MAX_TOML_BYTES, read_toml, read_whole
from swarden.harness.core.registry import installed
from swarden.harness.core.validation import shortened, validation_text

PROJECT = Path("pyproject.toml")
Engine = Annotated[str, msgspec.Meta(pattern=r"^[\w-]+(==[\w.-]+)?$")]
SETTING = re.compile(r"\w+")  # the name of one
CAMPAIGN = ("engine", "profile", "minutes")
OPTIONS: dict[tuple[str, ...], tuple[str, ...]] = {  # by the words of a command: the options that the table can have
    ("fuzz",): (*CAMPAIGN, "set", "mutes"),
    ("mute",): ("mutes",),
    ("nightly",): (*CAMPAIGN, "archive"),
    **{("archive", name): ("archive",) for name in ("list", "show", "quarantine", "verify", "import", "draft")},
}
OF_ENGINE = ("engine", "set")
HELP = "--help"


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [tool.swarden]. Each field is named after its option of the commands; `set` is a table of settings."""

    engine: Engine | tuple[Engine, ...] = ()
    profile: str | None = None
    minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    archive: str | None = None
    mutes: str | None = None
    set: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for name, path in (("archive", self.archive), ("mutes", self.mutes)):
            if path is not None and not Path(path).resolve().is_relative_to(Path.cwd().resolve()):
                raise ValueError(f"{name}: {path!r} is not below this folder; name one in it")
        if bad := [name for name in self.set if not SETTING.fullmatch(name)]:
            raise ValueError(f"set has {bad[0]!r}, want the name of a setting")

    @property
    def engines(self) -> tuple[str, ...]:
        return (self.engine,) if isinstance(self.engine, str) else self.engine

    def values(self, option: str) -> list[str]:
        """The values of an option of the command line; none if the table does not have it."""
        if option == "engine":
            for name in (engine.partition("==")[0] for engine in self.engines):
                if name not in installed():
                    raise ValueError(f"engine: {name!r} is not installed; installed are {', '.join(installed())}")
            return list(self.engines)
        if option == "set":
            return [f"{name}={_json(name, value)}" for name, value in self.set.items()]
        value = getattr(self, option)  # one of OPTIONS
        return [] if value is None else [f"{value:g}" if isinstance(value, float) else str(value)]


def with_project(arguments: Sequence[str]) -> list[str]:
    """The command line with the project's options behind its command; one that is given replaces the project's."""
    words = next((words for words in OPTIONS if tuple(arguments[: len(words)]) == words), None)
    if words is None:
        return list(arguments)
    given = {argument.partition("=")[0] for argument in arguments}
    if HELP in given:
        return list(arguments)
    other_engine = bool(given & {"--engine", "--url"})  # which does not have the settings of the project's engine
    names = [name for name in OPTIONS[words] if f"--{name}" not in given and not (other_engine and name in OF_ENGINE)]
    project = _read(PROJECT)
    try:
        added = [word for name in names for value in project.values(name) for word in (f"--{name}", value)]
    except ValueError as error:
        raise UsageError(f"{PROJECT}: [tool.swarden]: {error}; correct it") from error
    return [*words, *added, *arguments[len(words) :]]


def _json(name: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, RecursionError) as error:  # TOML has dates
        raise ValueError(f"set.{name} is {shortened(value)}, want a value of JSON") from error


def _read(path: Path) -> Project:
    """The table of a pyproject.toml; an empty one if it has none, or cannot have it because our name is not in it."""
    if b"swarden" not in read_whole(path, most=MAX_TOML_BYTES):
        return Project()
    tool = read_toml(path).get("tool", {})
    table = tool.get("swarden", {}) if isinstance(tool, dict) else tool
    if not isinstance(table, dict):
        raise UsageError(f"{path}: [tool.swarden]: is {shortened(table)}, want a table; correct it")
    try:
        return msgspec.convert(table, Project)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: [tool.swarden]: {validation_text(table, error)}; correct it") from error
