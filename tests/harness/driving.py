"""Drivers of our engine."""

from collections.abc import Callable, Sequence

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.driver import EVERYTHING, Driver, KeptParts
from swarden.harness.core.oplog import Header
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import driver_of
from swarden.invariants.transition import Transition


def own_driver(
    machine: str,
    configs: Sequence[EngineConfig],
    *,
    model: str = "",
    keep: KeptParts = EVERYTHING,
    observe: Callable[[Transition], None] | None = None,
) -> Driver:
    header = Header(engine=OWN, machine=machine, configs=[config.to_mapping() for config in configs], model=model)
    return driver_of(header, keep=keep, observe=observe)
