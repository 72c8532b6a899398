"""Configurations as declared settings, from which a target's draws, JSON form, defaults and errors follow.

A setting is a field of a `Settings` with a default and, in its `Annotated` type, what is known of it::

    class BlockConfig(Settings, frozen=True):
        num_blocks: Annotated[int, within(1, 65536), Drawn(range(4, 25))] = 16
        policy: Annotated[str, OneOf(("fcfs", "priority")), Drawn(("fcfs", "fcfs", "priority"))] = "fcfs"
        offload: Offload = Offload()  # the `PartSettings` of a capability, which are written and read beside the others
"""

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.target import ENGINE, PAIR, Draw, Launch, Shape, Target
from swarden.harness.core.validation import shortened, validation_text
from swarden.harness.kit.launch import Line, Table

SettingsT = TypeVar("SettingsT", bound="PartSettings")


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


class PartSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one part: a field of a configuration, in JSON in the place of this field, beside the others.

    What it `needs` can be any settings of the configuration.  `launch_table` has those that an option sets.
    """

    needs: ClassVar[Sequence[Needs]] = ()
    launch_table: ClassVar[Table] = {}

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """The settings that a launch line sets, including the settings of parts."""
        values = {name: read(line, *given) for name, (read, *given) in cls.launch_table.items()}
        return values | {name: value for part in _parts(cls).values() for name, value in part.launched(line).items()}

    def check(self, config: Any) -> None:
        """Check more of these settings in their configuration; raises InvalidConfig."""


class Settings(PartSettings, frozen=True):
    """A configuration.  A subclass may check more in `__post_init__`, which raises InvalidConfig.

    A story shows the `main` settings even where they have their default.
    """

    main: ClassVar[Sequence[str]] = ()
    servers: ClassVar[Sequence[str]] = ()  # the programs of its launch lines
    of_one_side: ClassVar[Sequence[str]] = ()  # settings that are not for both sides of a pair

    def __post_init__(self) -> None:
        values, defaults = flat(self), default_of(type(self))
        for name, one_of in declared(type(self), OneOf).items():
            _check(name, values[name], one_of.values)
        parts = [getattr(self, name) for name in _parts(type(self))]
        for setting, wanted, at in [need for part in (self, *parts) for need in part.needs]:
            value = values[setting]
            if value != defaults[setting] and at in (..., value):
                for name, allowed in wanted.items():
                    _check(name, values[name], allowed, f" with {setting} {shortened(value)}")
        for part in parts:
            part.check(self)

    @property
    def shape(self) -> Shape:
        """The part of this configuration that generic traffic needs."""
        return Shape()

    @classmethod
    def of_line(cls, line: Line) -> Self:
        """The configuration of a server with this launch line; raises InvalidConfig."""
        return made(cls, cls.launched(line))


def _check(name: str, value: Any, wanted: Sequence[Any], beside: str = "") -> None:
    if value not in wanted:
        is_range = isinstance(wanted, range)
        want = f"{wanted[0]} to {wanted[-1]}" if is_range else " or ".join(map(shortened, wanted))
        raise InvalidConfig(f"{name} is {shortened(value)}{beside}, want {want}")


@cache
def _parts(kind: type[PartSettings]) -> Mapping[str, type[PartSettings]]:
    hints = get_type_hints(kind)
    kinds = {field.name: hints[field.name] for field in msgspec.structs.fields(kind)}
    return {name: part for name, part in kinds.items() if isinstance(part, type) and issubclass(part, PartSettings)}


class _Field(NamedTuple):
    """A setting: its place in the configuration, such as "offload.cpu_chunks", its type and its default."""

    place: str
    hint: Any
    default: Any


@cache
def _fields(kind: type[PartSettings]) -> Mapping[str, _Field]:
    """The fields by setting; the settings of a part stand in the place of the part."""
    hints, by_setting = get_type_hints(kind, include_extras=True), dict[str, _Field]()
    for field in msgspec.structs.fields(kind):
        if (part := _parts(kind).get(field.name)) is None:
            by_setting[field.name] = _Field(field.name, hints[field.name], field.default)
        else:
            inside = _fields(part).items()
            by_setting |= {name: setting._replace(place=f"{field.name}.{setting.place}") for name, setting in inside}
    return by_setting


@cache
def _flat(kind: type[PartSettings]) -> type[msgspec.Struct]:
    """The settings without parts, for JSON."""
    fields = [(name, field.hint, None) for name, field in _fields(kind).items()]
    return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True)


@cache
def declared(kind: type[PartSettings], what: type[Any]) -> Mapping[str, Any]:
    """By setting, the annotation of this kind in its type."""
    hints = {name: field.hint for name, field in _fields(kind).items() if get_origin(field.hint) is Annotated}
    return {name: note for name, hint in hints.items() for note in get_args(hint)[1:] if isinstance(note, what)}


@cache
def default_of(kind: type[PartSettings]) -> Mapping[str, Any]:
    return {name: field.default for name, field in _fields(kind).items()}


def flat(config: PartSettings) -> dict[str, Any]:
    """The values of all settings, by name."""
    return {name: attrgetter(field.place)(config) for name, field in _fields(type(config)).items()}


def made(kind: type[SettingsT], settings: Mapping[str, Any]) -> SettingsT:
    """The configuration with these settings, by name, also those of its parts; raises InvalidConfig."""
    fields = dict(settings)
    for part, of_part in _parts(kind).items():
        inside = {name: fields.pop(name) for name in _fields(of_part) if name in fields}
        fields[part] = made(of_part, inside)
    return kind(**fields)


def replaced(config: SettingsT, **settings: Any) -> SettingsT:
    """The configuration with other values of these settings, also of its parts; raises InvalidConfig."""
    return made(type(config), flat(config) | settings)


def drawn(draw: Draw, kind: type[PartSettings], *names: str) -> dict[str, Any]:
    """Random values of these settings, in this order, or of all that have options, in their own order."""
    options = {name: note.options for name, note in declared(kind, Drawn).items()}
    return {
        name: draw.integer(of_setting.start, of_setting.stop - 1)
        if isinstance(of_setting := options[name], range)
        else draw.one_of(of_setting)
        for name in names or options
    }


def converted(mapping: Mapping[str, Any], kind: type[SettingsT]) -> SettingsT:
    """The configuration of a JSON object with these settings; raises InvalidConfig."""
    try:
        values = msgspec.convert(dict(mapping), _flat(kind))
    except msgspec.ValidationError as error:
        raise InvalidConfig(validation_text(dict(mapping), error)) from error
    return made(kind, {name: getattr(values, name) for name in mapping})


class ConfiguredTarget(Target):
    """A target whose configurations are of one `config_type`.

    The setting `role`, if there is one, has the default of an engine that serves alone.
    """

    config_type: type[Settings]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "config_type"):
            cls.defaults = msgspec.to_builtins(flat(cls.config_type()))
            groups: dict[str, list[str]] = {}
            for name, (setting,) in declared(cls.config_type, PartOf).items():
                groups.setdefault(setting, [setting]).append(name)
            cls.coupled = tuple(groups.values())
            cls.main_settings = cls.config_type.main
            cls.servers, cls.of_one_side = cls.config_type.servers, cls.config_type.of_one_side

    def config(self, draw: Draw) -> Any:
        return made(self.config_type, drawn(draw, self.config_type))

    def launched(self, text: str) -> Launch:
        line = Line(text, self.version())
        try:
            config = self.decode(self.encode(self.config_type.of_line(line)))
        except InvalidConfig as error:
            raise UsageError(f"--launch: such a server cannot be driven: {error}") from error
        return Launch(text, PAIR if self.role(config) else ENGINE, self.encode(config), line.not_driven)

    def shape(self, config: Any) -> Shape:
        shape: Shape = config.shape
        return shape

    def role(self, config: Any) -> str:
        role = flat(config).get("role", "")
        return "" if role == self.defaults.get("role", "") else str(role)

    def encode(self, config: Any) -> dict[str, Any]:
        encoded: dict[str, Any] = msgspec.to_builtins(flat(config))
        return encoded

    def decode(self, mapping: Mapping[str, Any]) -> Any:
        return converted(mapping, self.config_type)
