"""Twins: a second engine that gets the same ops and must give the same outputs.

The twin is the same engine with another setting that clients must not notice, a linked pair of it, or another engine.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from swarden.harness.core.changes import UNCHANGED, Changes
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.linked import joined
from swarden.harness.core.ops import Op
from swarden.harness.core.registry import target_of
from swarden.harness.core.remote import Build, RemoteSystem, boot
from swarden.harness.core.system import System
from swarden.harness.core.target import ENGINE, Target
from swarden.harness.core.target_fault import blamed_on
from swarden.invariants.view import Snapshot

ALL = "all"  # every twin of the target in turn

ValueT = TypeVar("ValueT")


class Twin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The second engine: `engine` is NAME or NAME==VERSION, "" for the same; `settings` are changes, as JSON.

    `linked` are the changes of a further engine to which it is linked, as a prefill/decode pair.
    """

    engine: str = ""
    settings: dict[str, Any] = {}
    linked: dict[str, Any] = {}

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        linked = ", ".join(f"{name} {value}" for name, value in self.linked.items())
        return " linked to ".join(filter(None, (" with ".join(filter(None, (self.engine, settings))), linked)))


class TwinEngines(NamedTuple):
    """The engine of a twin, or its linked engines, with the machine that drives them."""

    target: Target
    machine: str
    configs: list[Any]


def twin_of(target: Target, configs: Sequence[Any], twin: Twin, model: str) -> TwinEngines:
    """The engines of a twin; raises UsageError if they cannot be built."""
    if len(configs) > 1:
        raise UsageError(f"a twin belongs to one engine, not to {len(configs)}")
    if twin.linked and model:
        raise InvalidConfig("linked engines run no model")
    other = target_of(twin.engine) if twin.engine else target
    config = other.config_of(target.shape(configs[0])) if twin.engine else configs[0]
    if not twin.linked:
        return TwinEngines(other, ENGINE, [other.decode({**other.encode(config), **twin.settings})])
    sides = [other.decode({**other.encode(config), **changed}) for changed in (twin.settings, twin.linked)]
    roles = [other.role(side) for side in sides]
    machine = next((name for name, spec in other.machines.items() if [*spec.roles] == roles), None)
    if machine is None:
        raise InvalidConfig(
            f"{other.name} links no engines with the roles {', '.join(role or 'both' for role in roles)}"
        )
    other.check_linked(sides)
    return TwinEngines(other, machine, sides)


def system_of_twin(
    target: Target, configs: Sequence[Any], twin: Twin, *, model: str, changes: Changes
) -> System | RemoteSystem:
    """A new system for the twin of an engine with this configuration; linked engines are one system.

    If a process can hold only one of the two engines, the twin has a process of its own; if the engine is the same, the
    changes are planted there, too.
    """
    other, machine, decoded = twin_of(target, configs, twin, model)
    if target.process and other.process:
        encoded = [other.encode(config) for config in decoded]
        return RemoteSystem(Build(_release(other), machine, encoded, model, UNCHANGED if twin.engine else changes))
    return joined(other.twin_systems(machine, decoded, model), other.machines[machine].ops)


def boot_twin(target: Target, wanted: str) -> None:
    """Start the process of the twin if the twin needs one: importing a serving engine takes seconds."""
    is_same = wanted in (ALL, *target.twins(target.decode({})))
    other = target if is_same else target_of(wanted)
    if target.process and other.process:
        boot(_release(other))


def _release(target: Target) -> str:
    return f"{target.name}=={target.version()}"


def twin_for(target: Target, config: Any, wanted: str, ordinal: int, *, model: str = "") -> Twin | None:
    """The twin of a run: `wanted` is another engine, the name of a twin of the target, or ALL.

    With ALL the twins take turns, by the ordinal of the run.  None if an engine of this configuration has no such twin.
    """
    named = target.twins(config)
    names = list(named) if wanted == ALL else [wanted]
    if not names:
        return None
    name = names[ordinal % len(names)]
    first, *linked = map(dict, named.get(name, [{}]))
    twin = Twin(engine="" if name in named else wanted, settings=first, linked=linked[0] if linked else {})
    try:
        others = twin_of(target, [config], twin, model).configs
    except InvalidConfig:
        return None
    return twin if twin.engine or [*map(target.encode, others)] != [target.encode(config)] else None


def check_twin(target: Target, wanted: str, model: str) -> None:
    """Raise UsageError unless `wanted` is a twin that a run of the target can have."""
    twins = target.twins(target.decode({}))
    names = list(twins)
    if model and len(twins.get(wanted, ())) > 1:
        raise UsageError(f"--twin: {wanted} has linked engines, which run no model; leave --model out")
    if wanted in names or (wanted == ALL and names):
        return
    try:
        target_of(wanted).check_environment()
        twin_of(target, [target.decode({})], Twin(engine=wanted), "")
    except InvalidConfig:  # of another shape than the default
        return
    except UsageError as error:
        known = ", ".join([ALL, *names]) if names else "none"
        raise UsageError(f"--twin: {wanted!r} is no twin of {target.name} ({known}) and no engine: {error}") from error


class TwinSystem(System):
    """Two systems that get the same ops; only the first is captured and checked.

    An error of either system ends the run.  The outputs are compared by a law, `twins_agree`.
    """

    def __init__(self, first: System, second: System | RemoteSystem, engine: str = "twin") -> None:
        """`engine` names the target of the second system."""
        self._engine = engine
        self._both = (first, second)
        self._first = first
        self.reference = first.reference

    @property
    def steps_without_forward(self) -> int:
        return self._first.steps_without_forward

    @property
    def log(self) -> EventLog:
        return self._first.log

    def do(self, op: Op) -> bool:
        """Do the op in both systems; a request that only one of them accepts has no twin."""
        known = [len(one.reference.expectations) for one in self._both]
        result = self._on_both(lambda one: one.do(op))
        here, there = (one.reference.expectations for one in self._both)
        if len(here) > known[0] and len(there) > known[1]:
            self.reference.twins[next(reversed(here))] = there[next(reversed(there))]
        return result

    @property
    def has_work(self) -> bool:
        return any(one.has_work for one in self._both)

    def heal(self) -> None:
        self._on_both(lambda one: one.heal())

    def clear(self) -> None:
        self._on_both(lambda one: one.clear())

    @property
    def drain_bound(self) -> int:
        return max(one.drain_bound for one in self._both)

    def capture(self) -> Snapshot:
        return self._first.capture()

    def take_events(self) -> list[NamedTuple]:
        return self._first.take_events()

    def _on_both(self, act: Callable[[System | RemoteSystem], ValueT]) -> ValueT:
        """Act on the first system and then on the second, whose events are dropped; returns the first result."""
        first, second = self._both
        result = act(first)
        act(second)
        if not isinstance(second, RemoteSystem):
            with blamed_on(self._engine, "capture"):
                second.capture()  # some ports derive the owners of units in events from the last capture
                second.take_events()
        return result
