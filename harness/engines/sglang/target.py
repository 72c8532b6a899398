"""SGLang as a target, in any release that is installed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import SERVING_OPS, SESSION_OPS, PauseMode, Reset
from swarden.harness.core.port import EnginePort
from swarden.harness.core.program import PYTEST, SCRIPT, Program
from swarden.harness.core.releases import Releases
from swarden.harness.core.system import EngineSystem, System
from swarden.harness.core.target import DATA_RANKS, ENGINE, PAIR, RANKS, RANKS_OF_PAIR, Draw, MachineSpec, Pool, Shape
from swarden.harness.engines.sglang.adapter import CODE, SglangEngine
from swarden.harness.engines.sglang.boot import SglangRelease, boot
from swarden.harness.engines.sglang.config import (
    FAULTS,
    NEEDS_HOST,
    SERVER_NEEDS,
    SglangConfig,
    pair_configs,
    random_config,
)
from swarden.harness.engines.sglang.live import SglangAttachment
from swarden.harness.engines.sglang.mutants import MUTANTS
from swarden.harness.engines.sglang.pair import side_systems
from swarden.harness.engines.sglang.parts.decode_offload import DecodeOffload
from swarden.harness.engines.sglang.parts.drafts import Drafts
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL, Side
from swarden.harness.engines.sglang.parts.sessions import Sessions
from swarden.harness.engines.sglang.parts.storage import POLICIES
from swarden.harness.engines.sglang.program import program_of
from swarden.harness.engines.sglang.stand_ins import ABSENT
from swarden.harness.engines.sglang.worker_engine import RealEngine
from swarden.harness.engines.sglang.worker_model import LAGUNA, check, real_model
from swarden.harness.engines.sglang.worker_mutants import MUTANTS as OF_WORKER
from swarden.harness.kit.part import merged, off, without
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.kit.settings import default_of, flat, replaced
from swarden.harness.strict.live import Live

SGLANG = Releases(
    package="sglang",
    root=Path(".swarden/engines/sglang"),
    requirements=Path(__file__).with_name("packages.txt"),
    oldest="0.5.10",
    num_embargoed=6,
    release_size="6 to 40 MB",
    shared_size="about 60 MB",
    from_environment=("torch",),
    repository="sgl-project/sglang",
    sources="python/",
    report="python3 -m sglang.check_env",
    stand_ins=tuple(ABSENT),
)


class SglangTarget(ReleasedTarget[SglangRelease]):
    """The scheduler of SGLang, alone or as the two sides of a pair."""

    name = "sglang"
    code = CODE
    machines: Mapping[str, MachineSpec] = {
        ENGINE: MachineSpec((*SERVING_OPS, Reset, *SESSION_OPS), batches=3, pauses=tuple(PauseMode), models=(LAGUNA,)),
        RANKS: MachineSpec((*SERVING_OPS, Reset, *SESSION_OPS), pauses=tuple(PauseMode)),
        DATA_RANKS: MachineSpec(SERVING_OPS, pauses=tuple(PauseMode)),
        PAIR: MachineSpec((*SERVING_OPS, *SESSION_OPS), roles=(PREFILL, DECODE), pausable_engines=(0,)),
        RANKS_OF_PAIR: MachineSpec(SERVING_OPS, roles=(PREFILL, DECODE), pausable_engines=(0,)),
    }
    contracts = frozenset({"rejection", "completeness", "first_passes", "write_through", "served_prefixes"}) | {
        *("free_places", "overtaking", "recency", "session_timeouts", "needed_evictions")
    }
    kept = (*off(Side),)
    faults: Mapping[str, str] = FAULTS
    releases = SGLANG
    load = boot
    config_type = SglangConfig
    catalog = (*MUTANTS.all, *OF_WORKER.all)
    large_pools: Mapping[str, int] = {"full_pages": 10000, "swa_pages": 8000}
    needs: Mapping[str, str] = SERVER_NEEDS

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[SglangConfig]:
        release = self.booted()
        if machine == PAIR:
            return pair_configs(draw, release.has)
        if machine == RANKS_OF_PAIR:
            sides = [replaced(config, ranks=2, connector=None) for config in pair_configs(draw, release.has)]
            of_data = draw.one_of((False, False, True))
            return [without(config, DecodeOffload, dp_attention=True) if of_data else config for config in sides]
        if machine == RANKS:  # without a host tier they exchange nothing
            load = draw.one_of((NEEDS_HOST[0], load))
        config = random_config(draw, load, release.has)
        if machine == ENGINE:
            return [config]
        if config.host.is_on and release.has("storage") and draw.one_of((True, False)):
            config = replaced(config, storage_policy=draw.one_of((POLICIES[0], *POLICIES)))  # by the clock of each
        config = replaced(config, rust_core=False, grammars=False, ranks=draw.one_of((2, 2, 2, 4)))
        return [without(config, Drafts, Sessions, dp_attention=True) if machine == DATA_RANKS else config]

    def shape(self, config: SglangConfig) -> Shape:
        sized = zip(config.components, config.sizes, strict=True)
        pools = [Pool(component.pool, size, component.window, component.has_states) for component, size in sized]
        return config.shape._replace(pools=pools)

    def config_of(self, shape: Shape) -> Any:
        of_window: Mapping[str, Any] = {"sliding_window": None}
        match sorted(shape.pools, key=lambda pool: pool.window is not None):
            case [Pool(window=None, units=full_pages)]:
                pass
            case [Pool(window=None, units=full_pages), Pool(units=swa_pages, window=int(window))]:
                of_window = {"swa_pages": swa_pages, "sliding_window": window - 1}
            case _:
                raise InvalidConfig("want a full pool, alone or with one windowed pool")
        default_len = shape.page_size * ceil(SglangConfig().chunk_len / shape.page_size)
        return self.decode(
            {
                "page_size": shape.page_size,
                "full_pages": full_pages,
                "chunk_len": shape.chunk_len or default_len,
                "max_running_requests": shape.max_running_requests,
                "max_context_len": shape.max_context_len,
                **of_window,
            }
        )

    def check_linked(self, configs: Sequence[Any]) -> None:
        for name in ("page_size", "sliding_window", "ranks", "dp_attention"):
            first, *others = [flat(config)[name] for config in configs]
            if others != [first] * len(others):
                raise InvalidConfig(f"{name} is {first} on one side and {others[-1]} on the other; make them equal")

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        for config in configs:
            release = self.booted_for(config)
        if model:
            [config] = configs
            check(release, config)
            return [EngineSystem(RealEngine(release, config, real_model(release)))]
        ranks = configs[0].group
        build: Callable[[], Sequence[System]] = partial(super().systems, machine, configs, model)
        if len(configs) > 1:
            build = partial(side_systems, release, configs, None if ranks.dp_attention else [])
        return ranks.systems(release, build) if ranks.is_on else build()

    def suited(self, config: SglangConfig, model: str) -> SglangConfig:
        return replaced(config, **merged(default_of(type(capability)) for capability in config.capabilities))

    def booted_for(self, config: Any) -> SglangRelease:
        release = super().booted_for(config)
        for capability in config.capabilities:
            capability.check_release(config, release)
        return release

    def build(self, config: Any) -> EnginePort:
        return SglangEngine(self.booted_for(config), config)

    def programs(self) -> Mapping[str, Callable[[Any], Program]]:
        return dict.fromkeys((SCRIPT, PYTEST), lambda log: program_of(log, self.booted()))

    def live(self, engine: Any) -> Live:
        return SglangAttachment(SglangRelease(self.version()), engine).live
