"""The continuous batching of Hugging Face transformers as a target, in any release that is installed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.ops import Abort, Drain, Heal, Inject, Reset, Step, Submit
from swarden.harness.core.port import EnginePort
from swarden.harness.core.program import PYTEST, SCRIPT, Program
from swarden.harness.core.releases import Releases
from swarden.harness.core.system import EngineSystem, System
from swarden.harness.core.target import ENGINE, Draw, MachineSpec, Shape
from swarden.harness.engines.transformers.adapter import CODE, TransformersEngine
from swarden.harness.engines.transformers.boot import TransformersRelease, boot
from swarden.harness.engines.transformers.config import TransformersConfig, random_config
from swarden.harness.engines.transformers.mutants import MUTANTS
from swarden.harness.engines.transformers.program import program_of
from swarden.harness.engines.transformers.tiny import GEMMA, TinyEngine
from swarden.harness.kit.released import ReleasedTarget

OPS = (Submit, Abort, Step, Reset, Inject, Heal, Drain)
TRANSFORMERS = Releases(
    package="transformers",
    root=Path(".swarden/engines/transformers"),
    requirements=Path(__file__).with_name("packages.txt"),
    oldest="5.19.0",
    num_embargoed=3,
    release_size="13 MB",
    shared_size="about 30 MB",
    from_environment=("torch",),
    repository="huggingface/transformers",
    sources="src/",
    report="transformers env",
)


class TransformersTarget(ReleasedTarget[TransformersRelease]):
    """The batch processor of a release with its scheduler, caches and offloading."""

    name = "transformers"
    code = CODE
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec(OPS, models=(GEMMA,), batches=3)}
    faults = CLIENT_FAULTS
    releases = TRANSFORMERS
    load = boot
    config_type = TransformersConfig
    catalog = MUTANTS.all
    large_pools: Mapping[str, int] = {"num_blocks": 4096}
    needs: Mapping[str, str] = {"sliding_layers": "windowed model", "cpu_blocks": "host tier"}

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[TransformersConfig]:
        return [random_config(draw)]

    def config_of(self, shape: Shape) -> Any:
        windows = list(dict.fromkeys(pool.window for pool in shape.pools if pool.window is not None))
        if len(windows) > 1:
            raise InvalidConfig(f"the pools have the windows {windows}, want one window at most")
        return self.decode(
            {
                "page_size": shape.page_size,
                "num_blocks": max(pool.units for pool in shape.pools),
                "full_layers": int(any(pool.window is None for pool in shape.pools)),
                "sliding_layers": len(windows),
                "window": windows[0] if windows else TransformersConfig().window,
                "chunk_len": shape.chunk_len or TransformersConfig().chunk_len,
                "max_running_requests": shape.max_running_requests,
                "max_context_len": shape.max_context_len,
            }
        )

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        if not model:
            return super().systems(machine, configs, model)
        return [EngineSystem(TinyEngine(self.booted_for(config), config)) for config in configs]

    def programs(self) -> Mapping[str, Callable[[Any], Program]]:
        return dict.fromkeys((SCRIPT, PYTEST), lambda log: program_of(log, self.booted()))

    def build(self, config: Any) -> EnginePort:
        return TransformersEngine(self.booted_for(config), config)
