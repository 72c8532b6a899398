"""vLLM as a target, in any release that is installed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import SERVING_OPS, SESSION_OPS, Pressure
from swarden.harness.core.port import EnginePort
from swarden.harness.core.program import PYTEST, SCRIPT, Program
from swarden.harness.core.releases import Releases, parsed
from swarden.harness.core.system import System
from swarden.harness.core.target import DATA_RANKS, ENGINE, PAIR, Draw, MachineSpec, Shape
from swarden.harness.engines.vllm.adapter import CODE, FAULTS, VllmEngine
from swarden.harness.engines.vllm.boot import VllmRelease, boot
from swarden.harness.engines.vllm.config import LARGE_POOLS, SERVER_NEEDS, VllmConfig, config_for
from swarden.harness.engines.vllm.draws import pair_configs, random_config, rank_config
from swarden.harness.engines.vllm.live import VllmAttachment
from swarden.harness.engines.vllm.mutants import MUTANTS
from swarden.harness.engines.vllm.pair import side_systems
from swarden.harness.engines.vllm.parts import pair, ranks
from swarden.harness.engines.vllm.parts.ranks import RankGroup
from swarden.harness.engines.vllm.program import program_of
from swarden.harness.engines.vllm.stand_ins import ABSENT
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.strict.live import Live

FIRST_PAIRED = "0.22.0"  # in an older release an idle prefill side does not step, and keeps the blocks that were read
VLLM = Releases(
    package="vllm",
    root=Path(".swarden/engines/vllm"),
    requirements=Path(__file__).with_name("packages.txt"),
    oldest="0.20.2",
    num_embargoed=5,
    release_size="260 to 360 MB",
    shared_size="about 40 MB",
    from_environment=("torch",),
    repository="vllm-project/vllm",
    report="vllm collect-env",
    stand_ins=tuple(ABSENT),
    kept_files=(".py", f"lmcache_native{EXTENSION_SUFFIXES[0]}"),  # the other compiled files are GPU libraries
    beside="lmcache==0.5.6",
)


def pair_traffic() -> type[Any]:
    from swarden.harness.engines.vllm.pair_traffic import VllmPairs  # noqa: PLC0415  # it needs Hypothesis

    return VllmPairs


class VllmTarget(ReleasedTarget[VllmRelease]):
    """The engine core of vLLM, alone or as the two sides of a pair."""

    name = "vllm"
    code = CODE
    machines: Mapping[str, MachineSpec] = {
        ENGINE: MachineSpec((*SERVING_OPS, Pressure, *SESSION_OPS), batches=3),
        PAIR: MachineSpec(SERVING_OPS, roles=(pair.PREFILL, pair.DECODE), traffic=pair_traffic),
        DATA_RANKS: MachineSpec(SERVING_OPS, batches=0, own_faults=ranks.FAULTS),
    }
    kept = (pair.ROLE, "ranks")
    faults: Mapping[str, str] = FAULTS
    contracts = frozenset({"completeness", "first_passes", "reclaiming", "running_requests", "served_prefixes"}) | {
        *("free_places", "overtaking", "recency", "needed_evictions")
    }
    releases = VLLM
    load = boot
    config_type: type[VllmConfig] = VllmConfig
    catalog = MUTANTS.all
    large_pools = LARGE_POOLS
    needs = SERVER_NEEDS

    def __init__(self, release: str = "") -> None:
        super().__init__(release)
        if self._release and parsed(self._release) < parsed(FIRST_PAIRED):
            self.machines = {name: spec for name, spec in self.machines.items() if name != PAIR}

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[VllmConfig]:
        has = self.booted().has
        if machine == DATA_RANKS:
            return [rank_config(draw, has=has)]
        return pair_configs(draw, has=has) if machine == PAIR else [random_config(draw, load, has=has)]

    def config_of(self, shape: Shape) -> VllmConfig:
        shaped: VllmConfig = self.decode(config_for(shape))
        return shaped

    def check_linked(self, configs: Sequence[Any]) -> None:
        groups = [config.groups for config in configs]
        if groups != groups[:1] * len(groups):
            raise InvalidConfig("block_size, windows and window_block_sizes differ between the sides; make them equal")
        pair.check_linked([config.pair for config in configs])

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        if machine == PAIR:
            for config in configs:
                config.check_release(self.booted_for(config))
            return side_systems(self.booted(), configs)
        if machine == DATA_RANKS:
            group: RankGroup = configs[0].group
            return group.systems(self.booted(), partial(self.build, configs[0]))
        return super().systems(machine, configs, model)

    def programs(self) -> Mapping[str, Callable[[Any], Program]]:
        return dict.fromkeys((SCRIPT, PYTEST), lambda log: program_of(log, self.booted()))

    def live(self, engine: Any) -> Live:
        return VllmAttachment(VllmRelease(self.version()), engine).live

    def build(self, config: Any) -> EnginePort:
        release = self.booted_for(config)
        config.check_release(release)
        return VllmEngine(release, config)
