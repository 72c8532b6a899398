"""What a capability of an engine core asks of the release, and adds to the engine."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.kit.part import Part
from swarden.harness.kit.settings import PartSettings, default_of

if TYPE_CHECKING:
    from swarden.harness.engines.vllm.adapter import VllmEngine as VllmEngine
    from swarden.harness.engines.vllm.config import VllmConfig as VllmConfig
else:  # these modules import the parts
    VllmEngine = VllmConfig = Any

Events = Sequence[type[tuple[Any, ...]]]
Named = Mapping[str, Mapping[str, Any]]
CACHED: dict[str, Sequence[Any]] = {"prefix_caching": (True,)}  # what a part needs that needs the prefix cache


class VllmPart(PartSettings, frozen=True):
    """A capability, by its settings.  All but `is_on` and `check` is asked of those that an engine core has.

    The setting in `server_need` enables it, with what a server has with it and not without; `ops` are the operations
    that an engine does not have without it.
    """

    server_need: ClassVar[tuple[str, str]]
    ops: ClassVar[Sequence[str]] = ()
    events: ClassVar[Events] = ()  # that are reported with it alone
    hashes_blocks: ClassVar[bool] = False  # also without a prefix cache

    @property
    def is_on(self) -> bool:
        name, _ = self.server_need
        return bool(getattr(self, name) != default_of(type(self))[name])

    def is_in(self, config: VllmConfig) -> bool:
        return self.is_on

    def faults(self, config: VllmConfig) -> Sequence[str]:
        return ()

    @property
    def fatal_faults(self) -> Mapping[str, str]:
        """The faults of which every release dies, each with its effect: op-logs can have them, traffic draws none."""
        return {}

    def reported(self, config: VllmConfig) -> Events:
        return self.events

    def limits(self, config: VllmConfig) -> Mapping[str, Any]:
        """Limits in the snapshots."""
        return {}

    def can_reset(self, release: VllmRelease) -> bool:
        """Whether a reset of the caches includes its connector."""
        return False

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        """Raise InvalidConfig if the release cannot be built with these settings."""

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        """Arguments of the release's configurations, by the name of the class."""
        return {}

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        """The KV connectors, each with its kv_connector_extra_config."""
        return {}

    def attach(self, engine: VllmEngine) -> Part | None:
        """Prepare an engine that has been built; what goes on there from step to step is a part of it."""
        return None
