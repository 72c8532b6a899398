"""Drivers of our engine."""

from collections.abc import Callable, Sequence

from engine_under_test.config import EngineConfig
from harness.core.driver import EVERYTHING, Driver, Kept
from harness.core.oplog import Header
from harness.core.registry import OWN
from harness.core.replay import driver_of
from invariants.transition import Transition


def own_driver(
    machine: str,
    configs: Sequence[EngineConfig],
    *,
    model: str = "",
    keep: Kept = EVERYTHING,
    observe: Callable[[Transition], None] | None = None,
) -> Driver:
    header = Header(engine=OWN, machine=machine, configs=[config.to_mapping() for config in configs], model=model)
    return driver_of(header, keep=keep, observe=observe)
