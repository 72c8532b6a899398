"""Drivers of our engine, and a small campaign."""

from collections.abc import Callable, Sequence

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.driver import EVERYTHING, Driver, KeptParts
from swarden.harness.core.oplog import Header
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import driver_of
from swarden.harness.search.traffic.profiles import Profile
from swarden.invariants.transition import Transition

TINY = Profile("tiny", 1.0, 6, (15,), probe_floor=0.0, must_evaluate=False, min_runs=1, recheck_every=3)


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
