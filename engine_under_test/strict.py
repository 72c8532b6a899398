"""The strict memory check: its setting in the environment, and the checker that runs it.

    SWARDEN_STRICT_MEM_CHECK=off|sums|audit|census|content     or 0 to 4; unset or empty is off
    SWARDEN_STRICT_MEM_CHECK=audit:report                      violations are logged and counted, not raised

The engine does not depend on a checker.  A package offers one as an entry point of the group `swarden.checkers`, by
the name of its level: a callable with the argument `reports` that returns a Checker.  A level has one checker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, Protocol, TypeVar

from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.ports import Observer
from swarden.invariants.events import Event

VARIABLE = "SWARDEN_STRICT_MEM_CHECK"
GROUP = "swarden.checkers"
CENSUS, CONTENT = "census", "content"
LEVELS = ("off", "sums", "audit", CENSUS, CONTENT)
REPORT = "report"

EngineT = TypeVar("EngineT", contravariant=True)


class Checker(Observer, Protocol[EngineT]):
    """An observer that also reads the state of the engine."""

    def attach(self, engine: EngineT) -> None:
        """Attach to an empty engine, before its first event."""


class Setting(NamedTuple):
    """The level of the check, and whether violations are only reported."""

    level: str
    reports: bool


@dataclass(frozen=True, slots=True)
class Both:
    """An observer that passes each event to two observers of one engine."""

    first: Observer
    second: Observer

    def notice(self, event: Event) -> None:
        self.first.notice(event)
        self.second.notice(event)


def setting_of(environment: Mapping[str, str]) -> Setting | None:
    """The setting in the environment; None if the check is off.  Raises ConfigError for an unknown value."""
    value = environment.get(VARIABLE, "")
    name, colon, suffix = value.partition(":")
    level = LEVELS[int(name)] if name in map(str, range(len(LEVELS))) else name or LEVELS[0]
    if level not in LEVELS or (colon and suffix != REPORT):
        raise ConfigError(
            f"{VARIABLE}: {value!r} is no level; want {', '.join(LEVELS)} (0 to {len(LEVELS) - 1}), "
            f"with :{REPORT} behind it to log violations instead of raising"
        )
    return None if level == LEVELS[0] else Setting(level, bool(colon))


def checker_of(setting: Setting) -> Checker[Any]:
    """The checker of a setting; raises ConfigError if not exactly one package offers it, or if it cannot be made."""
    offered = sorted(entry_points(group=GROUP, name=setting.level), key=_package)
    if not offered:
        raise ConfigError(
            f"{VARIABLE}: no installed package has a checker for {setting.level!r} (entry points {GROUP}); "
            f"install one with pip, for example swarden, or set {LEVELS[0]}"
        )
    if len(offered) > 1:
        packages = ", ".join(f"{_package(entry)} ({entry.value})" for entry in offered)
        raise ConfigError(
            f"{VARIABLE}: more than one package has a checker for {setting.level!r} (entry points {GROUP}): "
            f"{packages}; uninstall all but one"
        )
    [entry] = offered
    try:
        return _made(entry, setting)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a package may call sys.exit
        package = _package(entry)
        raise ConfigError(
            f"{VARIABLE}: the checker for {setting.level!r} of {package} ({entry.value}) cannot be used: "
            f"{type(error).__name__}: {error}; mend or uninstall {package}"
        ) from error


def _made(entry: EntryPoint, setting: Setting) -> Checker[Any]:
    """Load and make the checker; raises any exception of its package."""
    checker: Checker[Any] = entry.load()(reports=setting.reports)
    if not (hasattr(checker, "attach") and hasattr(checker, "notice")):
        raise TypeError(f"{checker!r} is no checker")
    return checker


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed package"


def both(first: Observer | None, second: Observer | None) -> Observer | None:
    """The two observers as one; None if there is none."""
    if first is None or second is None:
        return first or second
    return Both(first, second)
