"""The strict memory check: whether the environment wants one, how deep, and who does it.

    SWARDEN_STRICT_MEM_CHECK=off|sums|audit|census     or 0 to 3; unset or empty is off
    SWARDEN_STRICT_MEM_CHECK=audit:report              what is wrong is logged and counted, not raised

The engine knows no checker.  Whoever has one offers it as an entry point of the group `swarden.checkers`,
by the name of its level: something that is called with `reports` and returns a Checker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol, TypeVar

from engine_under_test.errors import ConfigError
from engine_under_test.events import Event
from engine_under_test.ports import Observer

VARIABLE = "SWARDEN_STRICT_MEM_CHECK"
GROUP = "swarden.checkers"
CENSUS = "census"
LEVELS = ("off", "sums", "audit", CENSUS)
REPORT = "report"

EngineT = TypeVar("EngineT", contravariant=True)


class Checker(Observer, Protocol[EngineT]):
    """An observer that looks at the engine too."""

    def attach(self, engine: EngineT) -> None:
        """Meet the engine while it is empty, before there is anything to notice."""


class Setting(NamedTuple):
    """How deep to check, and whether what is wrong is reported only."""

    level: str
    reports: bool


@dataclass(frozen=True, slots=True)
class Both:
    """Two observers of one engine."""

    first: Observer
    second: Observer

    def notice(self, event: Event) -> None:
        self.first.notice(event)
        self.second.notice(event)


def setting_of(environment: Mapping[str, str]) -> Setting | None:
    """What the environment asks for; None where that is nothing.  Raises ConfigError for an unknown value."""
    value = environment.get(VARIABLE, "")
    name, colon, suffix = value.partition(":")
    level = LEVELS[int(name)] if name in map(str, range(len(LEVELS))) else name or LEVELS[0]
    if level not in LEVELS or (colon and suffix != REPORT):
        raise ConfigError(
            f"{VARIABLE}: {value!r} is no level; want {', '.join(LEVELS)} (0 to {len(LEVELS) - 1}), "
            f"with :{REPORT} behind it to log what is wrong instead of raising"
        )
    return None if level == LEVELS[0] else Setting(level, bool(colon))


def checker_of(setting: Setting) -> Checker[Any]:
    """The checker that the environment asks for, of whatever engine; raises ConfigError where nobody offers it."""
    offered = sorted(entry_points(group=GROUP, name=setting.level))
    if not offered:
        raise ConfigError(
            f"{VARIABLE}: no installed package has a checker for {setting.level!r} (entry points {GROUP}); "
            f"install one, as swarden itself with pip, or set {LEVELS[0]}"
        )
    checker: Checker[Any] = offered[0].load()(reports=setting.reports)
    return checker


def both(first: Observer | None, second: Observer | None) -> Observer | None:
    """Who hears what two may want to hear; None where neither does."""
    if first is None or second is None:
        return first or second
    return Both(first, second)
