"""A prefill and a decode core of one release, linked by its NIXL connector: their systems, and the port of one side."""

from collections.abc import Sequence

from swarden.harness.core.linked import LinkedSystem
from swarden.harness.core.port import Submission
from swarden.harness.engines.vllm.adapter import VllmEngine
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.link import LEASE_S, VllmLink
from swarden.harness.engines.vllm.parts.mooncake_link import MooncakeLink
from swarden.harness.engines.vllm.parts.pair import PairSide


class LinkedVllmEngine(VllmEngine):
    """One side."""

    def __init__(self, release: VllmRelease, config: VllmConfig, link: VllmLink, sides: list[PairSide]) -> None:
        super().__init__(release, config)
        self.side = PairSide(self, link, sides)
        self.parts = [*self.parts, self.side]

    def awaits_another(self) -> bool:
        return self.side.awaits_another()


class LinkedVllmSystem(LinkedSystem):
    """One side of a pair, whose router chooses the sides that serve a request."""

    def __init__(self, engine: LinkedVllmEngine, sides: list[LinkedSystem]) -> None:
        super().__init__(engine, sides, patience=4 * LEASE_S if engine.config.pair.mooncake_link else 2 * LEASE_S)
        self._route = engine.side.route

    def way_of(self, submission: Submission) -> Sequence[LinkedSystem]:
        return [self._sides[side] for side in self._route(submission)]


def side_systems(release: VllmRelease, configs: Sequence[VllmConfig]) -> list[LinkedSystem]:
    """The two linked sides of a pair: prefill, then decode."""
    link = MooncakeLink() if configs[0].pair.mooncake_link else VllmLink()
    sides, systems = list[PairSide](), list[LinkedSystem]()
    engines = [LinkedVllmEngine(release, config, link, sides) for config in configs]
    sides += [engine.side for engine in engines]
    systems += [LinkedVllmSystem(engine, systems) for engine in engines]
    return systems
