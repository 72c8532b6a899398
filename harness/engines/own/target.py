"""Our own engine as a target, with machines for one engine and for a pair."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch

from swarden.engine_under_test.config import EngineConfig, check_size
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.pair import InProcessLink
from swarden.engine_under_test.strict import setting_of
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.linked import LinkedSystem
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.ops import ENGINE_OPS, SESSION_OPS, Accept, name_of
from swarden.harness.core.port import LINKED_MS_PER_STEP
from swarden.harness.core.registry import OWN
from swarden.harness.core.system import EngineSystem, System
from swarden.harness.core.target import ENGINE, PAIR, Draw, MachineSpec, Pool, Shape, Target
from swarden.harness.core.validation import validation_text
from swarden.harness.engines.own.adapter import CODE, SwardenEngine
from swarden.harness.engines.own.config import random_config, random_pair
from swarden.harness.engines.own.faults import BETWEEN_ENGINES, FAULTS, HOST, ON_THE_HOST
from swarden.harness.engines.own.live import live_of
from swarden.harness.engines.own.mail import Mail
from swarden.harness.engines.own.models import MODELS
from swarden.harness.engines.own.mutants.catalog import CATALOG, mutant_of_catalog
from swarden.harness.engines.own.pair_probes import PAIR_PROBES
from swarden.harness.engines.own.probes import ENGINE_PROBES, ProbeWatch
from swarden.harness.strict.live import Live
from swarden.invariants.catalog import CONTRACTS

PAIR_OPS = [op for op in ENGINE_OPS if op not in SESSION_OPS]
SIDES = ("prefill", "decode")


def side_systems(configs: Sequence[EngineConfig]) -> list[LinkedSystem]:
    """The two linked sides of a pair: prefill, then decode."""
    sides: list[LinkedSystem] = []
    mail = Mail()
    for config, link in zip(configs, InProcessLink.pair(), strict=True):
        patience = (config.link_timeout_ms + config.link_retry_ms) // LINKED_MS_PER_STEP
        sides.append(LinkedSystem(SwardenEngine(config, link=link, mail=mail), sides, patience=patience))
    return sides


class OwnTarget(Target):
    """The engine of `engine_under_test`."""

    name = OWN
    code = CODE
    machines: Mapping[str, MachineSpec] = {
        ENGINE: MachineSpec(ENGINE_OPS, models=MODELS, probes=ENGINE_PROBES, batches=5),
        PAIR: MachineSpec(PAIR_OPS, roles=SIDES, probes=PAIR_PROBES),
    }
    faults: Mapping[str, str] = FAULTS
    contracts = CONTRACTS
    defaults: Mapping[str, Any] = EngineConfig().to_mapping()
    coupled = (
        ("host_full_pages", "host_swa_pages", "host_state_pages"),
        ("swa_pages", "sliding_window", "host_swa_pages"),
        ("state_pages", "host_state_pages"),
    )  # one setting of a group can be invalid without the others
    catalog = CATALOG
    main_settings = ("page_size", "full_pages", "swa_pages", "sliding_window", "chunk_len", "overlap")
    kept = ("role", "link_retry_ms", "link_timeout_ms")  # the machine needs the role; the times limit a drain

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[Any]:
        return random_pair(draw, load) if machine == PAIR else [random_config(draw, load)]

    def encode(self, config: Any) -> dict[str, Any]:
        assert isinstance(config, EngineConfig), f"{config!r} is not an EngineConfig"
        return config.to_mapping()

    def decode(self, mapping: Mapping[str, Any]) -> EngineConfig:
        """Checks the types first, because the configuration compares its values."""
        try:
            msgspec.convert(mapping, EngineConfig)
            return EngineConfig.from_mapping(mapping)
        except msgspec.ValidationError as error:
            raise InvalidConfig(validation_text(dict(mapping), error)) from error
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error

    def shape(self, config: Any) -> Shape:
        uses = {"write_through_selective": 2}.get(config.host_policy, 1) if config.host_pools else 0
        unused = [*(() if config.draft_tokens else (name_of(Accept),)), *(() if uses else ON_THE_HOST)]
        return Shape(
            config.page_size,
            [Pool(pool.name, pool.num_pages, pool.window, bool(pool.slots)) for pool in config.pools],
            config.chunk_len,
            config.max_running_requests,
            config.max_context_len,
            config.lookahead_tokens,
            unused=[*unused, *(() if self.role(config) else BETWEEN_ENGINES)],
            uses_before_backup=uses,
            tiers=[HOST] if uses else [],
            serves_prompts_alone=True,
        )

    def config_of(self, shape: Shape) -> EngineConfig:
        whole = [pool for pool in shape.pools if pool.window is None]
        windowed = [pool for pool in shape.pools if pool.window is not None]
        if len(whole) != 1 or len(windowed) > 1:
            raise InvalidConfig(
                "want a full pool and at most one windowed pool; no other shape has a configuration here"
            )
        return EngineConfig(
            page_size=shape.page_size,
            full_pages=whole[0].units,
            swa_pages=windowed[0].units if windowed else 0,
            sliding_window=windowed[0].window if windowed else None,
            max_running_requests=shape.max_running_requests,
            max_context_len=shape.max_context_len,
            chunk_len=shape.chunk_len,
        )

    def role(self, config: Any) -> str:
        return "" if config.role == "both" else str(config.role)

    def check_linked(self, configs: Sequence[Any]) -> None:
        try:
            check_size(configs)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from error

    def build(self, config: Any) -> SwardenEngine:
        return SwardenEngine(config)

    def live(self, engine: Any) -> Live:
        return live_of(engine)

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        try:
            if machine == PAIR:
                return side_systems(configs)
            return [EngineSystem(SwardenEngine(config, model)) for config in configs]
        except ConfigError as error:  # such as pools that do not fit into the memory
            raise InvalidConfig(str(error)) from error

    def prepare_process(self) -> None:
        """Use one thread, the fastest for small tensors."""
        torch.set_num_threads(1)
        self.check_environment()

    def check_environment(self) -> None:
        """Check the strict level of the environment."""
        try:
            setting_of(os.environ)
        except ConfigError as error:
            raise UsageError(str(error)) from error

    def watch(self) -> ProbeWatch:
        return ProbeWatch()

    def mutant(self, name: str) -> Mutant:
        return mutant_of_catalog(name)
