"""The settings of one capability of an SGLang scheduler, and what a scheduler that has it differs in."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.part import Core, SglangPart
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.kit.settings import PartSettings, SettingsT, replaced


class Table(NamedTuple):
    """The class of a request table, and its arguments beside those of every table."""

    kind: str
    more: Mapping[str, Any]


class Capability(PartSettings, frozen=True):
    """The first setting enables the capability.  The hooks are called if it is enabled; by default nothing differs.

    `server_need` is its name where a bug needs it.  `faults` can happen to a scheduler that has it.  `component` is
    that of the prefix tree, and `no_program` says why no program can have the capability.
    """

    server_need: ClassVar[str] = ""
    faults: ClassVar[Mapping[str, str]] = {}
    component: ClassVar[str] = ""
    no_program: ClassVar[str] = ""

    @property
    def is_on(self) -> bool:
        first = msgspec.structs.fields(self)[0]
        return bool(getattr(self, first.name) != first.default)

    @property
    def uses(self) -> Collection[str]:
        """The faults and ops that an engine has with it, and not without."""
        return self.faults

    @property
    def shape(self) -> Mapping[str, Any]:
        """The fields of the shape for traffic."""
        return {}

    @property
    def server_args(self) -> Mapping[str, Any]:
        """The arguments of a server, named as in ServerArgs."""
        return {}

    @property
    def flags(self) -> Mapping[str, Any]:
        """The options of a server that is launched, named as in ServerArgs."""
        return {}

    def row_len(self, page_size: int) -> int:
        """The entries of a row of the request table beside those for tokens."""
        return 0

    @property
    def cache_params(self) -> Mapping[str, Any]:
        """The arguments of CacheInitParams."""
        return {}

    def limits(self, config: Any, max_len: int) -> Mapping[str, Any]:
        """The limits of an engine whose requests have at most `max_len` tokens."""
        return {}

    def check_release(self, release: SglangRelease, config: Any) -> None:
        """Raise InvalidConfig for settings that the release does not have."""

    def table(self, release: SglangRelease, config: Any) -> Table | None:
        """The request table, if it is of another class."""

    def tree_class(self, release: SglangRelease, config: Any) -> str:
        """The class of the prefix tree with this capability alone; "": that without it."""
        return ""

    def prepare(self, release: SglangRelease, server_args: Any) -> None:
        """Called before the memory is built."""

    def wrapped(self, release: SglangRelease, tree: Any, server_args: Any, params: Any) -> Any:
        """The tree with this capability; `params` are those with which it was built."""
        return tree

    def attributes(self, release: SglangRelease, memory: SglangMemory, server_args: Any) -> Mapping[str, Any]:
        """The attributes of the scheduler."""
        return {}

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        """Called with the scheduler that has its attributes and its memory."""

    def parts(self, core: Core) -> Sequence[SglangPart]:
        return ()


NOT_LIKE_IT = "a program has UnifiedRadixCache in Python, without drafts, states and disaggregation"
ONE_TREE: Mapping[str, Sequence[Any]] = {"tree": ("default", "unified")}  # not that of a window alone


def off(*kinds: type[Capability]) -> dict[str, Sequence[Any]]:
    """The settings that enable these capabilities, each with the one value that does not."""
    firsts = [msgspec.structs.fields(kind)[0] for kind in kinds]
    return {first.name: (first.default,) for first in firsts}


def without(config: SettingsT, *kinds: type[Capability], **settings: Any) -> SettingsT:
    """The configuration without these capabilities, whose other settings stay, and with other values of `settings`."""
    return replaced(config, **{name: value for name, (value,) in off(*kinds).items()}, **settings)


def server_needs(*kinds: type[Capability]) -> dict[str, str]:
    return {name: kind.server_need for kind in kinds for name in off(kind)}
