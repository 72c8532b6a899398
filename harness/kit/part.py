"""A capability of an engine: its settings, and the hooks by which it takes part in the work of an adapter."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from swarden.harness.core.target import Draw
from swarden.harness.kit.settings import IfReleaseHas, PartSettings, SettingsT, declared, default_of, drawn, replaced
from swarden.invariants.view import Snapshot

NONE: Mapping[str, Any] = {}


class Part:
    """What a capability does in an engine from step to step; an adapter has a list of them."""

    @property
    def has_work(self) -> bool:
        """Does something go on that needs further steps, although no request waits?"""
        return False

    @property
    def is_busy(self) -> bool:
        """Does something go on for which a pause waits?"""
        return False

    def begin_step(self) -> None: ...

    def settle(self) -> None:
        """Report what has moved, before a snapshot."""

    def views(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what this capability shows."""
        return snapshot

    def clear(self) -> None:
        """At the end of a drain, before the caches are cleared."""


class Capability(PartSettings, frozen=True):
    """The settings of a capability, of which the first enables it, and what differs in an engine that has it.

    `server_need` is its name where a bug needs it.  An engine has `ops` and reports `events` with it alone.  All but
    `is_on`, `check` and `drawn` is asked of those that are in a configuration; by default nothing differs.
    """

    server_need: ClassVar[str] = ""
    ops: ClassVar[Sequence[str]] = ()
    events: ClassVar[Sequence[type[object]]] = ()

    @property
    def is_on(self) -> bool:
        return any(getattr(self, name) != value for name, (value,) in off(type(self)).items())

    def is_in(self, config: Any) -> bool:
        return self.is_on

    @classmethod
    def drawn(cls, draw: Draw, config: Any, has: Callable[[str], bool]) -> Mapping[str, Any]:
        """Random settings in a configuration; none if the release `has` not all features that they need."""
        features = [feature for feature, *_ in declared(cls, IfReleaseHas).values()]
        return drawn(draw, cls) if all(map(has, features)) else {}

    def check_release(self, config: Any, release: Any) -> None:
        """Raise InvalidConfig if the release cannot be built with these settings."""

    def faults(self, config: Any) -> Mapping[str, str]:
        """The faults that can happen to an engine, each with its effect."""
        return NONE

    def uses(self, config: Any) -> Collection[str]:
        """The operations and the faults that traffic draws."""
        return (*self.ops, *self.faults(config))

    def reported(self, config: Any) -> Sequence[type[object]]:
        """The events that are reported with it alone."""
        return self.events

    def inapplicable(self, config: Any, release: Any) -> Collection[str]:
        """The names of the laws that do not apply, and of the events that are not reported."""
        return ()

    def limits(self, config: Any) -> Mapping[str, Any]:
        """Limits in the snapshots."""
        return NONE

    def shape(self, config: Any) -> Mapping[str, Any]:
        """Fields of the shape for traffic."""
        return NONE

    def attach(self, engine: Any) -> Sequence[Part]:
        """Prepare an engine that has been built; what goes on there from step to step are parts of it."""
        return ()


def off(*kinds: type[Capability]) -> dict[str, Sequence[Any]]:
    """The settings that enable these capabilities, each with the one value that does not."""
    firsts = [next(iter(default_of(kind).items())) for kind in kinds]
    return {name: (value,) for name, value in firsts}


def without(config: SettingsT, *kinds: type[Capability], **settings: Any) -> SettingsT:
    """The configuration without these capabilities, whose other settings stay, and with other values of `settings`."""
    return replaced(config, **{name: value for name, (value,) in off(*kinds).items()}, **settings)


def server_needs(*kinds: type[Capability]) -> dict[str, str]:
    return {name: kind.server_need for kind in kinds for name in off(kind)}


def merged(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for mapping in mappings for name, value in mapping.items()}
