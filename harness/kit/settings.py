"""Configurations as declared settings, from which a target's draws, JSON form, defaults and errors follow.

A setting is a field of a `Settings` with a default and, in its `Annotated` type, what is known of it::

    class BlockConfig(Settings, frozen=True):
        num_blocks: Annotated[int, within(1, 65536), Drawn(range(4, 25))] = 16
        policy: Annotated[str, OneOf(("fcfs", "priority")), Drawn(("fcfs", "fcfs", "priority"))] = "fcfs"
        chunk_blocks: Annotated[int, within(1, 16), PartOf("cpu_chunks")] = 1
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw, Shape, Target
from swarden.harness.core.validation import shortened, validation_text

SettingsT = TypeVar("SettingsT", bound="Settings")


class OneOf(NamedTuple):
    """The values that a setting can have."""

    values: Sequence[Any]


class Drawn(NamedTuple):
    """The values from which a random configuration is drawn; the simplest is the first one."""

    options: Sequence[Any]


class PartOf(NamedTuple):
    """The setting that enables the annotated setting: the shrinker resets both together."""

    setting: str


class IfReleaseHas(NamedTuple):
    """The feature of a release without which this setting can only have its default."""

    feature: str


class Needs(NamedTuple):
    """If a setting is not at its default, others must have one of these values; `at`: only if it has that value."""

    setting: str
    values: Mapping[str, Sequence[Any]]
    at: Any = ...


def within(low: float, high: float) -> msgspec.Meta:
    """The limits of a number, both included."""
    return msgspec.Meta(ge=low, le=high)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration.  A subclass may check more in `__post_init__`, which raises InvalidConfig.

    A story shows the `main` settings even where they have their default.
    """

    needs: ClassVar[Sequence[Needs]] = ()
    main: ClassVar[Sequence[str]] = ()

    def __post_init__(self) -> None:
        defaults = default_of(type(self))
        for name, known in declared(type(self), OneOf).items():
            _check(name, getattr(self, name), known.values)
        for setting, values, at in self.needs:
            value = getattr(self, setting)
            if value != defaults[setting] and at in (..., value):
                for name, wanted in values.items():
                    _check(name, getattr(self, name), wanted, f" with {setting} {shortened(value)}")

    @property
    def shape(self) -> Shape:
        """The part of this configuration that generic traffic needs."""
        return Shape()


def _check(name: str, value: Any, wanted: Sequence[Any], beside: str = "") -> None:
    if value not in wanted:
        is_range = isinstance(wanted, range)
        want = f"{wanted[0]} to {wanted[-1]}" if is_range else " or ".join(map(shortened, wanted))
        raise InvalidConfig(f"{name} is {shortened(value)}{beside}, want {want}")


@cache
def declared(kind: type[Settings], what: type[Any]) -> Mapping[str, Any]:
    """By setting, the annotation of this kind in its type."""
    hints = get_type_hints(kind, include_extras=True).items()
    notes = {name: get_args(hint)[1:] for name, hint in hints if get_origin(hint) is Annotated}
    return {name: note for name, of_setting in notes.items() for note in of_setting if isinstance(note, what)}


@cache
def default_of(kind: type[Settings]) -> Mapping[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(kind)}


def drawn(draw: Draw, kind: type[Settings], *names: str) -> dict[str, Any]:
    """Random values of these settings, in this order, or of all that have options, in their own order."""
    options = {name: note.options for name, note in declared(kind, Drawn).items()}
    return {
        name: draw.integer(of_setting.start, of_setting.stop - 1)
        if isinstance(of_setting := options[name], range)
        else draw.one_of(of_setting)
        for name in names or options
    }


def converted(mapping: Mapping[str, Any], kind: type[SettingsT]) -> SettingsT:
    """The configuration with these settings; raises InvalidConfig."""
    try:
        return msgspec.convert(dict(mapping), kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidConfig):
            raise error.__cause__ from error
        raise InvalidConfig(validation_text(dict(mapping), error)) from error


class ConfiguredTarget(Target):
    """A target whose configurations are of one `config_type`.

    The setting `role`, if there is one, has the default of an engine that serves alone.
    """

    config_type: type[Settings]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "config_type"):
            cls.defaults = msgspec.to_builtins(cls.config_type())
            groups: dict[str, list[str]] = {}
            for name, (setting,) in declared(cls.config_type, PartOf).items():
                groups.setdefault(setting, [setting]).append(name)
            cls.coupled = tuple(groups.values())
            cls.main_settings = cls.config_type.main

    def config(self, draw: Draw) -> Any:
        return self.config_type(**drawn(draw, self.config_type))

    def shape(self, config: Any) -> Shape:
        shape: Shape = config.shape
        return shape

    def role(self, config: Any) -> str:
        role = getattr(config, "role", "")
        return "" if role == self.defaults.get("role", "") else str(role)

    def encode(self, config: Any) -> dict[str, Any]:
        encoded: dict[str, Any] = msgspec.to_builtins(config)
        return encoded

    def decode(self, mapping: Mapping[str, Any]) -> Any:
        return converted(mapping, self.config_type)
