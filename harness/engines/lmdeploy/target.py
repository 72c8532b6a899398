"""The PyTorch engine of lmdeploy as a target, in any release that is installed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import CLIENT_FAULTS
from swarden.harness.core.ops import Abort, Drain, Heal, Inject, Pause, Resume, Step, Submit
from swarden.harness.core.port import EnginePort
from swarden.harness.core.releases import Releases
from swarden.harness.core.target import ENGINE, Draw, MachineSpec, Shape
from swarden.harness.engines.lmdeploy.adapter import CODE, LmdeployEngine
from swarden.harness.engines.lmdeploy.boot import ABSENT, LmdeployRelease, boot
from swarden.harness.engines.lmdeploy.config import LmdeployConfig, random_config
from swarden.harness.engines.lmdeploy.mutants import MUTANTS
from swarden.harness.kit.released import ReleasedTarget

OPS = (Submit, Abort, Step, Pause, Resume, Inject, Heal, Drain)
LMDEPLOY = Releases(
    package="lmdeploy",
    root=Path(".swarden/engines/lmdeploy"),
    requirements=Path(__file__).with_name("packages.txt"),
    oldest="0.16.0",
    num_embargoed=4,
    release_size="107 MB",
    shared_size="about 30 MB",
    from_environment=("torch",),
    kept_files=(".py",),
    repository="InternLM/lmdeploy",
    report="lmdeploy check_env",
    stand_ins=tuple(ABSENT),
)


class LmdeployTarget(ReleasedTarget[LmdeployRelease]):
    """The engine of a release with its loop, scheduler, block managers, trie and states."""

    name = "lmdeploy"
    code = CODE
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec(OPS, batches=3)}
    faults = CLIENT_FAULTS
    releases = LMDEPLOY
    load = boot
    config_type = LmdeployConfig
    catalog = MUTANTS.all
    large_pools: Mapping[str, int] = {"num_blocks": 4096}
    needs: Mapping[str, str] = {"window": "windowed model", "states": "recurrent states"}

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[LmdeployConfig]:
        return [random_config(draw)]

    def config_of(self, shape: Shape) -> Any:
        windows = list(dict.fromkeys(pool.window for pool in shape.pools if not pool.has_states))
        if len(windows) > 1:
            raise InvalidConfig(f"the pools have the windows {windows}, want the same for all layers")
        defaults = LmdeployConfig()
        return self.decode(
            {
                "page_size": shape.page_size,
                "num_blocks": max([pool.units for pool in shape.pools if not pool.has_states], default=32),
                "window": windows[0] if windows else None,
                "states": any(pool.has_states for pool in shape.pools),
                "chunk_len": shape.chunk_len or defaults.chunk_len,
                "max_running_requests": shape.max_running_requests,
                "max_context_len": shape.max_context_len,
                "prefill_interval": min(defaults.prefill_interval, shape.page_size),
            }
        )

    def build(self, config: Any) -> EnginePort:
        return LmdeployEngine(self.booted_for(config), config)
