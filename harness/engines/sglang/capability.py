"""The settings of one capability of an SGLang scheduler, and what a scheduler that has it differs in."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.part import Core, SglangPart
from swarden.harness.kit.settings import PartSettings, SettingsT, replaced

NONE: Mapping[str, Any] = {}
NOT_LIKE_IT = "a program has UnifiedRadixCache in Python, without drafts, states and disaggregation"
ONE_TREE: Mapping[str, Sequence[Any]] = {"tree": ("default", "unified")}  # not that of a window alone


class Terms(NamedTuple):
    """What a capability adds, by the names of the release: ServerArgs, options, CacheInitParams, attributes, ranks; by
    our own names: limits, and the shape for traffic.  A row of the request table has `row_len` further entries.
    """

    server_args: Mapping[str, Any] = NONE
    flags: Mapping[str, Any] = NONE
    cache_params: Mapping[str, Any] = NONE
    attributes: Mapping[str, Any] = NONE
    parallel: Mapping[str, Any] = NONE
    limits: Mapping[str, Any] = NONE
    shape: Mapping[str, Any] = NONE
    row_len: int = 0


class Table(NamedTuple):
    """The class of a request table, and its arguments beside those of every table."""

    kind: str
    more: Mapping[str, Any] = NONE


class Capability(PartSettings, frozen=True):
    """The first setting enables the capability.  The hooks are called if it is enabled; by default nothing differs.

    `server_need` is its name where a bug needs it.  `faults` can happen to a scheduler that has it.  `tree` is the
    class of the prefix tree with it alone, `component` that of the tree, and `no_program` says why no program has it.
    """

    server_need: ClassVar[str] = ""
    faults: ClassVar[Mapping[str, str]] = NONE
    tree: ClassVar[str] = ""
    component: ClassVar[str] = ""
    no_program: ClassVar[str] = ""

    @property
    def is_on(self) -> bool:
        kind = type(self)
        return bool(getattr(self, kind.__struct_fields__[0]) != kind.__struct_defaults__[0])

    @property
    def uses(self) -> Collection[str]:
        """The faults and ops that an engine has with it, and not without."""
        return self.faults

    def terms(self, config: Any) -> Terms:
        return Terms()

    def check_release(self, release: SglangRelease, config: Any) -> None:
        """Raise InvalidConfig for settings that the release does not have."""

    def prepare(self, release: SglangRelease, server_args: Any) -> None:
        """Called before the memory is built."""

    def table(self, release: SglangRelease, config: Any) -> Table | None:
        """The request table, if it is of another class."""

    def wrapped(self, release: SglangRelease, tree: Any, server_args: Any, params: Any) -> Any:
        """The tree with this capability; `params` are those with which it was built."""
        return tree

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        """Called when the scheduler has its memory and the attributes of the terms."""

    def parts(self, core: Core) -> Sequence[SglangPart]:
        return ()


def off(*kinds: type[Capability]) -> dict[str, Sequence[Any]]:
    """The settings that enable these capabilities, each with the one value that does not."""
    firsts = [msgspec.structs.fields(kind)[0] for kind in kinds]
    return {first.name: (first.default,) for first in firsts}


def without(config: SettingsT, *kinds: type[Capability], **settings: Any) -> SettingsT:
    """The configuration without these capabilities, whose other settings stay, and with other values of `settings`."""
    return replaced(config, **{name: value for name, (value,) in off(*kinds).items()}, **settings)


def server_needs(*kinds: type[Capability]) -> dict[str, str]:
    return {name: kind.server_need for kind in kinds for name in off(kind)}


def merged(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for mapping in mappings for name, value in mapping.items()}
