"""What a capability of an engine core asks of the release, and adds to the engine."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.kit.part import NONE, Capability

if TYPE_CHECKING:
    from swarden.harness.engines.vllm.adapter import VllmEngine as VllmEngine
    from swarden.harness.engines.vllm.config import VllmConfig as VllmConfig
else:  # these modules import the parts
    VllmEngine = VllmConfig = Any

Named = Mapping[str, Mapping[str, Any]]
# Laws that do not apply where a request waits for more than its place.
WAITS_FOR_MORE = ("waiting_requests_take_free_places", "waiting_requests_are_not_passed_over")
CACHED: dict[str, Sequence[Any]] = {"prefix_caching": (True,)}  # what a part needs that needs the prefix cache


class VllmPart(Capability, frozen=True):
    """A capability, by its settings."""

    hashes_blocks: ClassVar[bool] = False  # also without a prefix cache
    waits: ClassVar[bool] = False  # a waiting request may wait for a look-up, a load, or the turn before it

    def inapplicable(self, config: VllmConfig, release: VllmRelease) -> Sequence[str]:
        return WAITS_FOR_MORE if self.waits else ()

    def can_reset(self, release: VllmRelease) -> bool:
        """Whether a reset of the caches includes its connector."""
        return False

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        """Arguments of the release's configurations, by the name of the class."""
        return NONE

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        """The KV connectors, each with its kv_connector_extra_config."""
        return NONE
